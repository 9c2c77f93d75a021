"""`gpubroker advise size`: GPU memory of a model, the accelerators that hold it, and their present cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.advise import inputs
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.economics.kinds import Adapted, Method, Precision, Recomputation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from broker.app.results.training_advice import SizeAdvice

EXAMPLES = examples(
    "gpubroker advise size --parameters 7B --method qlora --batch 8 --context 4096",
    "gpubroker advise size --parameters 70B --method qlora --batch 1 --context 512 --gpus 2 --zero 3 --offload",
    "gpubroker advise size --parameters 70B --method adamw --precision bf16 --zero 3 --gpus 64",
    "gpubroker advise size --parameters 70B --method inference --layers 80 --kv-heads 8 --head-dim 128 --batch 32 "
    "--context 8192 --json",
)


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
    compared: inputs.GpuOptions = inputs.ANY_GPU


@gathered
def size(context: typer.Context, given: SizeOptions, as_json: AsJson = False) -> None:
    """Compute the GPU memory of a model, the accelerators that hold it, how many, and their present cost.

    Without a layout (--zero, --gpus, --tp, --pp) each accelerator is shown with its smallest layout; with one, only the
    accelerators that hold the model in that layout are shown. More GPUs than one machine has are whole machines of 8
    (rule of thumb `gpus_per_node`); the price is that of all of them.
    """
    from broker.app.advise.compared import named_or_all
    from broker.app.advise.sizing import priced_fits
    from broker.app.results.training_advice import SizeAdvice
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
    compared = given.compared
    found = priced_fits(needs, named_or_all(compared.gpu), compared.market(terminal), fixed=fixed, rules=rules)
    notes = [*model.notes, *needs.assumptions, f"{rules.memory_headroom:.0%} of GPU memory kept free"]
    if not fixed:
        notes.append(f"GPUs in ones, twos, … up to a machine of {rules.gpus_per_node}, then in whole machines")
    advice = SizeAdvice.from_parts(
        needs,
        parameters=model.parameters,
        method=given.method,
        precision=workload.weights,
        lower_bound_80gb_cards=lower_bound_cards(needs.total_gib, rules.reference_card_usable_gib),
        layout_given=fixed,
        layout=layout,
        gpus_per_machine=rules.gpus_per_node,
        shape=needs.workload.shape,
        fits=found,
        assumptions=notes,
    )
    terminal.result(advice, lambda: _screen(terminal.out, advice))


def _screen(console: Console, found: SizeAdvice) -> Iterator[RenderableType]:
    from broker.app.results.advice_values import quoted
    from broker.app.results.training_advice import SizedAccelerator
    from broker.cli.advise import view
    from broker.cli.render.tables import ValueColumn

    title = f"{view.big(found.parameters)} {found.method}, weights in {found.precision}"
    yield view.heading(title, f": {found.total_gib:,.1f} GiB")
    named = {
        "weights": found.weights_gib,
        "gradients": found.gradients_gib,
        "optimizer": found.optimizer_gib,
        "activations": found.activations_gib,
        "logits and loss": found.loss_gib,
        "layer at work": found.working_gib,
        "driver and libraries": found.runtime_gib,
        "KV cache": found.kv_cache_gib,
    }
    lines = [(name, f"{gib:>10,.1f} GiB") for name, gib in named.items() if gib]
    if found.layout_given:
        lines.append((f"on each of {found.layout.gpus} GPUs", f"{found.per_gpu_gib:>10,.1f} GiB"))
    lines.append(("80 GB GPUs at least", f"{found.lower_bound_80gb_cards:>10}"))
    yield view.figures(lines)

    def counted(one: SizedAccelerator) -> str:
        """``4``; ``16 (2 × 8)`` for several machines."""
        machines, each = divmod(one.count, found.gpus_per_machine)[0], found.gpus_per_machine
        return str(one.count) if one.count <= each else f"{one.count} ({machines} × {each})"

    columns: tuple[ValueColumn[SizedAccelerator], ...] = (
        ValueColumn("accelerator", lambda one: one.accelerator),
        ValueColumn("GPUs", counted, align="right"),
        ValueColumn("GiB per GPU", lambda one: f"{one.per_gpu_gib:.1f} of {one.usable_gib:.0f}", 2, "right"),
        ValueColumn("on-demand $/h", lambda one: view.dollars(one.usd_per_hour), align="right"),
        ValueColumn("spot $/h", lambda one: view.dollars(one.spot_usd_per_hour), 1, "right"),
        ValueColumn("cheapest", lambda one: quoted(one.cheapest) if one.cheapest else "no price known", 3),
        ValueColumn("layout", lambda one: one.assumes, 4),
        ValueColumn("caveats", lambda one: "; ".join(one.caveats), 5),
    )
    if found.fits:
        yield from view.best(console, columns, found.fits, "cheapest")
    else:
        yield view.heading("No accelerator holds the model", " in this layout." if found.layout_given else ".")
    yield from view.assumptions(found.assumptions)
