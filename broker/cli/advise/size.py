"""`gpubroker advise size`: GPU memory of a model, the accelerators that hold it, and their present cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.advise import inputs
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.economics.activations import Adapted, Recomputation
from broker.economics.memory import Method, Precision

if TYPE_CHECKING:
    from rich.console import RenderableType

    from broker.app.advise.sizing import PricedFit
    from broker.economics.memory import MemoryEstimate
    from broker.economics.rules import RulesOfThumb

EXAMPLES = examples(
    "gpubroker advise size --parameters 7B --method qlora --batch 8 --context 4096",
    "gpubroker advise size --parameters 70B --method qlora --batch 1 --context 512 --gpus 2 --zero 3 --offload",
    "gpubroker advise size --parameters 70B --method adamw --precision bf16 --zero 3 --gpus 64",
    "gpubroker advise size --parameters 70B --method inference --layers 80 --kv-heads 8 --head-dim 128 --batch 32 "
    "--context 8192 --json",
)
_ROWS = 12


@dataclass(frozen=True)
class SizeOptions:
    """The options of `size`."""

    model: inputs.ModelOptions
    method: Annotated[Method, typer.Option("--method", "-m", help="Training method, or inference.")] = Method.ADAMW
    precision: Annotated[
        Precision | None, typer.Option(help="Precision of the weights. Default: bf16; int4 for qlora.")
    ] = None
    batch: Annotated[int, typer.Option(help="Sequences per GPU at once.")] = 1
    tokens: Annotated[int, typer.Option("--context", help="Tokens per sequence.")] = 0
    kv_precision: Annotated[Precision, typer.Option(help="Precision of the KV cache.")] = Precision.FP16
    recompute: Annotated[
        Recomputation | None,
        typer.Option(help="Activations recomputed instead of stored. Default: full for qlora, else selective."),
    ] = None
    zero: Annotated[int | None, typer.Option(min=0, max=3, help="ZeRO stage; 3 is FSDP.")] = None
    offload: Annotated[
        bool, typer.Option("--offload", help="Weights, gradients and optimizer in the host's memory; needs --zero 3.")
    ] = False
    gradients_freed: Annotated[
        bool,
        typer.Option(
            "--gradients-freed", help="One GPU, no accumulation: gradients are freed before the next forward pass."
        ),
    ] = False
    gpus: Annotated[int | None, typer.Option(help="Number of GPUs. Default: the fewest that hold it.")] = None
    tp: Annotated[int | None, typer.Option(help="Tensor-parallel degree.")] = None
    pp: Annotated[int | None, typer.Option(help="Pipeline-parallel degree.")] = None
    headroom: Annotated[float | None, typer.Option(help="Share of GPU memory kept free. Default: 0.1.")] = None
    adapter: Annotated[
        float | None, typer.Option("--adapter-fraction", help="LoRA parameters as a share of all. Default: 0.01.")
    ] = None
    adapted: Annotated[
        Adapted, typer.Option(help="Linear layers with an adapter: all, or queries and values of the attention alone.")
    ] = Adapted.ALL
    gradient_bytes: Annotated[float | None, typer.Option(help="Gradient bytes per trained parameter. Default: 4.")] = (
        None
    )
    logit_bytes: Annotated[
        float | None, typer.Option(help="Bytes per logit in training. Default: 14; fused loss: 2.")
    ] = None
    activations: Annotated[
        float | None,
        typer.Option(
            "--activations-per-weight", help="Without --context: activation bytes per byte of weights. Default: 2."
        ),
    ] = None
    gpu: inputs.Gpus = None
    price: inputs.Price = None
    where: inputs.PlaceOptions = inputs.ANYWHERE


@gathered
def size(context: typer.Context, given: SizeOptions, as_json: AsJson = False) -> None:
    """Compute the GPU memory of a model, the accelerators that hold it, how many, and their present cost.

    Without a layout (--zero, --gpus, --tp, --pp) each accelerator is shown with its smallest layout; with one, only the
    accelerators that hold the model in that layout are shown. More GPUs than one machine has are whole machines of 8
    (rule of thumb `gpus_per_node`); the price is that of all of them.
    """
    from broker.app.advise.sizing import priced_fits
    from broker.app.results.training_advice import SizeAdvice, SizedAccelerator
    from broker.economics.memory import ParallelLayout, estimate, lower_bound_cards

    terminal = Terminal.of(context)
    thumb = inputs.thumb(context)
    rules = replace(
        thumb,
        memory_headroom=thumb.memory_headroom if given.headroom is None else given.headroom,
        adapter_fraction=thumb.adapter_fraction if given.adapter is None else given.adapter,
        gradient_bytes=thumb.gradient_bytes if given.gradient_bytes is None else given.gradient_bytes,
        logit_bytes=thumb.logit_bytes if given.logit_bytes is None else given.logit_bytes,
        activations_per_weight=thumb.activations_per_weight if given.activations is None else given.activations,
    )
    model = given.model.subject()
    workload = model.workload(
        given.method,
        given.precision,
        batch=given.batch,
        context=given.tokens,
        recomputation=given.recompute,
        kv_precision=given.kv_precision,
    )
    workload = replace(workload, gradients_freed=given.gradients_freed, adapted=given.adapted)
    fixed = any(value is not None for value in (given.zero, given.gpus, given.tp, given.pp))
    splits = (1 if given.tp is None else given.tp, 1 if given.pp is None else given.pp)
    layout = ParallelLayout(
        splits[0] * splits[1] if given.gpus is None else given.gpus, *splits, given.zero or 0, given.offload
    )
    needs = estimate(workload, layout, rules)
    only = given.gpu[0] if given.gpu and len(given.gpu) == 1 else None
    prices = inputs.market(terminal, given.price, only, given.where.places(terminal))
    found = priced_fits(needs, inputs.accelerators(given.gpu), prices, fixed=fixed, rules=rules)
    cards = lower_bound_cards(needs.total_gib, rules.reference_card_usable_gib)
    notes = (*model.notes, *needs.assumptions, f"{rules.memory_headroom:.0%} of GPU memory kept free")
    if not fixed:
        notes += (f"GPUs in ones, twos, … up to a machine of {rules.gpus_per_node}, then in whole machines",)
    if as_json:
        terminal.answer(
            SizeAdvice.from_parts(
                needs,
                parameters=model.parameters,
                method=given.method,
                precision=workload.weights,
                lower_bound_80gb_cards=cards,
                layout=layout,
                shape=needs.workload.shape,
                fits=[SizedAccelerator.of(row) for row in found],
                assumptions=list(notes),
            )
        )
    else:
        terminal.show(*_screen(terminal, needs, found, cards, notes, rules, fixed=fixed))


def _counted(gpus: int, per_machine: int) -> str:
    """``4``; ``16 (2 × 8)`` for several machines."""
    return str(gpus) if gpus <= per_machine else f"{gpus} ({gpus // per_machine} × {per_machine})"


def _screen(
    terminal: Terminal,
    needs: MemoryEstimate,
    found: tuple[PricedFit, ...],
    cards: int,
    notes: tuple[str, ...],
    rules: RulesOfThumb,
    *,
    fixed: bool,
) -> list[RenderableType]:
    from broker.cli.advise import view
    from broker.cli.render.tables import Column, fitted

    work = needs.workload
    title = f"{view.big(work.parameters)} {work.method}, weights in {work.weights}"
    parts: list[RenderableType] = [view.heading(title, f": {needs.total_gib:,.1f} GiB")]
    named = (
        ("weights", needs.weights_gib), ("gradients", needs.gradients_gib), ("optimizer", needs.optimizer_gib),
        ("activations", needs.activations_gib), ("logits and loss", needs.loss_gib),
        ("layer at work", needs.working_gib), ("driver and libraries", needs.runtime_gib),
        ("KV cache", needs.kv_cache_gib),
    )  # fmt: skip
    lines = [(name, f"{gib:>10,.1f} GiB") for name, gib in named if gib]
    if fixed:
        lines.append((f"on each of {needs.layout.gpus} GPUs", f"{needs.per_gpu_gib:>10,.1f} GiB"))
    lines.append(("80 GB GPUs at least", f"{cards:>10}"))
    parts.append(view.figures(lines))
    columns = (
        Column("accelerator"), Column("GPUs", align="right"), Column("GiB per GPU", 2, align="right"),
        Column("on-demand $/h", align="right"), Column("spot $/h", 1, align="right"), Column("cheapest", 3),
        Column("layout", 4), Column("caveats", 5),
    )  # fmt: skip
    rows = [
        (
            row.fit.accelerator,
            _counted(row.fit.count, rules.gpus_per_node),
            f"{row.fit.per_gpu_gib:.1f} of {row.fit.usable_gib:.0f}",
            view.dollars(row.on_demand.usd_per_hour if row.on_demand else None),
            view.dollars(row.spot.usd_per_hour if row.spot else None),
            view.quoted(row.cheapest) if row.cheapest else "no price known",
            row.fit.assumes,
            "; ".join(row.fit.caveats),
        )
        for row in found[:_ROWS]
    ]
    if rows:
        parts += fitted(terminal.out, columns, rows)
    else:
        parts.append(view.heading("No accelerator holds the model", " in this layout." if fixed else "."))
    if len(found) > _ROWS:
        parts.append(view.heading("", f"the cheapest {_ROWS} of {len(found)} are shown; use --json for all"))
    parts += view.assumptions(notes)
    return parts
