"""What a person should know about a plan beside its figures: one sentence each, with what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta

from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.job.reasons import Reason, Rejection
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.placement.conditions import Conditions
from broker.placement.formats import gigabytes, hours, hours_of, span
from broker.placement.pricing.checkpoints import daly_interval
from broker.placement.pricing.preemption_notice import NOTICE
from broker.placement.pricing.run_model import ASSUMED_WORK, Effort
from broker.placement.pricing.storage_cost import MONTH
from broker.placement.pricing.time_value import RENTED
from broker.placement.strategy.live import changeover_of, is_spot, seconds_on

_WORTH_A_WORD = Money(1_000_000)
# What wastes this much more of the time than need be is worth a warning.
_WORTH_A_WARNING = 0.05


def notes(
    job: Job,
    effort: Effort,
    conditions: Conditions,
    placements: Sequence[Placement],
    rejections: Sequence[Rejection],
    left: timedelta | None = None,
) -> tuple[str, ...]:
    """Sentences about the job, then about the best placement, then about offers that were left out. ``left``: time to
    the deadline, None without one."""
    best = placements[0] if placements else None
    return (
        *_about_the_job(job, effort, conditions),
        *_about_the_store(effort, placements),
        *(_about_the_best(job, effort, conditions, best) if best else ()),
        *(_on_the_way(job, effort, conditions, placements, left) if left else ()),
        *_about_those_left_out(rejections),
    )


def _about_the_job(job: Job, effort: Effort, conditions: Conditions) -> Iterator[str]:
    if effort.work is None:
        promise = ", and its deadline cannot be promised" if job.deadline is not None else ""
        yield (
            "the job does not say how much work there is (`work:`): costs are for one hour, placements are ranked by "
            f"the price of a useful hour of a job of {ASSUMED_WORK:g} h, and there is no finish time{promise}"
        )
    if job.max_duration is None:
        yield (
            f"no `max_duration` in the job: the policy's default of {span(conditions.default_max_duration)} limits it"
        )
    if job.deadline is not None and job.value_of_time is not None:
        yield "the job has a `deadline` and a `value_of_time`: the deadline rules, what time is worth decides nothing"
    if not effort.checkpoints:
        yield "the job declares no checkpoints (`checkpoint:`): after an interruption it starts again from nothing"
    if job.data.sensitive:
        yield (
            "`data.sensitive` is recorded, but nothing acts on it: to keep the job from places, name those it may use "
            "(`constraints:`), or let a policy (`allowed_locations`)"
        )
    if job.data.location and job.data.size is None:
        yield "the size of the data is not given (`data.size`): moving it is not in the figures"
    if job.data.size and job.data.location is None:
        yield "where the data lies is not given (`data.location`): moving it is not in the figures"


def _about_the_store(effort: Effort, placements: Sequence[Placement]) -> Iterator[str]:
    """What moving checkpoints costs is unknown where nobody knows the place of their store. Rented machines never share
    this one's disk, and a store that charges for keeping is no disk either."""
    if not (placements and effort.checkpoints) or effort.store_location is not None:
        return
    elsewhere = (p.offer.capacity_type in RENTED and p.money is MoneyKind.CASH for p in placements)
    if effort.keeping is not None or any(elsewhere):
        size = "" if effort.size else ", and `checkpoint.size` how much that is"
        yield (
            "where run folders are stored is not known, so moving checkpoints there and back is not in the figures: "
            f"GPUBROKER_RUNS_LOCATION=provider/region says it (for S3 AWS_REGION, too){size}"
        )


def _on_the_way(
    job: Job, effort: Effort, conditions: Conditions, placements: Sequence[Placement], left: timedelta
) -> Iterator[str]:
    """Who ranks spot first and has a deadline is told that the strategy decides as it goes, and how it begins."""
    steady = next((placement for placement in placements if not is_spot(placement)), None)
    by_cost = not (job.ordered or conditions.capacity_order or conditions.by_carbon)
    if steady is None or effort.remaining is None or not is_spot(placements[0]) or not by_cost:
        return
    rate = max(placement.interruptions_per_hour for placement in placements if is_spot(placement))
    needed = timedelta(seconds=2 * changeover_of(job, conditions, rate))
    spare = left - timedelta(seconds=seconds_on(steady, effort.remaining))
    enough = f"{span(needed)} to spare (twice start-up, restart and what an interruption loses)"
    if spare < needed:
        yield (
            f"the deadline rules: a start on spot needs {enough}, and there are {span(max(spare, timedelta(0)))}: it "
            f"begins on {steady.offer.pool}, {steady.expected_cost.rounded()} expected"
        )
    else:
        yield (
            f"the deadline rules: place and time are decided anew while it runs; with less than {enough} it goes on "
            f"what nobody takes away; {span(spare)} are to spare now"
        )


