"""Notes on a plan: one sentence each, with the action to take."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta

from broker.core.job.jobs import Job, MachineRequest
from broker.core.job.placements import Placement
from broker.core.job.reasons import Reason, Rejection
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.figures import duration_in_hours, gigabytes, hours, hours_of
from broker.core.values.money import Money
from broker.core.values.units import print_duration
from broker.placement.feasibility import request_served
from broker.placement.pricing.conditions import Conditions
from broker.placement.pricing.data_cost import MONTH, UNKNOWN_PLACE, attaches_disk, disk_gib, rate_for
from broker.placement.pricing.run_model import ASSUMED_WORK, Effort, daly_interval
from broker.placement.pricing.shares import may_use_free_cpus
from broker.placement.pricing.time_value import RENTED
from broker.placement.strategy.live import changeover_of, is_spot, seconds_on

# A note mentions a storage cost of this much a month or more.
_NOTE_THRESHOLD = Money.usd(1)
# A note warns if at least this part of the billed time could be saved.
_WARNING_THRESHOLD = 0.05


def notes(
    job: Job, effort: Effort, conditions: Conditions, placements: Sequence[Placement], left: timedelta | None = None
) -> tuple[str, ...]:
    """What a person should know before the job is submitted: on the best placement, then on the job. ``left``: time to
    the deadline, None if there is none."""
    best = placements[0] if placements else None
    return (
        *(_about_the_best(job, effort, best) if best else ()),
        *(_about_slack(job, effort, conditions, placements, left) if left else ()),
        *_about_the_job(job, effort, best),
    )


def remarks(
    job: Job, effort: Effort, placements: Sequence[Placement], rejections: Sequence[Rejection]
) -> tuple[str, ...]:
    """What explains the figures of the plan, for who asks."""
    best = placements[0] if placements else None
    return (
        *_about_spot(job, effort),
        *_about_the_store(effort, placements),
        *(_about_the_figures(job, effort, best) if best else ()),
        *_about_rejected_offers(rejections),
    )


def basis(job: Job, best: Placement) -> Iterator[str]:
    """What a placement's costs and CPUs are counted on, in a few words each, where the job's file does not say it."""
    if _disk_bound(job, best):
        yield f"with disks of unknown price at an upper bound of {(best.offer.disk * best.nodes).rounded()}/h"
    if _cpus_of_the_machine(job, best):
        yield "with the CPUs that are free when it starts"


def _disk_bound(job: Job, best: Placement) -> bool:
    return attaches_disk(best.offer) and rate_for(best.offer, request_served(best.offer, job)).upper_bound


def _cpus_of_the_machine(job: Job, best: Placement) -> float:
    """How many CPUs has the divided machine of which the job gets those that are free; 0 if it gets a fixed number."""
    offer, whole = best.offer, best.offer.whole
    if whole is None or not may_use_free_cpus(offer, job) or not offer.has.milli_cpus < whole.milli_cpus:
        return 0
    return whole.cpus


def _about_the_job(job: Job, effort: Effort, best: Placement | None) -> Iterator[str]:
    if job.session is not None:
        yield f"a session: costs are for one hour; it ends when it is idle for {print_duration(job.session.idle)}"
        return
    if effort.work is None and (job.deadline is not None or (best is not None and best.rate)):
        promise = ", and no deadline can be guaranteed" if job.deadline is not None else ""
        length = "one hour" if job.max_duration is None else f"its `max_duration` of {print_duration(job.max_duration)}"
        yield (
            f"the job gives no amount of work (`work:`): costs are for {length}, ranking is by the price of a "
            f"useful hour of a {ASSUMED_WORK:g} h job, and the finish time is unknown{promise}"
        )
    if job.deadline is not None and job.value_of_time is not None:
        yield "the job has a `deadline` and a `value_of_time`: the deadline applies, the value of time is ignored"
    if job.data.sensitive:
        yield (
            "`data.sensitive` is recorded but restricts nothing by itself: limit the places in the job "
            "(`constraints:`) or in a policy (`allowed_locations`)"
        )
    yield from _about_data(job, effort, best.offer.location if best else None)


def _about_data(job: Job, effort: Effort, place: str | None) -> Iterator[str]:
    """What is assumed about the job's data because its file does not say."""
    if job.data.size is None and effort.data_size and effort.data_origins != (place,):
        yield (
            f"the size of the data is unknown: its transfer is priced for full disks, {gigabytes(effort.data_size)}; "
            "write `data.size: 50GB`"
        )
    if effort.data_size and UNKNOWN_PLACE in effort.data_origins:
        yield (
            "the location of the data is unknown: its transfer is priced at the highest rate, to your own machines at "
            "none; write `data.location: provider/region`"
        )
    if job.data.size is None and not effort.data_size and job.data.sensitive:
        yield (
            "size and location of the data are unknown, so transfer costs are not included; write `data: {location: "
            "provider/region, size: 50GB}`"
        )


