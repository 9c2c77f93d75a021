"""The speed of a GPU with a model, the time of a training, and how both change with the number of GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from broker.app.advise.prices import CurrentPrices
from broker.core.errors import InvalidInput
from broker.core.market.accelerators import Accelerator, lookup
from broker.economics.assumptions import DEFAULTS, Assumptions, number_of
from broker.economics.figures import HIDDEN, Count, Hours, Share, Usd, count_text
from broker.economics.kinds import Precision
from broker.economics.memory import Subject
from broker.economics.scaling import ScalingCurve, ScalingModel, curve, fit
from broker.economics.throughput import (
    DecodeThroughput,
    TrainingTime,
    decode,
    measured_mfu,
    peak_tflops,
    training_precision,
    training_time,
)
from broker.economics.units import GB

_CLUSTER_SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)


@dataclass(frozen=True, slots=True)
class SpeedAdvice:
    """The speed of ``gpus`` accelerators. ``generation``: of tokens, by GPUs that hold one copy of the model;
    ``training``: of the stated tokens, on all of them; ``scaling``: time and cost by size of the cluster. Each is null
    where its inputs are not known; ``measured_mfu``: of a training whose speed was measured."""

    gpu: Annotated[str, HIDDEN]
    gpus: Annotated[int, HIDDEN]
    parameters: Annotated[Count | None, HIDDEN]
    precision: Annotated[Precision, HIDDEN]
    generation: DecodeThroughput | None
    training: TrainingTime | None
    measured_mfu: Share | None
    gpu_hours: Annotated[Hours | None, HIDDEN]
    usd_per_gpu_hour: Usd | None
    scaling: ScalingCurve | None
    assumptions: tuple[str, ...]

    @property
    def title(self) -> str:
        gpus_text = f"{self.gpus} × {self.gpu}"
        if self.parameters is None or self.generation is None:
            return f"{self.gpu_hours or 0:,.0f} GPU-hours on {self.gpu}"
        speed = self.generation.tokens_per_second
        model_text = f"{count_text(self.parameters)} in {self.precision} on {gpus_text}"
        return f"{model_text}: {f'{speed:,.1f} tokens/s' if speed else 'does not fit, so no speed is estimated'}"


def speed_advice(
    model: Subject | None,
    gpu: str,
    measurements: Sequence[str],
    prices: CurrentPrices,
    assumptions: Assumptions = DEFAULTS,
) -> SpeedAdvice:
    """The advice. ``measurements``: of a running training, its tokens/s, or for at least two numbers of GPUs
    ``GPUS:SPEED`` in any unit. Raises InvalidInput."""
    card, gpus = lookup(gpu), assumptions.gpus or 1
    precision = assumptions.precision or Precision.FP16
    notes: list[str] = []
    if model is None and assumptions.weights_gb is not None:
        parameters = assumptions.weights_gb * GB / precision.bytes
        model = Subject(parameters, parameters)
        notes.append(f"{parameters / 1e9:.3g}B parameters, from {assumptions.weights_gb:g} GB in {precision}")
    generation = None if model is None else decode(card, model, gpus, assumptions)
    if model is not None and generation is not None:
        notes = [*model.notes, *notes, *generation.assumptions]
    points = [text.partition(":") for text in measurements]
    training = single_gpu_time = None
    if model is not None and assumptions.tokens is not None:
        training, single_gpu_time = (
            training_time(card, parameters=model.active, tokens=assumptions.tokens, gpus=count, assumptions=assumptions)
            for count in (gpus, 1)
        )
        notes.append(f"6 × parameters × tokens at an {assumptions.mfu_text(card.name, model.active)}")
    work = assumptions.gpu_hours or (None if single_gpu_time is None else single_gpu_time.gpu_hours)
    if work is None and model is None:
        raise InvalidInput("the work is missing", hint="name the model, such as 7B, or give --assume gpu_hours=N")
    scaling, price = (None, None) if work is None else _scaling(card, work, points, prices, assumptions, notes)
    return SpeedAdvice(
        gpu=card.name,
        gpus=gpus,
        parameters=None if model is None else model.parameters,
        precision=precision,
        generation=generation,
        training=training,
        measured_mfu=_measured_mfu(card, model, gpus, points, assumptions),
        gpu_hours=work,
        usd_per_gpu_hour=price,
        scaling=scaling,
        assumptions=tuple(notes),
    )


def _measured_mfu(
    card: Accelerator,
    model: Subject | None,
    gpus: int,
    points: Sequence[tuple[str, str, str]],
    assumptions: Assumptions,
) -> float | None:
    """The MFU of a training whose tokens/s were measured."""
    single_speeds = [number for number, colon, _ in points if not colon]
    if not single_speeds or model is None:
        return None
    peak = peak_tflops(card, training_precision(assumptions))
    if peak is None:
        raise InvalidInput(f"the peak performance of {card.name} is not known, so its MFU cannot be computed")
    return measured_mfu(_number(single_speeds[0]), model.active, gpus, peak)


def _scaling(
    card: Accelerator,
    gpu_hours: float,
    points: Sequence[tuple[str, str, str]],
    prices: CurrentPrices,
    assumptions: Assumptions,
    notes: list[str],
) -> tuple[ScalingCurve | None, float | None]:
    """Time and cost by size, and the price of a GPU-hour; neither without a price."""
    by_size = [(int(_number(gpus)), _number(rate)) for gpus, colon, rate in points if colon]
    if by_size:
        model, residual = fit(by_size)
        notes.append(f"fitted to {len(by_size)} measurements; typical error of a speed-up {residual:.2g}")
    else:
        model, residual = ScalingModel(assumptions.serial_share, assumptions.pair_cost), None
        notes.append(
            f"scaling not measured: serial share {assumptions.serial_share * 100:.3g}%, communication cost per pair of "
            f"GPUs {assumptions.pair_cost * 100:.3g}% of a step"
        )
    per_machine = min(assumptions.gpus or assumptions.gpus_per_node, assumptions.gpus_per_node)
    quote = prices.quote(card.name, per_machine=per_machine) or prices.gpu_hour(card.name)
    if quote is None:
        notes.append(f"no price of {card.name} is known, so sizes are not compared: give --price")
        return None, None
    notes.append(f"${quote.usd_per_gpu_hour:.2f} per GPU-hour of {quote.machine} ({quote.basis})")
    scaling_curve = curve(
        model,
        gpu_hours=gpu_hours,
        usd_per_gpu_hour=quote.usd_per_gpu_hour,
        sizes=sorted({*_CLUSTER_SIZES, assumptions.gpus or 1}),
        residual=residual,
        assumptions=assumptions,
    )
    return scaling_curve, quote.usd_per_gpu_hour


def _number(text: str) -> float:
    try:
        return number_of(text)
    except ValueError as error:
        raise InvalidInput(
            f"expected tokens/s, or GPUS:SPEED such as 8:3000; got {text[:40]!r}", where="--measured"
        ) from error
