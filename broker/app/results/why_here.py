"""The reasons for a placement: the alternatives and the verdicts of the rules, as a result."""

from __future__ import annotations

from typing import Self

from broker.app.results.plans import CostTermResult
from broker.app.results.values import Figure, Moment, Result, Seconds
from broker.app.results.verdicts import VerdictResult
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType
from broker.core.policy.decisions import Decision, Inputs
from broker.core.policy.policy import ActionKind, Answer
from broker.core.values.money import Money
from broker.placement.ranking import weighed


class ConsideredPlacement(Result):
    """A placement that was to be had. Amounts in USD; ``expected_cost``, of which ``terms`` are the parts, is for one
    hour where ``duration`` is null; ``ranked_by``: the same with the value of time, which is not paid."""

    provider: str
    region: str
    zone: str | None
    instance_type: str
    machine: str
    nodes: int
    capacity_type: CapacityType
    rate_per_hour: Money
    price_source: str
    price_as_of: Moment
    expected_cost: Money
    terms: list[CostTermResult]
    ranked_by: Money
    duration: Seconds | None
    finish: Moment | None
    interruptions_per_hour: Figure

    @classmethod
    def of(cls, placement: Placement) -> Self:
        offer = placement.offer
        return cls.from_parts(
            placement,
            offer,
            rate_per_hour=placement.rate,
            price_source=offer.source,
            price_as_of=offer.as_of,
            ranked_by=weighed(placement),
        )


class PlacementDecision(Result):
    """One decision where to run: the placement that was taken, and the next ones in rank as far as they are on record.
    ``offers_seen``: how many offers were looked at; ``rejected``: how many of them could not serve the job, by
    reason."""

    at: Moment
    attempt: int | None
    action: ActionKind
    answer: Answer
    policy_version: str
    offers_seen: int | None
    rejected: dict[str, int]
    taken: ConsideredPlacement
    next_best: list[ConsideredPlacement]
    verdicts: list[VerdictResult]

    @classmethod
    def of(cls, decision: Decision, inputs: Inputs, placement: Placement) -> Self:
        seen, rejected = decision.seen.get("offers_seen"), decision.seen.get("rejections")
        return cls.from_parts(
            decision,
            offers_seen=seen if isinstance(seen, int) else None,
            rejected=dict(rejected) if isinstance(rejected, dict) else {},
            taken=placement,
            next_best=inputs.others,
        )


class PlacementDecisions(Result):
    """The newest decisions where a job should run, the newest first."""

    id: str
    decisions: list[PlacementDecision]