def _about_spot(job: Job, effort: Effort) -> Iterator[str]:
    """A note that spot offers are left out although the job does not say so."""
    if job.resources and not effort.checkpoints and all(_excludes_spot(request) for request in job.resources):
        yield (
            "spot is off because the job has no `checkpoint:`; `use_spot: true` under `resources:` uses spot only, "
            "`capacity_types: [on_demand, spot]` both"
        )


def _excludes_spot(request: MachineRequest) -> bool:
    """Whether the request names capacity types, and spot is not one of them."""
    return bool(request.capacity_types) and CapacityType.SPOT not in request.capacity_types


def _about_the_store(effort: Effort, placements: Sequence[Placement]) -> Iterator[str]:
    """Without the store's location, checkpoint transfer costs are unknown. They matter if a machine is rented (it
    cannot share this machine's disk) or if the store has a storage rate (it is not a disk)."""
    if not (placements and effort.checkpoints) or effort.store_location is not None:
        return
    elsewhere = (p.offer.capacity_type in RENTED and p.money is MoneyKind.CASH for p in placements)
    if effort.keeping is not None or any(elsewhere):
        size = "" if effort.size else ", and `checkpoint.size` the size"
        yield (
            "the location of run folders is unknown, so checkpoint transfer costs are not included: set "
            f"GPUBROKER_RUNS_LOCATION=provider/region (for S3 also AWS_REGION){size}"
        )


def _about_slack(
    job: Job, effort: Effort, conditions: Conditions, placements: Sequence[Placement], left: timedelta
) -> Iterator[str]:
    """For a job with a deadline whose best placement is spot: its slack, and the slack at which the strategy leaves
    spot."""
    steady = next((placement for placement in placements if not is_spot(placement)), None)
    by_cost = not (job.ordered or conditions.capacity_order or conditions.by_carbon)
    if steady is None or effort.remaining is None or not is_spot(placements[0]) or not by_cost:
        return
    rate = max(placement.interruptions_per_hour for placement in placements if is_spot(placement))
    needed = timedelta(seconds=2 * changeover_of(job, conditions, rate))
    slack = left - timedelta(seconds=seconds_on(steady, effort.remaining))
    needed_slack = f"{duration_in_hours(needed)} of slack (twice start-up, restart and the loss of an interruption)"
    if slack < needed:
        yield (
            f"a start on spot needs {needed_slack}, and there are {duration_in_hours(max(slack, timedelta(0)))}: the "
            "job starts "
            f"on {steady.offer.pool}, expected cost {steady.expected_cost.rounded()}"
        )
    else:
        yield (
            f"{duration_in_hours(slack)} of slack; placement is reviewed while the job runs, and below "
            f"{needed_slack} it moves "
            "to uninterruptible capacity"
        )


def _about_the_best(job: Job, effort: Effort, best: Placement) -> Iterator[str]:
    limit = job.max_duration
    if best.duration is not None and limit is not None and best.duration > limit:
        needed = duration_in_hours(best.duration)
        yield (
            f"warning: the best placement needs about {needed}, but the job is stopped after {duration_in_hours(limit)}"
        )
    costs_cash = best.money is not MoneyKind.AMORTISED
    if costs_cash and effort.work is not None and job.max_cost is not None and best.expected_cost > job.max_cost:
        yield (
            f"the best placement is expected to cost {best.expected_cost.rounded()}, "
            f"but the job is paused at its `max_cost` of {job.max_cost.rounded()}"
        )
    if best.interruptions_per_hour > 0:
        yield from _wasteful_interval(effort, best) if effort.checkpoints else _without_checkpoints(effort, best)
    yield from _on_notice(effort, best)


