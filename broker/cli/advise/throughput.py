"""`gpubroker advise throughput`: tokens per second and their limit, training time, MFU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli import completion
from broker.cli.advise import inputs
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.economics.memory import Precision

if TYPE_CHECKING:
    from broker.core.values.accelerators import Accelerator
    from broker.economics.throughput import TrainingTime

EXAMPLES = examples(
    "gpubroker advise throughput --gpu H100 --parameters 7B --precision fp16 --batch 1",
    "gpubroker advise throughput --gpu A100-80GB --parameters 7B --tokens 1T --gpus 64 --mfu 0.4",
    "gpubroker advise throughput --gpu H100 --parameters 7B --gpus 8 --measured 52000 --json",
)


def throughput(
    context: typer.Context,
    gpu: Annotated[
        str, typer.Option("--gpu", "-g", metavar="NAME", autocompletion=completion.gpus, help="Accelerator.")
    ] = "H100",
    parameters: inputs.Parameters = None,
    config: inputs.Config = None,
    precision: Annotated[Precision, typer.Option("--precision", help="Precision of the weights.")] = Precision.FP16,
    model_gb: Annotated[
        float | None, typer.Option("--model-gb", help="Measured size of the weights in GB (10^9 bytes).")
    ] = None,
    active: Annotated[
        float | None,
        typer.Option(
            "--active-parameters",
            parser=inputs.count,
            metavar="COUNT",
            help="Active parameters of a mixture of experts.",
        ),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", help="Sequences generated at once.")] = 1,
    sequence: Annotated[int, typer.Option("--context", help="Tokens per sequence, for the KV cache.")] = 0,
    layers: inputs.Layers = None,
    hidden: inputs.Hidden = None,
    heads: inputs.Heads = None,
    kv_heads: inputs.KvHeads = None,
    head_dim: inputs.HeadDim = None,
    efficiency: Annotated[
        float | None, typer.Option("--efficiency", help="Achieved share of peak performance. Default: 0.7.")
    ] = None,
    gpus: Annotated[
        int, typer.Option("--gpus", help="GPUs that hold one copy of the model; in training, all GPUs.")
    ] = 1,
    tokens: Annotated[
        float | None,
        typer.Option("--tokens", parser=inputs.count, metavar="COUNT", help="Number of training tokens, such as 1T."),
    ] = None,
    mfu: Annotated[float | None, typer.Option("--mfu", help="MFU in training. Default: 0.4.")] = None,
    measured: Annotated[
        float | None, typer.Option("--measured", help="Measured training tokens/s; prints the MFU.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate how fast a GPU generates tokens, and whether memory bandwidth or compute is the limit (roofline).

    With --tokens, also the training time; with --measured, the model FLOPs utilisation (MFU) of a running training.
    """
    from broker.app.advise.subject import subject
    from broker.app.results.training_advice import ThroughputAdvice
    from broker.core.values.accelerators import lookup
    from broker.economics import throughput as economics
    from broker.economics.units import GB, positive, whole

    terminal = Terminal.of(context)
    thumb = inputs.thumb(context)
    card = lookup(gpu)
    derived: tuple[str, ...] = ()
    if parameters is None and config is None and model_gb is not None:
        parameters = positive("model size", model_gb, "GB") * GB / precision.bytes
        derived = (f"{parameters / 1e9:.3g}B parameters, from {model_gb:g} GB in {precision}",)
    model = subject(parameters, config, inputs.architecture(layers, hidden, heads, kv_heads, head_dim), active)
    whole("context", sequence, least=0, most=10**8)
    cache = model.shape.kv_bytes_per_token(2) * sequence if model.shape else 0.0
    if sequence and model.shape is None:
        derived += ("the KV cache is not counted: give --layers, --kv-heads and --head-dim, or --config",)
    found = economics.decode(
        card,
        parameters=model.active,
        precision=precision,
        batch=batch,
        efficiency=efficiency,
        model_bytes=model.parameters * precision.bytes if model_gb is None else model_gb * GB,
        cache_bytes=cache,
        gpus=gpus,
        rules=thumb,
    )
    training = None
    if tokens is not None:
        training = economics.training_time(
            card,
            parameters=model.active,
            tokens=tokens,
            gpus=gpus,
            mfu=mfu,
            precision=_training(precision),
            rules=thumb,
        )
    achieved = _achieved(card, model.active, gpus, measured, precision)
    notes = (*model.notes, *derived, *found.assumptions)
    if as_json:
        told = {"gpu": card.name, "gpus": gpus, "parameters": model.parameters, "precision": precision, "batch": batch}
        terminal.answer(
            ThroughputAdvice.from_parts(
                found, **told, training=training, measured_mfu=achieved, assumptions=list(notes)
            )
        )
        return
    from broker.cli.advise import view

    title = f"{view.big(model.parameters)} in {precision} on {gpus} × {card.name}"
    if found.tokens_per_second is None:
        terminal.show(view.heading(title, ": does not fit, so its speed is unknown"))
    elif training is None:
        rows = [
            ("speed", f"{found.tokens_per_second:,.1f} tokens/s over {batch} sequence{'s' * (batch != 1)}"),
            ("latency", f"{found.latency_per_token_ms:,.2f} ms per token"),
            ("limited by", "memory bandwidth" if found.bound == "memory" else "compute"),
        ]
        if found.ridge_point:
            rows.append(("ridge point", f"{found.ridge_point:,.0f} FLOP/byte"))
        terminal.show(view.heading(title), view.figures(rows))
    if training is not None:
        terminal.show(*_training_screen(training, tokens or 0.0, gpus))
    if achieved is not None:
        terminal.show(view.figures([("measured MFU", f"{achieved:.1%}")]))
    terminal.show(*view.assumptions(notes))


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


def _training_screen(training: TrainingTime, tokens: float, gpus: int) -> list[Any]:
    from broker.cli.advise import view

    return [
        view.heading("Training", f" on {view.big(tokens)} tokens"),
        view.figures(
            [
                ("compute", f"{training.flops:.3g} FLOPs (6 × parameters × tokens)"),
                ("time", f"{training.hours:,.1f} h ({training.hours / 24:,.1f} days) on {gpus} GPUs"),
                ("GPU-hours", f"{training.gpu_hours:,.0f}"),
                ("speed", f"{training.tokens_per_second:,.0f} tokens/s at an MFU of {training.mfu:.0%}"),
            ]
        ),
    ]
