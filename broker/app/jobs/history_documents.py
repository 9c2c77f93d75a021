"""A job with everything that happened to it, the reasons for its places, and the entries of its cost, as results."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, InstanceOf, JsonValue, PlainSerializer, ValidationInfo, WithJsonSchema

from broker.app.billing.budget_documents import CostTermResult, MoneyByKind
from broker.app.documents import Figure, Moment, Result, Seconds, VerdictResult, moment_text
from broker.app.jobs import reasons
from broker.app.jobs.documents import FailedTask, JobDetails
from broker.core.events import events as ev
from broker.core.events.views import AttemptView
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.policy.decisions import Decision, Inputs
from broker.core.policy.policy import ActionKind, Answer
from broker.core.values.money import Money
from broker.ledger.entries import Entry, Movement
from broker.placement.ranking import ranking_cost


def event_document(event: ev.Event) -> dict[str, JsonValue]:
    """``seq``, ``at``, ``attempt``, ``kind``, the fields of that kind, and for a reason also ``because``, the reason in
    words."""
    document: dict[str, JsonValue] = {"seq": event.seq, "at": moment_text(event.at), "attempt": event.attempt}
    document |= event.body.model_dump(mode="json")
    match event.body:
        case ev.JobEnded(reason=reason):
            return document | {"because": reasons.end_text(reason)}
        case ev.NothingFeasible(reason=reason) | ev.Paused(reason=reason) | ev.LaunchDelayed(reason=reason):
            return document | {"because": reasons.wait_text(reason)}
        case _:
            return document


def _parse_event(value: Any, info: ValidationInfo) -> Any:
    """The event that `event_document` wrote."""
    if not isinstance(value, dict):
        return value
    body = dict(value)
    try:
        seq, at, attempt = body.pop("seq"), datetime.fromisoformat(body.pop("at")), body.pop("attempt")
        if "reason" in body:
            body.pop("because", None)
        return ev.Event(info.data["id"], seq, at, attempt, ev.body_from(body))
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an event of a job: {error}") from error


HistoryEvent = Annotated[
    InstanceOf[ev.Event],
    BeforeValidator(_parse_event),
    PlainSerializer(event_document, return_type=dict[str, JsonValue]),
    WithJsonSchema({"type": "object"}, mode="serialization"),
]
"""An event of a job, as JSON what `event_document` makes of it."""


class JobHistory(JobDetails):
    """A job and everything that happened to it, in order. ``as_of``: when it was looked at; ``time_scale``: how many
    times as fast as real time the times pass, 1 unless they are simulated. ``reconciled``: whether a reconciler is
    running. ``troubles``: why what is shown may be out of date, in words. ``failed_tasks``: of an array, the first of
    them. ``kept_until``: of an ended job, when the active policy lets its ``checkpoints`` (all but the newest),
    ``results`` and ``logs`` go; null: it does not."""

    as_of: Moment
    time_scale: Figure
    reconciled: bool
    troubles: list[str]
    events: list[HistoryEvent]
    failed_tasks: list[FailedTask]
    kept_until: dict[str, Moment | None]


class ConsideredPlacement(Result):
    """A placement that was available. Amounts in USD; ``expected_cost``, of which ``terms`` are the parts, is for one
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
            ranked_by=ranking_cost(placement),
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
        offers_seen, rejections = decision.seen.get("offers_seen"), decision.seen.get("rejections")
        return cls.from_parts(
            decision,
            offers_seen=offers_seen if isinstance(offers_seen, int) else None,
            rejected=dict(rejections) if isinstance(rejections, dict) else {},
            taken=placement,
            next_best=inputs.others,
        )


class PlacementDecisions(Result):
    """The newest decisions where a job should run, the newest first."""

    id: str
    decisions: list[PlacementDecision]


class SpentLine(Result):
    """One entry of the spending ledger (USD; negative: refunded). ``covers``: the time of the money; the price
    (USD an hour, all machines) is that of its attempt, with its source, its date, and how old it was at the launch;
    null where the entry belongs to no attempt, or is in another kind of money: ``note`` then has the price."""

    at: Moment
    movement: Movement
    amount: Money
    money: MoneyKind
    covers_from: Moment
    covers_to: Moment
    attempt: int | None
    provider: str | None
    region: str | None
    capacity_type: CapacityType | None
    rate_per_hour: Money | None
    price_source: str | None
    price_as_of: Moment | None
    price_age_seconds: Seconds | None
    note: str

    @classmethod
    def of(cls, entry: Entry, attempt: AttemptView | None) -> Self:
        if attempt is not None and attempt.placement.money is not entry.money:
            attempt = None  # the entry is for machines outside of the attempt's bought capacity
        offer = None if attempt is None else attempt.placement.offer
        return cls.from_parts(
            entry.tags,
            entry,
            rate_per_hour=None if attempt is None else attempt.placement.rate,
            price_source=None if offer is None else offer.source,
            price_as_of=None if offer is None else offer.as_of,
            price_age_seconds=None if attempt is None or offer is None else attempt.requested_at - offer.as_of,
        )


class JobLedger(Result):
    """The entries that a job's cost is made of, in posting order. They add up to ``total``, the job's ``cost``."""

    id: str
    name: str
    total: MoneyByKind
    entries: list[SpentLine]

    @classmethod
    def of(cls, id: str, name: str, spending_entries: Sequence[Entry], attempts: Mapping[int, AttemptView]) -> Self:
        totals: dict[MoneyKind, Money] = {}
        for entry in spending_entries:
            totals[entry.money] = totals.get(entry.money, Money.ZERO) + entry.amount
        return cls(
            id=id,
            name=name,
            total=MoneyByKind.of(totals),
            entries=[SpentLine.of(entry, attempts.get(entry.tags.attempt or 0)) for entry in spending_entries],
        )
