"""Hypothesis strategies for the core's values.

`event_streams` yields possible lives of a job: sequences that `advance` accepts and that reach every state, including
late events and several attempts.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

from hypothesis import strategies as st

from broker.core.events import events as ev
from broker.core.events import wait_reasons as why
from broker.core.events.agent_events import (
    CheckpointSaved,
    CheckpointTrouble,
    Claimed,
    CommandStarted,
    NoticeReceived,
    PassedOver,
    Restored,
    StandsBy,
)
from broker.core.events.attempts import ImpossibleSequence
from broker.core.events.events import Event, EventBody
from broker.core.events.lifecycle import advance
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.job.arrays import JobArray, TaskOf
from broker.core.job.jobs import CheckpointPlan, Data, Job, MachineRequest, Priority, Retry, Work, Workload
from broker.core.job.placements import CostTerm, Placement
from broker.core.job.reasons import RuleObjection
from broker.core.market.offers import Availability, Billing, CapacityType, Interconnect, MoneyKind, Offer
from broker.core.values.money import Money

EPOCH = datetime(2026, 3, 2, 12, tzinfo=UTC)
NAMES = st.sampled_from(["nlp", "vision", "ops", "a b", "Ünïcode", "x'; DROP TABLE job; --"])
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
times = st.integers(0, 10**13).map(lambda us: EPOCH + timedelta(microseconds=us))
spans = st.integers(0, 10**13).map(lambda us: timedelta(microseconds=us))
seconds = st.integers(0, 10**7).map(float) | st.floats(0, 1e7, allow_nan=False)
positive_money = st.integers(1, 10**12).map(Money)
parts = st.floats(0, 1)


def maybe(strategy: st.SearchStrategy) -> st.SearchStrategy:
    """The strategy's values, or None."""
    return st.none() | strategy


@st.composite
def offers(draw: st.DrawFn, provider: str | None = None) -> Offer:
    """An offer that a correct provider could report."""
    capacity = draw(st.sampled_from(CapacityType))
    accelerator = draw(maybe(st.sampled_from(["H100", "A100", "A100-80GB", "L4"])))
    region = draw(st.sampled_from(["us-east-1", "us-west-2", "europe-west4"]))
    money = MoneyKind.AMORTISED if capacity is CapacityType.OWNED else draw(st.sampled_from(MoneyKind))
    return Offer(
        provider=provider or draw(st.sampled_from(["aws", "gcp", "vast"])),
        region=region,
        zone=draw(maybe(st.sampled_from([f"{region}a", f"{region}b"]))),
        instance_type=draw(st.sampled_from(["p5", "p4d", "g6"])),
        accelerator=accelerator,
        count=draw(st.sampled_from([1, 2, 4, 8])) if accelerator else 0,
        capacity_type=capacity,
        price=draw(maybe(positive_money)),
        as_of=draw(times),
        source=draw(st.sampled_from(["api", "pricebook"])),
        term_months=draw(st.sampled_from([1, 12, 36])) if capacity is CapacityType.RESERVED else None,
        amortised=draw(maybe(positive_money)),
        cpus=draw(maybe(st.floats(1, 256))),
        memory_gib=draw(maybe(st.floats(1, 4096))),
        interconnect=draw(maybe(st.sampled_from(Interconnect))),
        availability=draw(st.sampled_from(Availability)),
        unavailable_because=draw(st.sampled_from(["", "sold out"])),
        score=draw(maybe(parts)),
        interruption_rate=draw(maybe(parts)),
        slots=draw(maybe(st.integers(0, 100))),
        engine=draw(maybe(st.sampled_from(["local", "skypilot"]))),
        money=money,
        reference=draw(st.booleans()),
        billing=draw(st.builds(Billing, spans, st.just(timedelta(seconds=1)), spans)),
        max_age=draw(maybe(spans)),
    )


placements = st.builds(
    Placement,
    offer=offers(),
    nodes=st.integers(1, 4),
    rate=positive_money,
    expected_cost=positive_money,
    terms=st.lists(st.builds(CostTerm, WORDS, positive_money, WORDS), max_size=2).map(tuple),
    duration=maybe(spans),
    finish=maybe(times),
    useful_fraction=parts,
    throughput=st.floats(0.01, 100),
    interruptions_per_hour=parts,
)