def _about_the_figures(job: Job, effort: Effort, best: Placement) -> Iterator[str]:
    if effort.checkpoints and best.interruptions_per_hour > 0:
        yield from _interval(effort, best)
    yield from _kept_checkpoints(effort)
    yield from _about_its_disk(job, best)
    yield from _about_its_cpus(job, best)
    stored_elsewhere = effort.store_location not in (None, best.offer.location)
    if effort.checkpoints and effort.size is None and stored_elsewhere:
        yield (
            f"checkpoints go to {effort.store_location} but their size is unknown (`checkpoint.size`): upload "
            "costs are not included"
        )


def _about_its_cpus(job: Job, best: Placement) -> Iterator[str]:
    """What a job without accelerators and `cpus:` gets of a divided machine."""
    if cpus := _cpus_of_the_machine(job, best):
        yield (
            f"the job gets the CPUs of the machine's {cpus:g} that are free when it starts (OMP_NUM_THREADS), and "
            f"keeps {best.offer.has.cpus:g} from other jobs; its file does not say how many it needs: `cpus: N` in "
            "`resources:`"
        )


def _interval(effort: Effort, best: Placement) -> Iterator[str]:
    """The best checkpoint interval there, unless a note warns of the job's own."""
    if effort.write <= 0 or any(_wasteful_interval(effort, best)):
        return
    interval, facts = _best_interval(effort, best)
    if effort.interval is None:
        yield f"the best checkpoint interval there is {hours(interval)} ({facts}); costs assume it"
    else:
        best_is = f"the best interval is {hours(interval)} ({facts})"
        yield f"checkpoints every {hours(effort.interval)} are fine there; {best_is}"


def _wasteful_interval(effort: Effort, best: Placement) -> Iterator[str]:
    """A warning that the job's checkpoint interval wastes much time."""
    if effort.write <= 0 or effort.interval is None:
        return
    interval, facts = _best_interval(effort, best)
    wasted, least = 1 - best.useful_fraction, 1 - _useful_at(interval, effort, best)
    if wasted - least > _WARNING_THRESHOLD:
        yield (
            f"warning: checkpoints every {hours(effort.interval)} waste {wasted:.0%} of the time there; every "
            f"{hours(interval)} would waste {least:.0%} ({facts})"
        )


def _best_interval(effort: Effort, best: Placement) -> tuple[float, str]:
    """The best checkpoint interval there (hours), and the facts that it follows from."""
    between = 1 / best.interruptions_per_hour
    write = f"{hours(effort.write)} per checkpoint" + ("" if effort.size else " (assumed)")
    return daly_interval(effort.write, between), f"one interruption in {hours(between)} expected, {write}"


def _on_notice(effort: Effort, best: Placement) -> Iterator[str]:
    """Whether a checkpoint written after a preemption notice can be uploaded in time."""
    notice = NOTICE.get(best.offer.provider)
    if notice is None or best.offer.capacity_type is not CapacityType.SPOT or not effort.size:
        return
    if 2 * effort.write > hours_of(notice):
        yield (
            f"warning: a checkpoint of {gigabytes(effort.size)} takes about {hours(effort.write)} to write "
            f"and as long to upload, and {best.offer.provider} takes a machine back {duration_in_hours(notice)} "
            "after its "
            "notice: that checkpoint may be lost, and the job then resumes from the one before (costs assume "
            "this)"
        )


def _kept_checkpoints(effort: Effort) -> Iterator[str]:
    """The monthly cost of checkpoints that stay in the store after the job, if it is at least `_NOTE_THRESHOLD`."""
    if effort.keeping is None or not effort.size:
        return
    monthly = effort.keeping.cost(effort.size * effort.keep, MONTH)
    if monthly >= _NOTE_THRESHOLD:
        yield (
            f"the last {effort.keep} checkpoints (`checkpoint.keep`) stay after the job: {monthly.rounded()} "
            "per month until `gpubroker jobs prune` deletes them"
        )


