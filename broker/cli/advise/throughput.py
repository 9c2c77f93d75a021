"""`gpubroker advise throughput`: tokens per second and their limit, training time, MFU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.advise import inputs
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.economics.kinds import Precision

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from broker.app.results.training_advice import ThroughputAdvice
    from broker.core.values.accelerators import Accelerator

EXAMPLES = examples(
    "gpubroker advise throughput --gpu H100 --parameters 7B --precision fp16 --batch 1",
    "gpubroker advise throughput --gpu A100-80GB --parameters 7B --tokens 1T --gpus 64 --mfu 0.4",
    "gpubroker advise throughput --gpu H100 --parameters 7B --gpus 8 --measured 52000 --json",
)


@dataclass(frozen=True)
class ThroughputOptions:
    """The options of `throughput`."""

    model: inputs.ModelOptions
    gpu: inputs.OneGpu = "H100"
    precision: Annotated[Precision, typer.Option(help="Precision of the weights.")] = Precision.FP16
    model_gb: Annotated[float | None, typer.Option(help="Measured size of the weights in GB (10^9 bytes).")] = None
    active: Annotated[
        float | None,
        typer.Option(
            "--active-parameters",
            parser=inputs.count,
            metavar="COUNT",
            help="Active parameters of a mixture of experts.",
        ),
    ] = None
    batch: Annotated[int, typer.Option(help="Sequences generated at once.")] = 1
    sequence: Annotated[int, typer.Option("--context", help="Tokens per sequence, for the KV cache.")] = 0
    efficiency: Annotated[float | None, typer.Option(help="Achieved share of peak performance. Default: 0.7.")] = None
    gpus: Annotated[int, typer.Option(help="GPUs that hold one copy of the model; in training, all GPUs.")] = 1
    tokens: Annotated[
        float | None, typer.Option(parser=inputs.count, metavar="COUNT", help="Number of training tokens, such as 1T.")
    ] = None
    mfu: Annotated[float | None, typer.Option(help="MFU in training. Default: 0.4.")] = None
    measured: Annotated[float | None, typer.Option(help="Measured training tokens/s; prints the MFU.")] = None


@gathered
def throughput(context: typer.Context, given: ThroughputOptions, as_json: AsJson = False) -> None:
    """Estimate how fast a GPU generates tokens, and whether memory bandwidth or compute is the limit (roofline).

    With --tokens, also the training time; with --measured, the model FLOPs utilisation (MFU) of a running training.
    """
    from broker.app.results.training_advice import ThroughputAdvice
    from broker.core.values.accelerators import lookup
    from broker.economics import throughput as economics
    from broker.economics.units import GB, positive, whole

    terminal = Terminal.of(context)
    thumb = inputs.measured(terminal, inputs.thumb(context))
    card = lookup(given.gpu)
    parameters: float | None = None
    derived: tuple[str, ...] = ()
    if not given.model.known and given.model_gb is not None:
        parameters = positive("model size", given.model_gb, "GB") * GB / given.precision.bytes
        derived = (f"{parameters / 1e9:.3g}B parameters, from {given.model_gb:g} GB in {given.precision}",)
    model = given.model.subject(parameters, given.active)
    whole("context", given.sequence, least=0, most=10**8)
    cache = model.shape.kv_bytes_per_token(2) * given.sequence if model.shape else 0.0
    if given.sequence and model.shape is None:
        derived += ("the KV cache is not counted: give --layers, --kv-heads and --head-dim, or --config",)
    found = economics.decode(
        card,
        parameters=model.active,
        precision=given.precision,
        batch=given.batch,
        efficiency=given.efficiency,
        model_bytes=model.parameters * given.precision.bytes if given.model_gb is None else given.model_gb * GB,
        cache_bytes=cache,
        gpus=given.gpus,
        shape=None if model.kv_only else model.shape,
        rules=thumb,
    )
    training = None
    if given.tokens is not None:
        training = economics.training_time(
            card,
            parameters=model.active,
            tokens=given.tokens,
            gpus=given.gpus,
            mfu=given.mfu,
            precision=_training(given.precision),
            rules=thumb,
        )
    advice = ThroughputAdvice.from_parts(
        found,
        gpu=card.name,
        gpus=given.gpus,
        parameters=model.parameters,
        precision=given.precision,
        batch=given.batch,
        training_tokens=given.tokens,
        training=training,
        measured_mfu=_achieved(card, model.active, given.gpus, given.measured, given.precision),
        assumptions=[*model.notes, *derived, *found.assumptions],
    )
    terminal.result(advice, lambda: _screen(advice))


def _training(precision: Precision) -> Precision:
    """The precision of training: FP8 if the weights are FP8, else 16 bits."""
    return precision if precision is Precision.FP8 else Precision.BF16


def _achieved(
    card: Accelerator, parameters: float, gpus: int, measured: float | None, precision: Precision
) -> float | None:
    from broker.economics.throughput import measured_mfu, peak_tflops

    if measured is None:
        return None
    peak = peak_tflops(card, _training(precision))
    if peak is None:
        raise InvalidInput(f"the peak performance of {card.name} is not known, so its MFU cannot be computed")
    return measured_mfu(measured, parameters, gpus, peak)


def _screen(found: ThroughputAdvice) -> Iterator[RenderableType]:
    from broker.cli.advise import view
    from broker.cli.render.formats import plural

    title = f"{view.big(found.parameters)} in {found.precision} on {found.gpus} × {found.gpu}"
    training = found.training
    if found.tokens_per_second is None:
        yield view.heading(title, ": does not fit, so its speed is unknown")
    elif training is None:
        rows = [
            ("speed", f"{found.tokens_per_second:,.1f} tokens/s over {plural(found.batch, 'sequence')}"),
            ("latency", f"{found.latency_per_token_ms:,.2f} ms per token"),
            ("limited by", "memory bandwidth" if found.bound == "memory" else "compute"),
        ]
        if found.ridge_point:
            rows.append(("ridge point", f"{found.ridge_point:,.0f} FLOP/byte"))
        yield view.heading(title)
        yield view.figures(rows)
    if training is not None:
        yield view.heading("Training", f" on {view.big(found.training_tokens or 0)} tokens")
        yield view.figures(
            [
                ("compute", f"{training.flops:.3g} FLOPs (6 × parameters × tokens)"),
                ("time", f"{training.hours:,.1f} h ({training.hours / 24:,.1f} days) on {found.gpus} GPUs"),
                ("GPU-hours", f"{training.gpu_hours:,.0f}"),
                ("speed", f"{training.tokens_per_second:,.0f} tokens/s at an MFU of {training.mfu:.0%}"),
            ]
        )
    if found.measured_mfu is not None:
        yield view.figures([("measured MFU", f"{found.measured_mfu:.1%}")])
    yield from view.assumptions(found.assumptions)
