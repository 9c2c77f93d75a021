"""Predictions of plans compared with outcomes, and measurements of finished runs. Amounts USD, times hours."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from statistics import median

NEAR = 0.25  # a prediction counts as right within a quarter of the outcome


class PredictionKind(StrEnum):
    """The kinds of prediction of a plan."""

    COST = "cost"
    TIME = "time"
    PRICE = "price of a GPU-hour"
    INTERRUPTIONS = "interruptions"


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A successful run: the prediction of its first plan, and the outcome.

    ``accelerator``: of all its machines; empty if they differed. ``usd``: including prepaid hours. ``expected_*``: None
    if not predicted because the amount of work was unknown. ``hours``: from the first launch to the end
    of the last machine; ``gpu_hours``: of all its machines, ``spot_gpu_hours`` and ``spot_interruptions``: of those
    that were spot, whatever the first plan was. ``tokens``: total reported by its program, ``generated``: those of them
    that it generated; ``parameters`` and ``trains``: of the model named in its job file.
    """

    job_id: str
    accelerator: str
    usd: float
    hours: float
    gpu_hours: float
    interruptions: int
    spot_gpu_hours: float = 0.0
    spot_interruptions: int = 0
    expected_usd: float | None = None
    expected_hours: float | None = None
    expected_usd_per_gpu_hour: float | None = None
    expected_interruptions: float | None = None
    parameters: float | None = None
    trains: bool = True
    tokens: float | None = None
    generated: float | None = None

    @property
    def usd_per_gpu_hour(self) -> float | None:
        return self.usd / self.gpu_hours if self.gpu_hours else None


@dataclass(frozen=True, slots=True)
class PredictionError:
    """The error of one ``kind`` of prediction over ``runs``: the totals ``predicted`` and ``happened`` (for prices, the
    means), the median of happened ÷ predicted, the mean and the worst absolute error as a share of the prediction, and
    the share of runs ``within`` 25 %. For interruptions, which are rare, only the totals and their ratio."""

    kind: PredictionKind
    runs: int
    predicted: float
    happened: float
    ratio: float | None
    mean_error: float | None
    worst: float | None
    within: float | None


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """Measurements of finished ``runs`` on an accelerator. ``mfu``: model FLOPS utilization, of ``mfu_runs``
    that train a known model and reported tokens; ``tokens_per_second`` of one GPU, of ``token_runs``;
    ``interruptions_per_1000_hours`` of spot GPUs, of ``spot_runs``, None without spot hours; ``usd_per_gpu_hour``: as
    charged."""

    accelerator: str
    runs: int
    gpu_hours: float
    usd_per_gpu_hour: float
    mfu: float | None
    mfu_runs: int
    tokens_per_second: float | None
    token_runs: int
    interruptions_per_1000_hours: float | None
    spot_runs: int


@dataclass(frozen=True, slots=True)
class ModelSpeed:
    """The speed of finished ``runs`` of a model with that many ``parameters`` on an accelerator: the ``share`` of the
    peak, from the reported tokens, at six operations per parameter and token in training, else two."""

    accelerator: str
    parameters: float
    trains: bool
    share: float
    runs: int


@dataclass(frozen=True, slots=True)
class ServedSpeed:
    """The speed of finished ``runs`` of inference with a model of so many ``parameters`` on an accelerator: tokens per
    second of one GPU, read and generated ones together. ``generated_share``: the share of generated tokens; None if no
    run reported it."""

    accelerator: str
    parameters: float
    tokens_per_second: float
    generated_share: float | None
    runs: int


def prediction_errors(runs: Iterable[RunOutcome]) -> tuple[PredictionError, ...]:
    """The error of each kind of prediction; kinds that no run predicted are omitted."""
    pairs = defaultdict[PredictionKind, list[tuple[float, float]]](list)
    for run in runs:
        for kind, expected, happened in (
            (PredictionKind.COST, run.expected_usd, run.usd),
            (PredictionKind.TIME, run.expected_hours, run.hours),
            (PredictionKind.PRICE, run.expected_usd_per_gpu_hour, run.usd_per_gpu_hour),
            (PredictionKind.INTERRUPTIONS, run.expected_interruptions, float(run.interruptions)),
        ):
            if expected is not None and happened is not None and isfinite(expected):
                pairs[kind].append((expected, happened))
    return tuple(_error(kind, pairs[kind]) for kind in PredictionKind if pairs[kind])


