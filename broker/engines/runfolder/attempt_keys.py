"""The keys with which the broker signs documents for nodes: one per attempt, all derived from one key of the store.

So every broker of a store can continue every attempt, and a node that knows its own key cannot sign for another
attempt.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from functools import cached_property

from broker.agent.signatures import KEY_VARIABLE


class AttemptKeys:
    """``root``: returns the store's key; called on first use."""

    def __init__(self, root: Callable[[], str]) -> None:
        self._ask = root

    @cached_property
    def _root(self) -> bytes:
        return self._ask().encode()

    def of(self, attempt: str) -> str:
        """The key of the attempt with that launch key, in hexadecimal digits."""
        return hmac.new(self._root, f"gpubroker attempt {attempt}".encode(), hashlib.sha256).hexdigest()

    def variables(self, attempt: str) -> Mapping[str, str]:
        """The variables with which the attempt's launch passes the key to the agents."""
        return {KEY_VARIABLE: self.of(attempt)}


TICKET_VARIABLE = "GPUBROKER_TICKET"
"""The variable with which a launch through Slurm passes its ticket. The job's commands do not get it."""
TICKET_LABEL = "gpubroker-ticket"
"""The label with which a launch through SkyPilot passes its ticket."""


def launch_ticket(attempt_key: str, launch: str) -> str:
    """The proof that the broker requested the launch with that key: a signature with its attempt's key."""
    return hmac.new(attempt_key.encode(), f"gpubroker launch {launch}".encode(), hashlib.sha256).hexdigest()[:32]


def ticket_of(launch: str, variables: Mapping[str, str]) -> str | None:
    """The ticket of a launch, from the variables that it passes; None for one without an attempt's key."""
    key = variables.get(KEY_VARIABLE)
    return None if key is None else launch_ticket(key, launch)
