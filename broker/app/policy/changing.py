"""Policy files: what they say, and making them the active policy; as results, for the command line and the API."""

from __future__ import annotations

from collections.abc import Mapping

from broker.app.policy import policies
from broker.app.results.policies import AppliedPolicy, CheckedPolicy
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput
from broker.core.ports import PolicySet

Files = Mapping[str, str]
"""The texts of policy files by name."""


def check(broker: Broker, files: Files) -> CheckedPolicy:
    """The rules of the files, and likely mistakes. Raises `InvalidInput` with every finding. Changes nothing."""
    found = policies.loaded(broker, files)
    return CheckedPolicy.of(found, policies.likely_mistakes(broker, found))


def apply(broker: Broker, files: Files, note: str, *, by: Actor, base: int | None = None) -> AppliedPolicy:
    """Make these files the active policy. ``base``: the version that must be active (0: none); None: any. Raises
    `InvalidInput` for invalid files, and if another version is active; then nothing was changed."""
    before, old, new = broker.store.active_policy(), _readable(broker), policies.loaded(broker, files)
    version, difference = policies.activate(broker, files, note, by=by, base=base)
    return AppliedPolicy.of_change(
        version,
        old,
        new,
        changed=before is None or before.number != version.number,
        difference=difference,
        warnings=policies.likely_mistakes(broker, new),
    )


def _readable(broker: Broker) -> PolicySet | None:
    """The active set; None if there is none, or if this version cannot read it (applying another set fixes that)."""
    try:
        return broker.policy()
    except InvalidInput:
        return None
