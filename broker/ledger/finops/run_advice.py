"""Advice from what runs measured: cards larger than the work, accelerators that wait for data or stand idle, work that
fits on fewer held cards, and work that spot machines could have done. Pure. Nothing is advised on runs without samples,
except spot.

A month's attempts of one job name of one owner are judged together, as only those come back next month.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from math import ceil

from broker.core.job.jobs import Workload
from broker.core.market.accelerators import Accelerator, accelerator_names, is_part, lookup, relative_throughput, slices
from broker.core.market.offers import BOUGHT, CapacityType
from broker.core.market.price_basis import PriceBasis
from broker.core.values.figures import plural
from broker.core.values.money import Money
from broker.ledger.finops.advice import AdviceKind, MonthAdvice, advise, hours_text
from broker.ledger.finops.change import NOBODY
from broker.ledger.finops.units import HOUR, MeasuredAttempt, Targets, mean_use

CheapestPrice = Callable[[str, CapacityType], PriceBasis | None]
"""The current price at which that accelerator can be rented; None: unknown."""

MIN_WAITING = 0.10  # share of accelerator time without work while processors or disks were saturated
MIN_SAVING = 0.20  # share of the cost: less is not worth a change
MAX_MEMORY = 0.5  # share of a card's memory up to which a smaller card may do
MAX_SLOWDOWN = 4.0  # how many times as long a run may take on a smaller card
_SAMPLED = {"gpu", "gpu_memory"}
MAX_CHECKPOINT_GAP = timedelta(hours=1)
_HEADROOM = 0.9  # share of a card's memory, and of its time, that runs may use


def run_advice(attempts: Iterable[MeasuredAttempt], targets: Targets, cheapest: CheapestPrice) -> Iterable[MonthAdvice]:
    """The advice on a month's attempts, in no order."""
    by_subject: defaultdict[str, list[MeasuredAttempt]] = defaultdict(list)
    for attempt in attempts:
        if attempt.time > 0 and attempt.price is not None:
            by_subject[_about(attempt)].append(attempt)
    for about, runs in by_subject.items():
        measured = [run for run in runs if "gpu" in run.use]
        if measured:
            waits = _waiting_share(measured)
            yield from _idle_advice(about, measured, targets, waits)
            if waits >= MIN_WAITING:
                yield _waiting_advice(about, measured, waits)
            else:  # a card that waits for data looks larger than it is
                yield from _size_advice(about, measured, targets, cheapest)
        yield from _spot_advice(about, runs, cheapest)
    yield from _sharing_advice(by_subject)


def costs_by_job(attempts: Iterable[MeasuredAttempt]) -> dict[str, Money]:
    """The mean cost of a job of each name (USD, metered), by what its advice is about."""
    spent: defaultdict[str, Money] = defaultdict(lambda: Money.ZERO)
    jobs: defaultdict[str, set[str]] = defaultdict(set)
    for attempt in attempts:
        if attempt.spent is not None:
            spent[_about(attempt)] += attempt.spent
            jobs[_about(attempt)].add(attempt.job_id)
    return {about: amount.share(1, len(jobs[about])) for about, amount in spent.items()}


def _about(attempt: MeasuredAttempt) -> str:
    """``nlp / llm: train``"""
    return f"{attempt.owner}: {attempt.job}"


def _idle_advice(about: str, runs: Sequence[MeasuredAttempt], targets: Targets, waits: float) -> Iterable[MonthAdvice]:
    share = max(mean_use(runs, "gpu_idle") - waits, 0.0)
    if share <= targets.idle:
        return
    users = ", ".join(sorted({run.user for run in runs}))
    yield advise(
        AdviceKind.IDLE_RUN,
        about,
        _cost(runs).scaled(share),
        f"{hours_text(_time(runs) * share)} of {hours_text(_time(runs))} GPU-hours of {users} were idle (below 5 %), "
        f"{share:.0%} against a target of {targets.idle:.0%}",
        "let idle jobs stop with the guardrail idle_shutdown, and sessions with `session: {idle: 30m}`",
    )


def _waiting_share(runs: Sequence[MeasuredAttempt]) -> float:
    return mean_use(runs, "gpu_waits_cpu") + mean_use(runs, "gpu_waits_disk")