def _about_the_best(job: Job, effort: Effort, conditions: Conditions, best: Placement) -> Iterator[str]:
    limit = job.max_duration or conditions.default_max_duration
    if best.duration is not None and best.duration > limit:
        needed = span(best.duration)
        yield f"warning: the best placement needs about {needed}, but the job is stopped after {span(limit)}"
    if effort.work is not None and job.max_cost is not None and best.expected_cost > job.max_cost:
        yield (
            f"the best placement is expected to cost {best.expected_cost.rounded()}, "
            f"but the job is paused at its `max_cost` of {job.max_cost.rounded()}"
        )
    if effort.checkpoints and best.interruptions_per_hour > 0 and effort.write > 0:
        yield from _interval(effort, best)
    if not effort.checkpoints and best.interruptions_per_hour > 0:
        yield from _would_pay(effort, best)
    yield from _on_notice(effort, best)
    yield from _left_behind(effort)
    stored_elsewhere = effort.store_location not in (None, best.offer.location)
    if effort.checkpoints and effort.size is None and stored_elsewhere:
        yield (
            f"checkpoints go to {effort.store_location} and their size is not given (`checkpoint.size`): "
            "sending them is not in the figures"
        )


def _interval(effort: Effort, best: Placement) -> Iterator[str]:
    between = 1 / best.interruptions_per_hour
    interval = daly_interval(effort.write, between)
    write = f"{hours(effort.write)} to write one" + ("" if effort.size else " (assumed)")
    facts = f"one interruption in {hours(between)} expected, {write}"
    if effort.interval is None:
        yield f"the best interval between checkpoints there is {hours(interval)} ({facts}); costs assume it"
        return
    wasted, least = 1 - best.useful_fraction, 1 - _useful_at(interval, effort, best)
    if wasted - least > _WORTH_A_WARNING:
        yield (
            f"warning: checkpoints every {hours(effort.interval)} waste {wasted:.0%} of the time there, "
            f"every {hours(interval)} {least:.0%} ({facts})"
        )
    else:
        best_is = f"the best interval is {hours(interval)} ({facts})"
        yield f"checkpoints every {hours(effort.interval)} are fine there; {best_is}"


def _on_notice(effort: Effort, best: Placement) -> Iterator[str]:
    """Whether a checkpoint that is written on notice can get to the store before the machine goes."""
    notice = NOTICE.get(best.offer.provider)
    if notice is None or best.offer.capacity_type is not CapacityType.SPOT or not effort.size:
        return
    if 2 * effort.write > hours_of(notice):
        yield (
            f"warning: a checkpoint of {gigabytes(effort.size)} takes about {hours(effort.write)} to write and as long "
            f"to upload, and {best.offer.provider} takes a machine back {span(notice)} after it says so: what is saved "
            "then may not get there, and the checkpoint before is what the job falls back to (the figures count on "
            "no more)"
        )


def _left_behind(effort: Effort) -> Iterator[str]:
    """What stays in the store when the job has ended, where that is worth a word."""
    if effort.keeping is None or not effort.size:
        return
    monthly = effort.keeping.cost(effort.size * effort.keep, MONTH)
    if monthly >= _WORTH_A_WORD:
        yield (
            f"its last {effort.keep} checkpoints (`checkpoint.keep`) stay when it has ended: "
            f"{monthly.rounded()} a month until `gpubroker jobs prune` lets them go"
        )


def _would_pay(effort: Effort, best: Placement) -> Iterator[str]:
    """What checkpoints would save a job that makes none; nothing where that is not worth the words."""
    interval = daly_interval(effort.write, 1 / best.interruptions_per_hour)
    with_them = _useful_at(interval, effort, best)
    if with_them - best.useful_fraction > _WORTH_A_WARNING:
        yield (
            f"warning: without checkpoints {1 - best.useful_fraction:.0%} of the time there is lost; "
            f"one every {hours(interval)} would make that {1 - with_them:.0%} "
            f"(one interruption in {hours(1 / best.interruptions_per_hour)} expected, "
            f"{hours(effort.write)} to write one assumed)"
        )


def _useful_at(interval: float, effort: Effort, there: Placement) -> float:
    """The part of the time there that would be progress with a checkpoint after each ``interval`` of useful hours."""
    start = effort.start_on(there.offer.capacity_type)
    return effort.run(there.throughput, there.interruptions_per_hour, interval, start).useful_fraction


def _about_those_left_out(rejections: Sequence[Rejection]) -> Iterator[str]:
    counts = Counter(rejection.reason for rejection in rejections)
    if number := counts[Reason.NO_ENGINE] + counts[Reason.ENGINE_NOT_INSTALLED]:
        yield f"{_offers(number)} would do, but no engine here runs jobs there: see `gpubroker doctor`"
    if number := counts[Reason.REFERENCE_PRICE]:
        yield (
            f"{_offers(number)} would do at a reference price; a policy with `allow_reference_prices: true` "
            "lets jobs be launched on those"
        )


def _offers(number: int) -> str:
    return "1 offer" if number == 1 else f"{number:,} offers"
