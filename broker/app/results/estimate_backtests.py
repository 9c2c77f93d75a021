"""Estimates of memory and speed, compared with measurements, as results."""

from __future__ import annotations

from typing import Self

from broker.app.results.values import FourDecimals, Result
from broker.backtest.memory.images import ImageComparison
from broker.backtest.memory.published import ErrorSummary, MemoryComparison
from broker.backtest.serving.published import ServingComparison


class MeasuredMemory(Result):
    """A published measurement and its estimate, GiB on each GPU. ``error``: estimate over measurement, less 1.
    ``seen``: it was looked at while the constants of the estimate were chosen."""

    model: str
    method: str
    precision: str
    batch: int
    context: int
    gpus: int
    measured_gib: float
    estimated_gib: float
    error: FourDecimals
    seen: bool
    source: str
    address: str

    @classmethod
    def of(cls, one: MemoryComparison) -> Self:
        use = one.measured.use
        return cls.from_parts(
            use,
            one.measured,
            method=str(use.method),
            precision=str(use.weights),
            gpus=one.measured.layout.gpus,
            measured_gib=one.measured.gib,
            estimated_gib=round(one.estimated_gib, 2),
            error=one.error,
        )


class MemoryErrors(Result):
    """Absolute errors of some rows: median, largest, and the share of rows within 10 % and 25 %."""

    rows: int
    median: FourDecimals
    worst: FourDecimals
    within_10_percent: FourDecimals
    within_25_percent: FourDecimals

    @classmethod
    def of(cls, summary: ErrorSummary) -> Self:
        return cls.from_parts(summary, within_10_percent=summary.within_10, within_25_percent=summary.within_25)


class MeasuredImages(Result):
    """A measurement of a network on images and its estimate. ``error``: of the memory, estimate over measurement, less
    1; ``speed_ratio``: estimated over measured images per second, null where none was measured. ``seen``: as of
    `MeasuredMemory`."""

    network: str
    method: str
    batch: int
    size: int
    checkpointing: bool
    measured_gib: float
    estimated_gib: float
    error: FourDecimals
    measured_per_second: float | None
    speed_ratio: float | None
    seen: bool
    source: str
    address: str

    @classmethod
    def of(cls, one: ImageComparison) -> Self:
        use = one.measured.use
        return cls.from_parts(
            use,
            one.measured,
            network=use.network.name,
            method=str(use.method),
            size=use.side,
            measured_gib=one.measured.gib,
            estimated_gib=round(one.estimated_gib, 2),
            error=one.error,
            measured_per_second=one.measured.items_per_second,
            speed_ratio=None if one.ratio is None else round(one.ratio, 3),
        )


class MemoryBacktest(Result):
    """Estimates of GPU memory against measurements, published ones and our own. ``unseen``: the rows that chose no
    constant. ``images`` and ``unseen_images``: of networks on images."""

    rows: list[MeasuredMemory]
    all: MemoryErrors
    unseen: MemoryErrors
    images: list[MeasuredImages]
    unseen_images: MemoryErrors


class MeasuredServing(Result):
    """A published speed of serving and its estimate, output tokens per second of the replica. ``ratio``: estimate over
    measurement, null where the estimate says that it does not fit. ``seen`` as in `MeasuredMemory`."""

    model: str
    accelerator: str
    gpus: int
    precision: str
    prompt_tokens: float
    output_tokens: float
    batch: int | None
    measured_tokens_per_second: float
    estimated_tokens_per_second: float | None
    ratio: float | None
    seen: bool
    source: str
    address: str

    @classmethod
    def of(cls, one: ServingComparison) -> Self:
        row = one.measured
        return cls.from_parts(
            row.model,
            row,
            model=row.name,
            precision=str(row.model.precision),
            measured_tokens_per_second=row.tokens_per_second,
            estimated_tokens_per_second=None if one.estimated is None else round(one.estimated, 1),
            ratio=None if one.ratio is None else round(one.ratio, 3),
        )


class ServingRatios(Result):
    """Estimate over measurement of some rows: median, smallest, largest, and the shares within a factor."""

    rows: int
    median: FourDecimals
    smallest: FourDecimals
    largest: FourDecimals
    within_1_25: FourDecimals
    within_2: FourDecimals


class ServingBacktest(Result):
    """Estimated speeds of serving against published ones. ``unseen``: the rows that chose no constant."""

    rows: list[MeasuredServing]
    all: ServingRatios
    unseen: ServingRatios
