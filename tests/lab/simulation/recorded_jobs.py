"""The recorded jobs of this store as a workload, to simulate them with other policies, capacity or demand."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from broker.app.market.experience import risks
from broker.app.market.market import wants_sandbox
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.core.events.views import AttemptView, JobView
from broker.core.job.jobs import Job
from broker.core.market.offers import SANDBOX, CapacityType, Offer, OfferQuery
from broker.core.values.money import Money
from broker.placement.pricing.estimate import Hazard
from broker.store.jobs.reader import StoreReader
from tests.lab.simulation.job_traces import RecordedJobs, waits_in_words
from tests.lab.simulation.workload import DAY, ENGINE, HOUR, JobClass, SimulatedWorkload, Submission, WorkloadPool

# The number of offers used of each machine and capacity type, cheapest first.
_CHEAPEST = 20
_SHORTEST = timedelta(hours=1)
# Fields of a job that affect neither placement nor cost nor payer.
_WITHOUT: dict[str, Any] = {
    "run": "true",
    "envs": {},
    "secrets": (),
    "optional_secrets": (),
    "snapshot": None,
    "seal": None,
    "setup": None,
    "workdir": None,
    "file_mounts": {},
    "outputs": (),
    "resume_from": None,
    "skypilot_config": {},
    "after": (),
    "task": None,
    "from_network": False,
}


@dataclass
class _Found:
    classes: list[JobClass] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    jobs: list[Submission] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def recorded_workload(broker: Broker, last: timedelta) -> SimulatedWorkload:
    """The jobs submitted in the ``last`` time before now, with the work that they did, on the present offers at the
    prices recorded then. Omits, and counts, jobs that never ran, sessions, and arrays (their tasks are included).

    Raises `InvalidInput` for a time shorter than an hour, and if no job is left."""
    if last < _SHORTEST:
        raise InvalidInput("expected an hour or more, such as 30d", where="--last")
    now = broker.clock.now()
    since = now - last
    found = _Found()
    with broker.store.reading() as look:
        for view in look.submitted_before(now, since):
            _add(found, view, since, now)
        if not found.jobs:
            told = ", ".join(f"{number:,} {why}" for why, number in found.skipped.items()) or "none was submitted"
            raise InvalidInput(f"no job of that time can be simulated: {told}", where="--last")
        pools = _pools(broker, look, [one.job for one in found.classes], (since, now))
    classes = tuple(found.classes)
    skipped = ", ".join(f"{number:,} {why}" for why, number in found.skipped.items())
    notes = [
        "recorded jobs on the present offers at the prices of that time; their work is the time that they ran",
        f"left out: {skipped}" if skipped else "",
        waits_in_words(found.waits),
    ]
    days = -(-int(last.total_seconds()) // DAY)
    source = RecordedJobs(tuple(found.jobs), classes)
    return SimulatedWorkload("recorded jobs", since, classes, pools, source, days, tuple(n for n in notes if n))


def _add(found: _Found, view: JobView, since: datetime, now: datetime) -> None:
    job = view.job
    left_out = {
        "arrays (their tasks are counted)": job.array is not None,
        "sessions": job.session is not None,
        "that name a model and no machines": job.model is not None and not job.resources,
    }
    if why := next((why for why, applies in left_out.items() if applies), None):
        found.skipped[why] += 1
        return
    work = round(sum(_worked(attempt, now) for attempt in view.attempts))
    if work <= 0:
        found.skipped["never ran"] += 1
        return
    deadline = None if view.deadline is None else max(view.deadline - view.submitted_at, timedelta(seconds=1))
    same = job.model_copy(update={**_WITHOUT, "deadline": deadline, "max_duration": view.max_duration, "name": "job"})
    key = f"{view.user}/{same.model_dump_json()}"
    if key not in found.places:
        found.places[key] = len(found.classes)
        name = f"{job.name[:30]}-c{len(found.classes)}"
        found.classes.append(JobClass(name, job.team or "", view.user, same.model_copy(update={"name": name})))
    at = int((view.submitted_at - since).total_seconds())
    found.jobs.append((at, found.places[key], work))
    ups = [attempt.up_since or attempt.running_at for attempt in view.attempts[:1]]
    if not view.folded and ups and ups[0] is not None:
        found.waits.append(max(int((ups[0] - view.submitted_at).total_seconds()), 0))


def _worked(attempt: AttemptView, now: datetime) -> float:
    """Seconds of work of an attempt, as on the job's reference machine. Lost work is included, because it is not
    recorded separately."""
    if attempt.running_at is None:
        return 0.0
    return max(((attempt.ended_at or now) - attempt.running_at).total_seconds(), 0.0) * attempt.placement.throughput


def _pools(
    broker: Broker, look: StoreReader, jobs: Sequence[Job], time: tuple[datetime, datetime]
) -> tuple[WorkloadPool, ...]:
    """The offers that these jobs may use: all owned and reserved ones, and the cheapest others."""
    machines = {machine.accelerator for job in jobs for machine in job.resources}
    every = None in machines or any(not job.resources for job in jobs)
    query = OfferQuery() if every else OfferQuery(accelerators=tuple(sorted(one for one in machines if one)))
    sandbox = any(wants_sandbox(job) for job in jobs)
    usable = [
        offer
        for offer in look.offers(query)
        if offer.engine is not None and offer.has_valid_price() and (sandbox or offer.provider != SANDBOX)
    ]
    known = risks(broker, query)
    groups: dict[tuple[str | None, int, CapacityType], list[Offer]] = defaultdict(list)
    for offer in usable:
        groups[offer.accelerator, offer.count, offer.capacity_type].append(offer)
    chosen = [offer for group in groups.values() for offer in _chosen(group)]
    return tuple({offer.pool: _pool(look, offer, known, time) for offer in chosen}.values())


def _chosen(group: Iterable[Offer]) -> list[Offer]:
    offers = sorted(group, key=lambda offer: (offer.price or Money.ZERO, offer.id))
    held = [offer for offer in offers if offer.may_be_free()]
    return held + [offer for offer in offers if not offer.may_be_free()][:_CHEAPEST]


def _pool(look: StoreReader, offer: Offer, known: Hazard, time: tuple[datetime, datetime]) -> WorkloadPool:
    """The offer with its recorded prices, at most one an hour."""
    since, until = time
    prices: dict[int, int] = {}
    for at, price in look.price_series(offer, since, until):
        if at > until:
            break
        second = max(int((at - since).total_seconds()), 0)
        prices[-(-second // HOUR) * HOUR] = price.micros
    changes = [
        (second, micros)
        for (second, micros), before in zip(prices.items(), [None, *prices.values()], strict=False)
        if micros != before
    ]
    recorded = tuple(changes) if len(changes) > 1 else ()
    first = Money(changes[0][1]) if changes else offer.price
    made = replace(
        offer, engine=ENGINE, price=first, as_of=since, max_age=None, interruption_rate=known(offer), left=None
    )
    return WorkloadPool(made, recorded=recorded)