def _waiting_advice(about: str, runs: Sequence[MeasuredAttempt], waits: float) -> MonthAdvice:
    head = f"the GPU waited for data {waits:.0%} of {hours_text(_time(runs))} GPU-hours"
    if mean_use(runs, "gpu_waits_cpu") >= mean_use(runs, "gpu_waits_disk"):
        because = f"{head}: CPU at {mean_use(runs, 'cpu'):.0%} on average, saturated meanwhile"
        do = "prefetch and use more workers in the data loader, request more `cpus`, or decode and cache the data first"
    else:
        read = sum(run.use["disk_read"].mean * run.time for run in runs if "disk_read" in run.use) / _time(runs)
        because = f"{head}: its CPUs waited for disks, which gave {read:,.0f} MB/s"
        do = "prefetch, keep the data on a local disk, and pack small files into larger ones"
    return advise(AdviceKind.DATA_WAIT, about, _cost(runs).scaled(waits), because, do)


def _size_advice(
    about: str, runs: Sequence[MeasuredAttempt], targets: Targets, cheapest: CheapestPrice
) -> Iterable[MonthAdvice]:
    """On the accelerator that cost most; not on owned and reserved ones, which are paid anyhow."""
    by_card: defaultdict[str, list[MeasuredAttempt]] = defaultdict(list)
    for run in runs:
        if run.capacity_type not in BOUGHT and "gpu_memory" in run.use:
            by_card[run.accelerator].append(run)
    if not by_card:
        return
    name, own = max(by_card.items(), key=lambda item: (_cost(item[1]).micros, item[0]))
    card, busy = lookup(name), mean_use(own, "gpu")
    memory = max(run.use["gpu_memory"].peak for run in own)
    if busy >= targets.of(own[0].workload) or memory > MAX_MEMORY * card.memory_gib:
        return
    spent, kind = _cost(own), max(own, key=lambda run: run.time).capacity_type
    choices: list[tuple[int, str, PriceBasis, float]] = []
    for other in map(lookup, accelerator_names()):
        slowdown = _slowdown(card, other, busy, own[0].workload)
        if slowdown is None or memory > _HEADROOM * other.memory_gib or (basis := cheapest(other.name, kind)) is None:
            continue
        cost = basis.per_gpu_hour.share(_time(own), HOUR).scaled(slowdown)
        choices.append((cost.micros, other.name, basis, slowdown))
    if not choices or (best := min(choices, key=lambda choice: choice[:2]))[0] > spent.scaled(1 - MIN_SAVING).micros:
        return
    micros, smaller, price, slowdown = best
    longer = f", in about {slowdown:.1f} times the time" if slowdown > 1 else ""
    yield advise(
        AdviceKind.RIGHT_SIZE,
        about,
        spent - Money(micros),
        f"used {memory:.0f} of {card.memory_gib:.0f} GiB of the {name} at {busy:.0%} in {hours_text(_time(own))} "
        f"GPU-hours, {spent.rounded()}: one {smaller} at {price.per_gpu_hour.rounded()} per GPU-hour would do{longer}, "
        f"{Money(micros).rounded()} ({price.origin})",
        f"run a short job on {smaller} and compare the cost of its work, then request `accelerators: {smaller}`",
    )


def _sharing_advice(by_subject: Mapping[str, Sequence[MeasuredAttempt]]) -> Iterable[MonthAdvice]:
    """Of a team's jobs that had one card that is owned or reserved: which would fit on fewer, side by side."""
    groups: defaultdict[tuple[str | None, str], dict[str, list[MeasuredAttempt]]] = defaultdict(dict)
    for about, attempts in by_subject.items():
        for run in attempts:
            is_card = run.gpus == 1 and not is_part(run.accelerator)
            if run.capacity_type in BOUGHT and is_card and run.use.keys() >= _SAMPLED:
                groups[run.team, run.accelerator].setdefault(about, []).append(run)
    for (team, name), jobs in groups.items():
        card = lookup(name)
        needs = {
            about: (max(run.use["gpu_memory"].peak for run in runs), mean_use(runs, "gpu"))
            for about, runs in jobs.items()
        }
        choices = []
        for part, number, memory, compute in _parts(card):
            small = [
                about
                for about, need in needs.items()
                if need[0] <= _HEADROOM * memory and need[1] <= _HEADROOM * compute
            ]
            most, saved = _side_by_side([run for about in small for run in jobs[about]], number)
            choices.append((saved, most, number, part, sorted(small)))
        saved, most, number, part, small = max(choices, key=lambda choice: choice[0], default=(0, 0, 1, "", []))
        if not saved:
            continue
        runs = [run for about in small for run in jobs[about]]
        yield advise(
            AdviceKind.SHARE_CARDS,
            f"{team or NOBODY}: {name}",
            _cost(runs).scaled(saved / _time(runs)),
            f"{most} jobs would fit on {plural(ceil(most / number), 'card')} at a time: {', '.join(small)} used at most"
            f" {max(needs[about][0] for about in small):.0f} of {card.memory_gib:.0f} GiB and"
            f" {max(needs[about][1] for about in small):.0%} of one {name} each",
            f"cut some cards, and request `accelerators: {part}`"
            if is_part(part)
            else f"where Slurm has shards, request `accelerators: {part}` with `sharing: soft`",
        )