def _about_its_disk(job: Job, best: Placement) -> Iterator[str]:
    """What the disk of a rented machine costs: a part of its price, or unknown."""
    if not attaches_disk(best.offer):
        return
    request = request_served(best.offer, job)
    default_note = "" if request and request.disk_gib else " (SkyPilot's default; `disk_size` sets another)"
    disks = f"disks of {disk_gib(request)} GB{default_note}"
    rate = rate_for(best.offer, request)
    if _disk_bound(job, best):
        bound = f"an upper bound of {best.offer.disk * best.nodes}/h"
        yield f"{disks} have no known list price there; prices and costs contain {bound}"
        return
    source = f"{rate.source}, {rate.as_of:%Y-%m-%d}"
    yield f"prices and costs contain {best.offer.disk * best.nodes}/h for {disks} (list price: {source})"


def _without_checkpoints(effort: Effort, best: Placement) -> Iterator[str]:
    """What interruptions cost a job that declares no checkpoints: a warning if these would save much of its time."""
    between = hours(1 / best.interruptions_per_hour)
    interval = daly_interval(effort.write, 1 / best.interruptions_per_hour)
    useful_fraction = _useful_at(interval, effort, best)
    if useful_fraction - best.useful_fraction > _WARNING_THRESHOLD:
        yield (
            f"warning: without checkpoints {1 - best.useful_fraction:.0%} of the time there is lost; with one "
            f"every {hours(interval)}, {1 - useful_fraction:.0%} (one interruption in {between} expected, "
            f"{hours(effort.write)} per checkpoint assumed)"
        )
    elif best.offer.capacity_type is CapacityType.SPOT:
        yield (
            f"the job has no `checkpoint:`, so costs assume that an interruption (one in {between} expected) loses its "
            "work; a program that saves its progress where it is told to resumes all the same"
        )


def _useful_at(interval: float, effort: Effort, placement: Placement) -> float:
    """The useful fraction of billed time with a checkpoint after every ``interval`` useful hours."""
    start = effort.start_on(placement.offer.capacity_type)
    return effort.run(placement.throughput, placement.interruptions_per_hour, interval, start).useful_fraction


def _about_rejected_offers(rejections: Sequence[Rejection]) -> Iterator[str]:
    counts = Counter(rejection.reason for rejection in rejections)
    if number := counts[Reason.NO_ENGINE] + counts[Reason.ENGINE_NOT_INSTALLED]:
        yield f"{_offers(number)} would match, but no installed engine runs jobs there: see `gpubroker doctor`"
    if number := counts[Reason.REFERENCE_PRICE]:
        yield (
            f"{_offers(number)} would match at a reference price; a policy with `allow_reference_prices: true` "
            "allows launches at these"
        )


def _offers(number: int) -> str:
    return "1 offer" if number == 1 else f"{number:,} offers"


# AWS: EC2 user guide, "Spot Instance interruption notices". Google Cloud: Compute Engine, "Preemption process". Azure:
# "Scheduled Events for Linux VMs", Preempt (minimum). The agent uses the same values.
NOTICE = {
    "aws": timedelta(minutes=2),
    "gcp": timedelta(seconds=30),
    "azure": timedelta(seconds=30),
}


LIMIT_FACTOR = 1.5  # the limit per expected time: estimates of work may be a third too low
_SPARE = timedelta(hours=1)  # in addition, for the starts and waits of short jobs
_FALLBACKS = 3  # uninterruptible placements that the hold covers too


def time_limit(job: Job, placements: Sequence[Placement], default: timedelta) -> timedelta:
    """The job's own limit. Without one, and with known work: `LIMIT_FACTOR` × the longest expected time on the best
    placement and its fallbacks, plus an hour, rounded up to minutes. Without known work: the policy's ``default``."""
    if job.max_duration is not None:
        return job.max_duration
    steady = [placement for placement in placements if placement.offer.capacity_type is not CapacityType.SPOT]
    expected = [
        placement.duration for placement in (*placements[:1], *steady[:_FALLBACKS]) if placement.duration is not None
    ]
    if not expected:
        return default
    limit = max(expected) * LIMIT_FACTOR + _SPARE
    return -(-limit // timedelta(minutes=1)) * timedelta(minutes=1)


def never_done(job: Job, placements: Sequence[Placement]) -> timedelta | None:
    """The shortest expected time, if the job's `max_duration` is shorter than that on every placement; else None."""
    needed = [placement.duration for placement in placements if placement.duration is not None]
    if job.max_duration is None or not needed or len(needed) < len(placements):
        return None
    return min(needed) if min(needed) > job.max_duration else None