jobs = st.builds(
    Job,
    name=st.sampled_from(["llama", "qlora-7b", "sweep"]),
    run=st.just("python train.py"),
    team=maybe(NAMES),
    project=maybe(NAMES),
    environment=maybe(NAMES),
    workload=st.sampled_from(Workload),
    resources=st.lists(
        st.builds(MachineRequest, accelerator=st.just("H100"), count=st.integers(1, 8)), min_size=1, max_size=2
    ).map(tuple),
    num_nodes=st.integers(1, 4),
    envs=st.dictionaries(st.sampled_from(["A", "B"]), WORDS, max_size=2),
    file_mounts=st.just({}) | st.just({"/data": {"source": "s3://b", "mode": "COPY"}}),
    work=maybe(st.builds(Work, duration=spans)),
    deadline=maybe(spans | times),
    max_duration=maybe(spans),
    max_cost=maybe(positive_money),
    checkpoint=st.builds(CheckpointPlan, every=maybe(spans), size=maybe(st.integers(0, 10**12))),
    retry=st.builds(Retry, failures=st.integers(0, 3), backoff=spans),
    data=st.builds(Data, location=maybe(st.just("aws/us-east-1")), sensitive=st.booleans()),
    priority=st.sampled_from(Priority),
    array=maybe(st.builds(JobArray, range=st.integers(1, 20), parallel=st.integers(1, 9))),
    task=maybe(st.builds(TaskOf, array=WORDS, index=st.integers(0, 9), count=st.just(10))),
)

submissions = st.builds(
    ev.Submitted,
    job=jobs,
    user=NAMES,
    deadline=maybe(times),
    max_duration_seconds=seconds,
    work_seconds=maybe(seconds),
)

STOP_REASONS = st.one_of(
    st.none(),
    st.builds(why.Cancelled),
    st.builds(why.MaxDurationUsed, limit_seconds=st.floats(0, 1e6)),
    st.builds(why.HoldEnded, at=st.datetimes(timezones=st.just(UTC))),
    st.builds(why.RulesDeny, objections=st.just(())),
    st.builds(
        why.MovesElsewhere, advantage=st.sampled_from(why.MoveAdvantage), to=st.sampled_from(CapacityType), pool=WORDS
    ),
)
objections = st.lists(
    st.builds(RuleObjection, rule=st.just("budget"), name=NAMES, code=NAMES, message=WORDS, source=WORDS), max_size=2
).map(tuple)
wait_reasons: st.SearchStrategy[why.WaitReason] = st.one_of(
    st.builds(why.NothingFits, counts=st.just({"no_price": 3, "unavailable": 1})),
    st.builds(why.PolicyDenies, objections=objections, everywhere=st.booleans()),
    st.builds(why.SecretsMissing, names=st.lists(NAMES, min_size=1, max_size=2).map(tuple)),
    st.builds(why.SecretsMissing, names=st.just(("A",)), owner=NAMES, process_user=NAMES),
    st.builds(why.OwnerMustStart, owner=NAMES, process_user=NAMES),
    st.builds(why.QueueTurn, pool=WORDS),
    st.builds(why.StrategyWaits, pool=WORDS, because=WORDS),
    st.builds(
        why.WaitsForPaid,
        pool=WORDS,
        instance_type=NAMES,
        capacity_type=st.sampled_from(CapacityType),
        until=times,
        saves=positive_money,
        an_hour=st.booleans(),
        rents_from=NAMES,
    ),
    st.builds(why.AwaitsJobs, jobs=st.lists(NAMES, min_size=1, max_size=5).map(tuple)),
    st.builds(why.AwaitsApproval, rules=st.lists(NAMES, max_size=2).map(tuple), because=WORDS),
    st.builds(why.ApprovalEnded, by=WORDS, note=WORDS),
    st.builds(why.MaxDurationUsed, limit_seconds=seconds),
    st.builds(why.MoneyRefused, objections=objections, more=st.booleans()),
    st.builds(why.MoneyTooLittle, instance_type=NAMES, least=positive_money),
    st.builds(why.StoppedByPolicy, evidence=WORDS),
    st.builds(why.MoneyEnded, evidence=WORDS),
    st.builds(why.AttemptStopped, cause=st.sampled_from(Cause), evidence=WORDS),
    st.builds(
        why.LaunchesFailed,
        count=st.integers(1, 99),
        pools=st.just({"aws/x": 2}),
        attempt=st.integers(0, 9),
        cause=maybe(st.sampled_from(Cause)),
        evidence=WORDS,
    ),
    st.builds(why.LaunchTrouble, error=st.just("Unreachable"), message=WORDS, where=WORDS, hint=WORDS),
)
end_reasons: st.SearchStrategy[why.EndReason | None] = st.one_of(
    st.none(),
    st.builds(why.Completed),
    st.builds(why.Cancelled),
    st.builds(why.AttemptStopped, cause=st.sampled_from(Cause), evidence=WORDS),
    st.builds(why.ApprovalEnded, by=WORDS, note=WORDS),
    st.builds(why.PredecessorFailed, job=NAMES, state=st.sampled_from([JobState.FAILED, JobState.CANCELLED])),
    st.builds(why.TasksEnded, failed=st.integers(1, 9), cancelled=st.integers(0, 9), count=st.just(20)),
)

