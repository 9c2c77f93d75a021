"""`gpubroker advise parallelism`: how to spread a model over cards, and what that asks of the machines on offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.advise import inputs
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.economics.memory import Method, Precision, Recomputation

if TYPE_CHECKING:
    from rich.console import RenderableType

    from broker.app.advise.machines import Supply
    from broker.economics.parallelism import ParallelPlan

EXAMPLES = examples(
    "gpubroker advise parallelism --parameters 70B --gpu H100 --gpus 64",
    "gpubroker advise parallelism --parameters 13B --method lora --gpu A10G --json",
    "gpubroker advise parallelism --parameters 7B --gpu RTX4090 --method qlora --gpus 4",
)


def parallelism(
    context: typer.Context,
    parameters: inputs.Parameters = None,
    config: inputs.Config = None,
    gpu: Annotated[str, typer.Option("--gpu", "-g", metavar="NAME", help="The accelerator.")] = "H100",
    gpus: Annotated[
        int | None, typer.Option("--gpus", help="How many are wanted for speed; as few as hold it if not given.")
    ] = None,
    method: Annotated[Method, typer.Option("--method", "-m", help="What is done with the model.")] = Method.ADAMW,
    precision: Annotated[Precision | None, typer.Option("--precision", help="Of the weights.")] = None,
    batch: Annotated[int, typer.Option("--batch", help="Sequences at once on one card.")] = 1,
    tokens: Annotated[int, typer.Option("--context", help="Tokens of each sequence.")] = 0,
    layers: inputs.Layers = None,
    hidden: inputs.Hidden = None,
    heads: inputs.Heads = None,
    kv_heads: inputs.KvHeads = None,
    head_dim: inputs.HeadDim = None,
    recompute: Annotated[
        Recomputation, typer.Option("--recompute", help="Which activations are computed again instead of kept.")
    ] = Recomputation.SELECTIVE,
    linked: Annotated[
        bool | None,
        typer.Option("--nvlink/--no-nvlink", help="Whether the cards are joined; if not given, as the offers say."),
    ] = None,
    price: inputs.Price = None,
    as_json: AsJson = False,
) -> None:
    """Which parallelism, with which degrees: memory per card, the interconnect needed, and whether it is on offer.

    The constraint it ends with goes into a job file as it is.
    """
    from broker.app.advise.machines import supply
    from broker.app.advise.subject import subject
    from broker.cli.advise.document import document
    from broker.core.accelerators import lookup
    from broker.economics.memory import estimate
    from broker.economics.parallelism import choose

    terminal = Terminal.of(context)
    thumb = inputs.thumb(context)
    card = lookup(gpu)
    model = subject(parameters, config, inputs.architecture(layers, hidden, heads, kv_heads, head_dim))
    needs = estimate(
        model.workload(method, precision, batch=batch, context=tokens, recomputation=recompute), rules=thumb
    )
    prices = inputs.market(terminal, price, card.name)
    chosen = choose(needs, card, linked=linked, gpus=gpus, rules=thumb)
    found = supply(prices, chosen)
    if linked is None and found.linked == 0 and found.offers:
        chosen = choose(
            needs, card, linked=False, gpus=gpus, rules=thumb
        )  # the card could, but no machine on offer does
        found = supply(prices, chosen)
    job = constraint(chosen)
    notes = (*model.notes, *needs.assumptions)
    if as_json:
        terminal.answer(document(chosen, needs_gib=needs.total_gib, supply=found, constraint=job, assumptions=notes))
    else:
        terminal.show(*_screen(chosen, found, job, notes))


def constraint(plan: ParallelPlan) -> dict[str, Any]:
    """What a job file says to get such machines."""
    job: dict[str, Any] = {"resources": {"accelerators": plan.machine}}
    if plan.num_nodes > 1:
        job["num_nodes"] = plan.num_nodes
    if plan.interconnect == "nvlink":
        job["constraints"] = {"interconnect": "nvlink"}
    return job


def _screen(plan: ParallelPlan, found: Supply, job: dict[str, Any], notes: tuple[str, ...]) -> list[RenderableType]:
    from rich.text import Text

    from broker.cli.advise import view
    from broker.cli.tables import hanging
    from broker.core.documents import print_document

    strategy = plan.strategy.value.replace("_", " ").replace("fsdp", "ZeRO-3 / FSDP")
    degrees = f"tensor {plan.tensor_parallel} × pipeline {plan.pipeline_parallel} × data {plan.data_parallel}"
    parts: list[RenderableType] = [
        view.heading(f"{strategy}", f" on {plan.gpus} × {plan.accelerator}"),
        hanging(Text(plan.why), 2),
        view.figures(
            [
                ("degrees", f"{degrees}{f', ZeRO-{plan.zero}' if plan.zero else ''}"),
                ("on each card", f"{plan.per_gpu_gib:.1f} of {plan.usable_gib:.1f} GiB usable"),
                ("interconnect", plan.interconnect if plan.interconnect != "none" else "any will do"),
                ("machines", f"{plan.num_nodes} × {plan.machine}"),
                ("memory", plan.memory),
                ("throughput", plan.throughput),
                ("latency", plan.latency),
                ("complexity", plan.complexity),
                ("on offer", found.says),
            ]
        ),
    ]
    parts += [hanging(Text.assemble(("warning: ", "yellow"), warning), 2) for warning in plan.warnings]
    parts += [view.heading("In a job file"), hanging(Text(print_document(job).rstrip()), 2)]
    parts += view.assumptions(notes)
    return parts
