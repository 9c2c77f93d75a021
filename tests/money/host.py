"""The environment of the real broker in the money tests: its policies, the acting people, and its errors."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from broker.app.wiring import Registries
from broker.core.policy.policy import Action, Facts, Verdict
from broker.core.ports import PolicySet
from broker.reconciler.admission.admission import strictest
from cli import registries
from tests.money.cloud import ENGINE
from tests.money.launches import Judged

if TYPE_CHECKING:
    from tests.money.world import MoneyWorld


class Witness:
    """A policy set that records what it judges."""

    def __init__(self, real: PolicySet, world: MoneyWorld) -> None:
        self._real, self._world = real, world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def judge(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        said = self._real.judge(action, facts)
        if action.placement is not None and action.hold is not None:
            offer, at = action.placement.offer, self._world.clock.true
            judged = Judged(at, self._real.version, action.job.name, offer.pool, offer.price, strictest(said))
            self._world.judged.append(judged)
        return said


@lru_cache(maxsize=4096)
def loaded(text: str) -> PolicySet:
    return plugged_in().load_policies({"stage.yaml": text})


@lru_cache(maxsize=1)
def plugged_in() -> Registries:
    found = registries()
    return replace(found, local_providers=(), engines={**found.engines, ENGINE: "tests.money.cloud:ScriptedCloud"})


class Errors(logging.Handler):
    """Collects errors from which the reconciler recovered."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.seen.append(record.exc_info[1])