_ids = st.integers(1, 30).map(str)
_steps = maybe(st.integers(0, 10**6))
# Event bodies that concern the job, then those that concern an attempt.
_OF_JOB: tuple[st.SearchStrategy[EventBody], ...] = (
    st.builds(ev.ApprovalAsked, approvers=st.lists(NAMES, max_size=2).map(tuple), because=WORDS),
    st.builds(ev.ApprovalGiven, by=NAMES, note=WORDS),
    st.builds(ev.ApprovalRefused, by=NAMES),
    st.builds(ev.TasksStarted, first=st.integers(0, 99), count=st.integers(1, 9)),
    st.builds(ev.CancelRequested, by=NAMES),
    st.builds(ev.Extended, by=NAMES, max_cost=maybe(positive_money), max_duration_seconds=maybe(seconds)),
    st.builds(ev.NothingFeasible, reason=wait_reasons),
    st.builds(ev.DeadlineMissed),
    st.builds(ev.DeadlineAtRisk, expected_finish=maybe(times), because=WORDS),
    st.builds(ev.Paused, reason=wait_reasons),
    st.builds(ev.JobEnded, state=st.sampled_from([s for s in JobState if s.final]), reason=end_reasons),
    st.builds(ev.JobClosed),
)
_OF_ATTEMPT: tuple[st.SearchStrategy[EventBody], ...] = (
    st.builds(ev.Launched, handle=WORDS),
    st.builds(ev.MachineUp, since=times),
    st.builds(ev.ToppedUp, amount=positive_money, until=times),
    st.builds(ev.HandedOver),
    st.builds(Claimed, host=WORDS),
    st.builds(StandsBy),
    st.builds(Restored, checkpoint=maybe(_ids), step=_steps),
    st.builds(
        Restored,
        checkpoint=_ids,
        passed_over=st.builds(PassedOver, checkpoint=_ids, because=WORDS).map(lambda passed: (passed,)),
    ),
    st.builds(CommandStarted),
    st.builds(CheckpointSaved, checkpoint=_ids, step=_steps, size=st.integers(0, 10**12), seconds=maybe(seconds)),
    st.builds(CheckpointTrouble, because=WORDS),
    st.builds(NoticeReceived, source=st.just("imds"), terminates_at=maybe(times)),
    st.builds(ev.LaunchDelayed, reason=wait_reasons),
    st.builds(ev.StopRequested, cause=st.sampled_from(Cause), reason=STOP_REASONS),
    st.builds(ev.AttemptEnded, cause=st.sampled_from(Cause), evidence=WORDS, exit_status=maybe(st.integers(0, 255))),
    st.builds(ev.MachineGone, gone_at=maybe(times), evidence=WORDS),
)
_LAUNCH = st.builds(
    ev.LaunchRequested,
    key=st.uuids().map(lambda u: str(u)[:13]),
    engine=st.just("local"),
    placement=placements,
    why=WORDS,
    standby_until=maybe(times),
)


@dataclass(frozen=True)
class Stream:
    """A possible stream: the items as they would be appended, their times, and the view after the last."""

    job_id: str
    items: tuple[tuple[int | None, EventBody, datetime], ...]
    view: JobView


_PAUSES = st.integers(0, 10**10).map(lambda us: timedelta(microseconds=us))


@st.composite
def event_streams(draw: st.DrawFn, job_id: str = "j1", max_events: int = 30) -> Stream:
    """A possible life of a job, from its submission to any later state."""
    at = EPOCH
    first = draw(submissions)
    view = advance(None, Event(job_id, 1, at, None, first))
    items: list[tuple[int | None, EventBody, datetime]] = [(None, first, at)]
    for _ in range(draw(st.integers(0, max_events))):
        if view.closed:
            break
        at += draw(_PAUSES)
        attempt, body = draw(_next_items(len(view.attempts)))
        try:
            view = advance(view, Event(job_id, view.seq + 1, at, attempt, body))
        except ImpossibleSequence:
            continue  # drawn at random; only possible events are kept
        items.append((attempt, body, at))
    return Stream(job_id, tuple(items), view)


@cache
def _next_items(attempts: int) -> st.SearchStrategy[tuple[int | None, EventBody]]:
    """Candidates for the next event, with the latest attempt drawn most often."""
    choices = [st.tuples(st.none(), st.one_of(_OF_JOB)), st.tuples(st.just(attempts + 1), _LAUNCH)]
    if attempts:
        of_attempt = st.one_of(_OF_ATTEMPT)
        choices += [st.tuples(st.just(attempts), of_attempt)] * 4
        choices.append(st.tuples(st.integers(1, attempts), of_attempt))
    return st.one_of(choices)
