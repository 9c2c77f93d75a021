"""Sizes a job that names a model instead of machines, by the arithmetic of `gpubroker advise size`.

The model that advice is about: its size, or a Hugging Face ``config.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from broker.app.results.values import Figure, Seconds
from broker.core.errors import InvalidInput
from broker.core.job.jobs import Job, MachineRequest, Model, Work
from broker.core.values.accelerators import Accelerator, known, lookup
from broker.core.values.units import MAX_DURATION
from broker.economics.assumptions import DEFAULTS, Assumptions, changed, number_of, replaced
from broker.economics.fits import smallest_layout
from broker.economics.kinds import Method, Precision, Recomputation
from broker.economics.memory import MemoryEstimate, Subject, estimate
from broker.economics.model import ModelShape, read_config, shape_from
from broker.economics.throughput import training_time
from broker.economics.units import parameter_count

_LARGEST_CONFIG = 4_000_000  # bytes; real ones are a few thousand
_ARCHITECTURE = {
    "layers": "layers", "hidden": "hidden_size", "heads": "heads", "kv_heads": "kv_heads", "head_dim": "head_dim"
}  # fmt: skip


def subject(model: str | float, assumptions: Assumptions) -> Subject:
    """The model: a number of parameters, such as ``7B``, or the path of its ``config.json``. Assumptions on its
    architecture take precedence over the file. Raises InvalidInput."""
    stated = {own: value for own, name in _ARCHITECTURE.items() if (value := getattr(assumptions, name)) is not None}
    active, notes = assumptions.active_parameters, []
    shape: ModelShape | None = None
    parameters = _parameters(model)
    if parameters is None:
        config = Path(str(model))
        read = read_config(_parsed(config), where=str(config))
        parameters, active = read.parameters, active or read.active_parameters
        if "heads" in stated:
            stated.setdefault("kv_heads", min(read.shape.kv_heads, stated["heads"]))
        shape = replace(read.shape, **stated)
        notes.append(f"{parameters / 1e9:.2f}B parameters counted from {config.name}")
    elif stated:
        if "layers" not in stated:
            raise InvalidInput(
                "architecture: the number of layers is missing", hint="give --assume layers=N too, or a config.json"
            )
        shape, assumed = shape_from(**stated)
        notes += assumed
    parameter_count(parameters)
    if active is not None and active > parameters:
        raise InvalidInput(f"active_parameters: expected up to all {parameters:g}, got {active:g}")
    kv_only = _parameters(model) is not None and shape is not None and "hidden" not in stated
    return Subject(parameters, active or parameters, shape, tuple(notes), kv_only)


def _parameters(model: str | float) -> float | None:
    """The number, or None for the path of a file."""
    try:
        return number_of(model)
    except ValueError as error:
        if Path(str(model)).suffix == ".json" or Path(str(model)).exists():
            return None
        raise InvalidInput(
            f"expected a number of parameters such as 7B, or a config.json; got {str(model)[:60]!r}", where="MODEL"
        ) from error


def _parsed(config: Path) -> Mapping[str, Any]:
    """The file's content. Raises InvalidInput if it cannot be read or is not a JSON object."""
    hint = "expected a size such as 7B, or the config.json that lies next to a model's weights, as a local file"
    path = config / "config.json" if config.is_dir() else config
    try:
        if path.stat().st_size > _LARGEST_CONFIG:
            raise InvalidInput("too large to be a model's configuration", where=str(path), hint=hint)
        parsed = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=str(path), hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"is not JSON: {error}", where=str(path), hint=hint) from error
    if not isinstance(parsed, dict):
        raise InvalidInput("is not a JSON object", where=str(path), hint=hint)
    return parsed


_NAMED = 6