def _error(kind: PredictionKind, pairs: Sequence[tuple[float, float]]) -> PredictionError:
    predicted, happened = sum(value for value, _ in pairs), sum(value for _, value in pairs)
    if kind is PredictionKind.PRICE:
        predicted, happened = predicted / len(pairs), happened / len(pairs)
    if kind is PredictionKind.INTERRUPTIONS:
        ratio = happened / predicted if predicted else None
        return PredictionError(kind, len(pairs), predicted, happened, ratio, None, None, None)
    ratios = [after / before for before, after in pairs if before > 0]
    if not ratios:
        return PredictionError(kind, len(pairs), predicted, happened, None, None, None, None)
    errors = [abs(ratio - 1) for ratio in ratios]
    near = sum(1 / (1 + NEAR) <= ratio <= 1 + NEAR for ratio in ratios)
    return PredictionError(
        kind,
        len(pairs),
        predicted,
        happened,
        median(ratios),
        sum(errors) / len(errors),
        max(errors),
        near / len(ratios),
    )


def measured_speeds(runs: Iterable[RunOutcome], peaks: dict[str, float]) -> tuple[MeasuredSpeed, ...]:
    """By accelerator, most GPU-hours first, without runs on several kinds. ``peaks``: dense 16-bit
    FLOP/s of one, where known."""
    groups = defaultdict[str, list[RunOutcome]](list)
    for run in runs:
        if run.gpu_hours > 0 and run.accelerator:
            groups[run.accelerator].append(run)
    speeds = [_speed(name, group, peaks.get(name)) for name, group in groups.items()]
    return tuple(sorted(speeds, key=lambda speed: (-speed.gpu_hours, speed.accelerator)))


def model_speeds(runs: Iterable[RunOutcome], peaks: dict[str, float]) -> tuple[ModelSpeed, ...]:
    """By accelerator, size of the model, and whether it was trained; without shares above the peak, and without runs
    that generated tokens, which are limited by bandwidth."""
    groups = defaultdict[tuple[str, float, bool], list[RunOutcome]](list)
    for run in runs:
        if run.gpu_hours > 0 and run.accelerator in peaks and run.tokens and run.parameters and not run.generated:
            groups[run.accelerator, run.parameters, run.trains].append(run)
    speeds = (
        ModelSpeed(*key, _share_of_peak(group, peaks[key[0]]), len(group)) for key, group in sorted(groups.items())
    )
    return tuple(speed for speed in speeds if speed.share <= 1)


def served_speeds(runs: Iterable[RunOutcome]) -> tuple[ServedSpeed, ...]:
    """By accelerator and size of the model: of the runs that reported generated tokens, otherwise of all."""
    groups = defaultdict[tuple[str, float], list[RunOutcome]](list)
    for run in runs:
        if run.gpu_hours > 0 and run.accelerator and run.tokens and run.parameters and not run.trains:
            groups[run.accelerator, run.parameters].append(run)
    speeds = []
    for (accelerator, parameters), group in sorted(groups.items()):
        reporting = [run for run in group if run.generated] or group
        tokens = sum(run.tokens or 0 for run in reporting)
        generated = sum(run.generated or 0 for run in reporting)
        speed = tokens / (sum(run.gpu_hours for run in reporting) * 3600)
        share = min(generated / tokens, 1.0) if generated else None
        speeds.append(ServedSpeed(accelerator, parameters, speed, share, len(reporting)))
    return tuple(speeds)


def _share_of_peak(runs: Sequence[RunOutcome], peak: float) -> float:
    flops = sum((6 if run.trains else 2) * (run.parameters or 0) * (run.tokens or 0) for run in runs)
    return flops / (sum(run.gpu_hours for run in runs) * 3600 * peak)


def _speed(accelerator: str, runs: Sequence[RunOutcome], peak: float | None) -> MeasuredSpeed:
    hours = sum(run.gpu_hours for run in runs)
    reporting = [run for run in runs if run.tokens]
    trained = [run for run in reporting if run.trains and run.parameters]
    spot_hours = sum(run.spot_gpu_hours for run in runs)
    mfu = None
    if peak and trained:
        share = _share_of_peak(trained, peak)
        mfu = share if share <= 1 else None  # above the peak: the reported tokens or the job file's size are wrong
    return MeasuredSpeed(
        accelerator=accelerator,
        runs=len(runs),
        gpu_hours=hours,
        usd_per_gpu_hour=sum(run.usd for run in runs) / hours,
        mfu=mfu,
        mfu_runs=len(trained) if mfu is not None else 0,
        tokens_per_second=sum(run.tokens or 0 for run in reporting) / sum(run.gpu_hours * 3600 for run in reporting)
        if reporting
        else None,
        token_runs=len(reporting),
        interruptions_per_1000_hours=1000 * sum(run.spot_interruptions for run in runs) / spot_hours
        if spot_hours
        else None,
        spot_runs=sum(run.spot_gpu_hours > 0 for run in runs),
    )
