"""The running attempts of a simulation, for the rules that count them."""

from __future__ import annotations

from typing import cast

from broker.core.policy.policy import LiveAttempt
from broker.core.ports import PolicySet
from broker.whatif.attempt import SimulatedAttempt
from broker.whatif.workload import JobClass


class CountedAttempts:
    """Identical attempts are one entry with all their machines, unless a rule counts jobs. Nothing is recorded if no
    rule counts."""

    def __init__(self, policy: PolicySet) -> None:
        self._wanted = policy.counts_live
        self._singly = any(rule.kind == "max_concurrent_jobs" for rule in policy.rules)
        self._alike: dict[object, tuple[SimulatedAttempt, JobClass, int]] = {}
        self._lives: dict[object, LiveAttempt | None] = {}  # None: its number has changed since it was told
        self._told: tuple[LiveAttempt, ...] | None = ()

    def count(self, attempt: SimulatedAttempt, of: JobClass, sign: int) -> None:
        """One more (1) or one less (-1) such attempt of a job of the class ``of``."""
        if not self._wanted:
            return
        placement, offer = attempt.placement, attempt.placement.offer
        where = offer.provider, offer.zone or offer.region, offer.capacity_type
        key = attempt.job.id if self._singly else (attempt.job.place, *where, placement.nodes)
        first, _, number = self._alike.get(key, (attempt, of, 0))
        if number + sign:
            self._alike[key] = first, of, number + sign
            self._lives[key] = None
        else:
            del self._alike[key], self._lives[key]
        self._told = None

    @property
    def attempts(self) -> tuple[LiveAttempt, ...]:
        """All of them; the same object until one starts or ends."""
        if self._told is None:
            for key, live in self._lives.items():
                if live is None:
                    self._lives[key] = _live(*self._alike[key])
            self._told = cast(tuple[LiveAttempt, ...], tuple(self._lives.values()))
        return self._told


def _live(first: SimulatedAttempt, of: JobClass, number: int) -> LiveAttempt:
    placement, offer, job = first.placement, first.placement.offer, of.job
    return LiveAttempt(
        job_id=first.job.id,
        user=of.user,
        team=of.team,
        project=job.project,
        workload=job.workload.value,
        environment=job.environment,
        gpus=placement.gpus * number,
        accelerator=offer.accelerator,
        provider=offer.provider,
        money=offer.money,
        pool=offer.pool,
        nodes=placement.nodes * number,
        capacity_type=offer.capacity_type,
    )