@dataclass(frozen=True, slots=True)
class Sizing:
    """The size of a job: its memory (``needs``), the ``machines`` that hold it (``L4:1``) with their number of
    ``nodes``, the work computed from the tokens (None if it was given or is unknown), and ``notes`` for people."""

    total_gib: Figure
    weights_gib: Figure
    gradients_gib: Figure
    optimizer_gib: Figure
    activations_gib: Figure
    loss_gib: Figure
    working_gib: Figure
    runtime_gib: Figure
    kv_cache_gib: Figure
    machines: tuple[str, ...]
    nodes: int
    work: Seconds | None
    notes: tuple[str, ...]


def sized(job: Job, assumptions: Assumptions = DEFAULTS) -> tuple[Job, Sizing]:
    """The job with the machines that hold its model, and the computation.

    Requests one machine if one holds the model, else the fewest machines with eight accelerators; with ``num_nodes``,
    that number. Accelerators without a fast link share a model only if no others hold it. Raises InvalidInput for an
    invalid model, and for one that no accelerator holds.
    """
    assert job.model is not None
    try:
        needs = _needs(job.model, assumptions)
    except InvalidInput as error:
        raise InvalidInput(f"model: {error.message}", where=job.name, hint=error.hint) from error
    totals = _totals(needs, assumptions)
    nodes, counts = _machines(totals, job.num_nodes, assumptions)
    if not counts:
        raise InvalidInput(
            f"model: no accelerator holds {needs.total_gib:,.1f} GiB on {job.num_nodes} machines",
            where=job.name,
            hint="a smaller batch_size, LoRA or QLoRA needs less; or name `resources` yourself",
        )
    work = job.work or _work(job.model, nodes, counts, assumptions)
    machines = tuple(f"{card.name}:{count}" for card, count in counts)
    requests = tuple(MachineRequest(accelerator=card.name, count=count) for card, count in counts)
    changed = job.model_copy(update={"resources": requests, "num_nodes": nodes, "work": work})
    return changed, Sizing(
        total_gib=needs.total_gib,
        weights_gib=needs.weights_gib,
        gradients_gib=needs.gradients_gib,
        optimizer_gib=needs.optimizer_gib,
        activations_gib=needs.activations_gib,
        loss_gib=needs.loss_gib,
        working_gib=needs.working_gib,
        runtime_gib=needs.runtime_gib,
        kv_cache_gib=needs.kv_cache_gib,
        machines=machines,
        nodes=nodes,
        work=work.duration if work and job.work is None else None,
        notes=(*_notes(job, needs, machines, nodes, work, assumptions), *_on_more(job, totals, nodes, assumptions)),
    )


def _needs(model: Model, assumptions: Assumptions) -> MemoryEstimate:
    said = model.extra
    recomputed: dict[Any, Recomputation] = {True: Recomputation.FULL, False: Recomputation.NONE}
    stated: dict[str, Any] = {
        name: said[name] for name in ("layers", "hidden_size", "heads", "kv_heads", "head_dim") if name in said
    }
    assumptions = replaced(stated, base=assumptions)
    workload = subject(model.parameters, assumptions).workload(
        Method(model.method),
        replace(
            assumptions,
            precision=Precision(said["precision"]) if said.get("precision") else None,
            batch=model.batch_size,
            context=model.sequence_length,
            recomputation=recomputed.get(said.get("activation_checkpointing")),
        ),
    )
    return estimate(workload, assumptions=assumptions)


def _totals(needs: MemoryEstimate, assumptions: Assumptions) -> list[tuple[Accelerator, int]]:
    """The accelerators that hold it, with the total number needed."""
    totals: list[tuple[Accelerator, int]] = []
    for card in map(lookup, known()):
        if needs.workload.trains and card.inference_only:
            continue
        layout = smallest_layout(needs, card, assumptions)
        if layout is not None:
            totals.append((card, layout.gpus))
    joined = [(card, gpus) for card, gpus in totals if gpus == 1 or card.link is not None]
    return joined or totals


