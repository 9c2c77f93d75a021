"""`gpubroker advise parallelism`: distribute a model over GPUs, and which offered machines allow it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.advise import inputs
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.economics.kinds import Method, Precision, Recomputation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from broker.app.results.training_advice import ParallelismAdvice

EXAMPLES = examples(
    "gpubroker advise parallelism --parameters 70B --gpu H100 --gpus 64",
    "gpubroker advise parallelism --parameters 13B --method lora --gpu A10G --json",
    "gpubroker advise parallelism --parameters 7B --gpu RTX4090 --method qlora --gpus 4",
)


@dataclass(frozen=True)
class ParallelismOptions:
    """The options of `parallelism`."""

    model: inputs.ModelOptions
    gpu: inputs.OneGpu = "H100"
    gpus: Annotated[int | None, typer.Option(help="Number of GPUs. Default: the fewest that hold the model.")] = None
    method: Annotated[Method, typer.Option("--method", "-m", help="Training method, or inference.")] = Method.ADAMW
    precision: Annotated[Precision | None, typer.Option(help="Precision of the weights.")] = None
    batch: Annotated[int, typer.Option(help="Sequences per GPU at once.")] = 1
    tokens: Annotated[int, typer.Option("--context", help="Tokens per sequence.")] = 0
    recompute: Annotated[
        Recomputation | None,
        typer.Option(help="Activations recomputed instead of stored. Default: full for qlora, else selective."),
    ] = None
    linked: Annotated[
        bool | None,
        typer.Option("--nvlink/--no-nvlink", help="Whether the GPUs are linked. Default: as in the offers."),
    ] = None
    at: inputs.PriceOptions = inputs.ANY_PRICE


@gathered
def parallelism(context: typer.Context, given: ParallelismOptions, as_json: AsJson = False) -> None:
    """Choose a parallelism and its degrees: memory per GPU, required interconnect, and whether offers provide it.

    The printed constraint can be copied into a job file.
    """
    from broker.app.advise.machines import parallelism_advice
    from broker.core.values.accelerators import lookup
    from broker.economics.memory import estimate

    terminal = Terminal.of(context)
    thumb = inputs.thumb(context)
    card = lookup(given.gpu)
    model = given.model.subject()
    needs = estimate(
        model.workload(
            given.method, given.precision, batch=given.batch, context=given.tokens, recomputation=given.recompute
        ),
        rules=thumb,
    )
    prices = given.at.market(terminal, card.name)
    advice = parallelism_advice(needs, card, prices, thumb, gpus=given.gpus, linked=given.linked, notes=model.notes)
    terminal.result(advice, lambda: _screen(advice))


def _screen(plan: ParallelismAdvice) -> Iterator[RenderableType]:
    from rich.text import Text

    from broker.cli.advise import view
    from broker.cli.render.tables import hanging
    from broker.core.documents import print_document

    strategy = plan.strategy.value.replace("_", " ").replace("fsdp", "ZeRO-3 / FSDP")
    degrees = f"tensor {plan.tensor_parallel} × pipeline {plan.pipeline_parallel} × data {plan.data_parallel}"
    yield view.heading(f"{strategy}", f" on {plan.gpus} × {plan.accelerator}")
    yield hanging(Text(plan.why), 2)
    yield view.figures(
        [
            ("degrees", f"{degrees}{f', ZeRO-{plan.zero}' if plan.zero else ''}"),
            ("memory per GPU", f"{plan.per_gpu_gib:.1f} of {plan.usable_gib:.1f} GiB usable"),
            ("interconnect", plan.interconnect if plan.interconnect != "none" else "any"),
            ("machines", f"{plan.num_nodes} × {plan.machine}"),
            ("memory", plan.memory),
            ("throughput", plan.throughput),
            ("latency", plan.latency),
            ("complexity", plan.complexity),
            ("offers", plan.supply.says),
        ]
    )
    yield from (hanging(Text.assemble(("warning: ", "yellow"), warning), 2) for warning in plan.warnings)
    yield view.heading("For the job file")
    yield hanging(Text(print_document(plan.constraint).rstrip()), 2)
    yield from view.assumptions(plan.assumptions)
