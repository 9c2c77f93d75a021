"""The possible placements of a job at the time of a recorded decision, under other policies, from the planner and the
prices that were recorded then."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from broker.app.market.market import conditions, query_for, wants_sandbox
from broker.app.wiring import Broker
from broker.core.job.placements import Placement
from broker.core.market.offers import SANDBOX
from broker.core.policy.policy import Action, ActionKind, Facts
from broker.core.ports import PolicySet
from broker.placement.planner import make_plan
from broker.reconciler.admission.admission import denials, with_occupancy


class PastPlacements:
    """Places submissions again, on the offers that were known at their time. ``longest``: seconds of the wall clock
    after which no more are placed; None: no limit. Not considered, because not recorded: doubts about prices,
    interruption rates, and what jobs of other stores used. ``placed``: the number of submissions placed; ``left``: the
    number of those for which time or recorded prices were missing."""

    def __init__(self, broker: Broker, policy: PolicySet, longest: float | None = None) -> None:
        self._broker = broker
        self._policy = policy
        self._ends = None if longest is None else time.monotonic() + longest
        self.placed = 0
        self.left = 0

    def __call__(self, action: Action, facts: Facts, at: datetime) -> Sequence[Placement]:
        """The placements that these policies allow by themselves, in the planner's order; none if the job cannot be
        placed again. ``at``: the time of the decision (UTC)."""
        job = action.job
        if action.kind is not ActionKind.LAUNCH or (job.model is not None and not job.resources):
            return ()  # the remaining work of moved jobs, and the sizes of models, were not recorded
        if self._ends is not None and time.monotonic() >= self._ends:
            self.left += 1
            return ()
        past = self._broker.store.market.offers_at(at, at, query_for(job))
        offers = [one.offer for one in past if wants_sandbox(job) or one.offer.provider != SANDBOX]
        if not offers:
            self.left += 1
            return ()
        self.placed += 1
        seen = conditions(self._broker, {offer.engine for offer in offers if offer.engine}, self._policy)
        plan = make_plan(
            job,
            with_occupancy(offers, facts.live),
            now=at,
            submitted_at=at,
            conditions=replace(seen, capacity_order=self._policy.capacity_order(job)),
            deny=denials(self._policy, replace(action, placement=None, hold=None), facts),
        )
        return plan.placements
