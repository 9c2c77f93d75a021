"""The entries of a round of the queue: identical jobs that have not run yet form a class, whose options are computed
once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from datetime import datetime

from broker.app.jobs.pace import needs_conversion
from broker.core.events.views import JobView
from broker.core.policy.policy import Facts
from broker.core.ports import PolicySet
from broker.placement.formats import hours_of
from broker.placement.queue.queue import QueueEntry

_BY_AGE = "runaway"  # the kind of the rule that judges a job by its time of submission


class EntryClasses:
    """The classes of one round, at one time and on one market for each query. ``compute``: makes the entry of a job."""

    def __init__(self, policy: PolicySet, now: datetime, compute: Callable[[JobView, Facts], QueueEntry]) -> None:
        self._now, self._compute = now, compute
        self._named = any(policy.when(rule.name) for rule in policy.rules)
        self._aged = any(rule.kind == _BY_AGE for rule in policy.rules)
        self._known: dict[Hashable, QueueEntry] = {}

    def entry(self, view: JobView, facts: Facts) -> QueueEntry:
        """The job's entry."""
        kind = self._kind(view, facts)
        if kind is None:
            return self._compute(view, facts)
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = self._compute(view, facts)
        return replace(known, id=view.id, handed_in=hours_of(view.submitted_at - self._now))

    def _kind(self, view: JobView, facts: Facts) -> Hashable | None:
        """The inputs of the options; None for a job with earlier attempts."""
        if view.attempts or view.rests or facts.grants:
            return None
        job = view.job
        named = self._named or needs_conversion(job)  # a condition, or the speed of earlier jobs of that name
        apart = {"seal"} if named else {"seal", "name"}
        since = view.submitted_at if self._aged else job.deadline_at(view.submitted_at)
        return view.user, view.work, since, job.model_dump_json(exclude=apart)