def _parts(card: Accelerator) -> list[tuple[str, int, float, float]]:
    """Its slices, else a half that software shares: the request, how many of one card, GiB, and share of compute."""
    parts = [
        (name, int(1 / max(float(memory), compute) + 0.001), lookup(name).memory_gib, compute)
        for name, memory in slices(card.name)
        if (compute := relative_throughput(name, card.name))
    ]
    return parts or [(f"{card.name}:0.5", 2, card.memory_gib / 2, 0.5)]


def _side_by_side(runs: Iterable[MeasuredAttempt], number: int) -> tuple[int, int]:
    """The most runs on one card each that ran at a time, and the milliseconds of cards that they would have left free
    with ``number`` on a card."""
    most = running = saved = last = 0
    for at, change in sorted(edge for run in runs for edge in ((run.begin, 1), (run.begin + run.time, -1))):
        saved += (running - ceil(running / number)) * (at - last)
        running, last = running + change, at
        most = max(most, running)
    return most, saved


def _slowdown(card: Accelerator, other: Accelerator, busy: float, workload: str) -> float | None:
    """How many times as long work that keeps ``card`` busy for that share of the time takes on ``other``; None:
    unknown, too slow, or other software. Inference is bound by memory bandwidth, other work by compute
    (`relative_throughput`)."""
    is_inference = workload == Workload.INFERENCE
    own, theirs = (card_data.bandwidth_gb_s if is_inference else card_data.tflops_16bit for card_data in (card, other))
    if other.name == card.name or other.vendor != card.vendor or not own or not theirs:
        return None
    if other.inference_only and not is_inference:
        return None
    slowdown = max(1.0, busy * own / theirs)
    return slowdown if slowdown <= MAX_SLOWDOWN else None


def _spot_advice(about: str, runs: Sequence[MeasuredAttempt], cheapest: CheapestPrice) -> Iterable[MonthAdvice]:
    could, gap, cost, prices = list[MeasuredAttempt](), timedelta(0), Money.ZERO, dict[str, str]()
    for run in runs:
        if run.capacity_type is not CapacityType.ON_DEMAND or not run.may_use_spot:
            continue
        if run.checkpoint_gap is None or run.checkpoint_gap > MAX_CHECKPOINT_GAP:
            continue
        basis = cheapest(run.accelerator, CapacityType.SPOT)
        if basis is not None and run.price is not None and basis.per_gpu_hour <= run.price.scaled(1 - MIN_SAVING):
            could.append(run)
            prices[run.accelerator] = basis.origin
            cost += basis.per_gpu_hour.share(run.time, HOUR)
            gap = max(gap, run.checkpoint_gap)
    if could:
        spent, every = _cost(could), f"{gap.total_seconds() / 60:.0f} min"
        yield advise(
            AdviceKind.SPOT,
            about,
            spent - cost,
            f"{hours_text(_time(could))} GPU-hours on demand could have run on spot (checkpoints every {every}): "
            f"{cost.rounded()} instead of {spent.rounded()}; an interruption repeats {every} at most "
            f"({'; '.join(prices.values())})",
            "allow spot in the job file: `checkpoint: {every: …}`, and no `capacity_types` without spot",
        )


def _cost(runs: Iterable[MeasuredAttempt]) -> Money:
    return sum((run.spent for run in runs if run.spent is not None), Money.ZERO)


def _time(runs: Iterable[MeasuredAttempt]) -> int:
    return sum(run.time for run in runs)