def _machines(
    totals: list[tuple[Accelerator, int]], nodes: int, assumptions: Assumptions
) -> tuple[int, list[tuple[Accelerator, int]]]:
    """The number of machines, and the accelerators with their number per machine. A number of accelerators that holds
    the model in one layout holds it on any number of machines: with tensor parallelism inside and pipeline stages
    across them, each has an equal part."""
    if nodes == 1 and totals:
        nodes = -(-min(gpus for _, gpus in totals) // assumptions.gpus_per_node)
    found = []
    for card, gpus in totals:
        each = 1 << (-(-gpus // nodes) - 1).bit_length()  # machines come with 1, 2, 4 or 8
        if each <= assumptions.gpus_per_node:
            found.append((card, each))
    return nodes, sorted(found, key=lambda pair: (pair[1], pair[0].name))


def _work(model: Model, nodes: int, counts: list[tuple[Accelerator, int]], assumptions: Assumptions) -> Work | None:
    """The time to train on the model's ``tokens``, on the first accelerator whose speed is known."""
    tokens = model.extra.get("tokens")
    if tokens is None or model.method == Method.INFERENCE:
        return None
    for card, count in counts:
        if card.tflops_16bit is None:
            continue
        run = training_time(
            card, parameters=model.parameters, tokens=tokens, gpus=count * nodes, assumptions=assumptions
        )
        if timedelta(hours=min(run.hours, 1e6)) <= MAX_DURATION:
            return Work(duration=timedelta(seconds=round(run.hours * 3600)), accelerator=card.name, count=count)
    return None


def _notes(
    job: Job, needs: MemoryEstimate, machines: tuple[str, ...], nodes: int, work: Work | None, assumptions: Assumptions
) -> tuple[str, ...]:
    assert job.model is not None
    named = (
        ("weights", needs.weights_gib), ("gradients", needs.gradients_gib), ("optimizer", needs.optimizer_gib),
        ("activations", needs.activations_gib), ("logits and loss", needs.loss_gib),
        ("layer at work", needs.working_gib), ("driver and libraries", needs.runtime_gib),
        ("KV cache", needs.kv_cache_gib),
    )  # fmt: skip
    parts = ", ".join(f"{name} {gib:,.1f}" for name, gib in named if gib)
    each = f"{nodes} machines each with " if nodes > 1 else ""
    more = f" and {len(machines) - _NAMED} more" if len(machines) > _NAMED else ""
    size = f"{job.model.parameters / 1e9:g}B {job.model.method}"
    notes = [
        f"sized from the model: {size} needs {needs.total_gib:,.1f} GiB ({parts}); held by {each}"
        f"{', '.join(machines[:_NAMED])}{more}, with {assumptions.memory_headroom:.0%} of each card free"
    ]
    if own := changed(assumptions):
        notes.append(f"sized by assumptions of the policies: {', '.join(f'{k} {v}' for k, v in own.items())}")
    if needs.assumptions:
        notes.append(f"assumed for the size: {'; '.join(needs.assumptions)}")
    if work is not None and job.work is None:
        notes.append(
            f"work from the model's tokens: {work.duration / timedelta(hours=1):,.1f} h on "
            f"{work.accelerator}:{work.count}, at an "
            + assumptions.mfu_text(work.accelerator or "", job.model.parameters)
        )
    return tuple(notes)


def _on_more(job: Job, totals: list[tuple[Accelerator, int]], nodes: int, assumptions: Assumptions) -> tuple[str, ...]:
    """Accelerators that would suffice with more machines, if the job does not state their number."""
    wider = [
        (-(-gpus // assumptions.gpus_per_node), card.name)
        for card, gpus in totals
        if gpus > nodes * assumptions.gpus_per_node
    ]
    if job.num_nodes > 1 or not wider:
        return ()
    least = min(number for number, _ in wider)
    names = [name for number, name in wider if number == least]
    return (
        f"with `num_nodes: {least}` it would fit {', '.join(names[:_NAMED])} with {assumptions.gpus_per_node} each, "
        "too",
    )
