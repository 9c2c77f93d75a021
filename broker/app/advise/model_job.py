"""Sizes a job that names a model instead of machines, by the arithmetic of `gpubroker advise size`.

The model that advice is about: its size, or a Hugging Face ``config.json``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from broker.app.documents import Figure, Seconds
from broker.core.errors import InvalidInput
from broker.core.job.jobs import Job, MachineRequest, Model, Work
from broker.core.market.accelerators import Accelerator, accelerator_names, lookup
from broker.core.values.units import MAX_DURATION
from broker.economics.assumptions import DEFAULTS, Assumptions, non_defaults, number_of, override
from broker.economics.fits import smallest_layout
from broker.economics.kinds import Method, Precision, Recomputation
from broker.economics.memory import MemoryEstimate, Subject, estimate
from broker.economics.model import ModelShape, read_config, shape_from
from broker.economics.throughput import training_time
from broker.economics.units import parameter_count

_MAX_CONFIG_BYTES = 4_000_000  # bytes; real ones are a few thousand
_ARCHITECTURE = {
    "layers": "layers", "hidden": "hidden_size", "heads": "heads", "kv_heads": "kv_heads", "head_dim": "head_dim"
}  # fmt: skip


def load_subject(model: str | float, assumptions: Assumptions) -> Subject:
    """The model: a number of parameters, such as ``7B``, or the path of its ``config.json``. Assumptions on its
    architecture take precedence over the file. Raises InvalidInput."""
    stated = {key: value for key, name in _ARCHITECTURE.items() if (value := getattr(assumptions, name)) is not None}
    active, notes = assumptions.active_parameters, []
    shape: ModelShape | None = None
    parameters = _parameters(model)
    if parameters is None:
        config = Path(str(model))
        model_config = read_config(_read_json(config), where=str(config))
        parameters, active = model_config.parameters, active or model_config.active_parameters
        if "heads" in stated:
            stated.setdefault("kv_heads", min(model_config.shape.kv_heads, stated["heads"]))
        shape = replace(model_config.shape, **stated)
        notes.append(f"{parameters / 1e9:.2f}B parameters counted from {config.name}")
    elif stated:
        if "layers" not in stated:
            raise InvalidInput(
                "architecture: the number of layers is missing", hint="give --assume layers=N too, or a config.json"
            )
        shape, shape_notes = shape_from(**stated)
        notes += shape_notes
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


def _read_json(config: Path) -> Mapping[str, Any]:
    """The file's content. Raises InvalidInput if it cannot be read or is not a JSON object."""
    hint = "expected a size such as 7B, or the config.json that lies next to a model's weights, as a local file"
    path = config / "config.json" if config.is_dir() else config
    try:
        if path.stat().st_size > _MAX_CONFIG_BYTES:
            raise InvalidInput("too large to be a model's configuration", where=str(path), hint=hint)
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=str(path), hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"is not JSON: {error}", where=str(path), hint=hint) from error
    if not isinstance(document, dict):
        raise InvalidInput("is not a JSON object", where=str(path), hint=hint)
    return document


_MAX_NAMED = 6


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


def size_job(job: Job, assumptions: Assumptions = DEFAULTS) -> tuple[Job, Sizing]:
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
    sized_job = job.model_copy(update={"resources": requests, "num_nodes": nodes, "work": work})
    return sized_job, Sizing(
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
        notes=(
            *_notes(job, needs, machines, nodes, work, assumptions),
            *_larger_options(job, totals, nodes, assumptions),
        ),
    )


def _needs(model: Model, assumptions: Assumptions) -> MemoryEstimate:
    options = model.extra
    recomputation_modes: dict[Any, Recomputation] = {True: Recomputation.FULL, False: Recomputation.NONE}
    stated: dict[str, Any] = {
        name: options[name] for name in ("layers", "hidden_size", "heads", "kv_heads", "head_dim") if name in options
    }
    assumptions = override(stated, base=assumptions)
    workload = load_subject(model.parameters, assumptions).workload(
        Method(model.method),
        replace(
            assumptions,
            precision=Precision(options["precision"]) if options.get("precision") else None,
            batch=model.batch_size,
            context=model.sequence_length,
            recomputation=recomputation_modes.get(options.get("activation_checkpointing")),
        ),
    )
    return estimate(workload, assumptions=assumptions)


def _totals(needs: MemoryEstimate, assumptions: Assumptions) -> list[tuple[Accelerator, int]]:
    totals: list[tuple[Accelerator, int]] = []
    for card in map(lookup, accelerator_names()):
        if needs.workload.trains and card.inference_only:
            continue
        layout = smallest_layout(needs, card, assumptions)
        if layout is not None:
            totals.append((card, layout.gpus))
    linked = [(card, gpus) for card, gpus in totals if gpus == 1 or card.link is not None]
    return linked or totals


def _machines(
    totals: list[tuple[Accelerator, int]], nodes: int, assumptions: Assumptions
) -> tuple[int, list[tuple[Accelerator, int]]]:
    """The number of machines, and the accelerators with their number per machine. A number of accelerators that holds
    the model in one layout holds it on any number of machines: with tensor parallelism inside and pipeline stages
    across them, each has an equal part."""
    if nodes == 1 and totals:
        nodes = -(-min(gpus for _, gpus in totals) // assumptions.gpus_per_node)
    counts = []
    for card, gpus in totals:
        per_machine = 1 << (-(-gpus // nodes) - 1).bit_length()  # machines come with 1, 2, 4 or 8
        if per_machine <= assumptions.gpus_per_node:
            counts.append((card, per_machine))
    return nodes, sorted(counts, key=lambda pair: (pair[1], pair[0].name))


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
    memory_parts = (
        ("weights", needs.weights_gib), ("gradients", needs.gradients_gib), ("optimizer", needs.optimizer_gib),
        ("activations", needs.activations_gib), ("logits and loss", needs.loss_gib),
        ("layer at work", needs.working_gib), ("driver and libraries", needs.runtime_gib),
        ("KV cache", needs.kv_cache_gib),
    )  # fmt: skip
    memory_text = ", ".join(f"{name} {gib:,.1f}" for name, gib in memory_parts if gib)
    machines_text = f"{nodes} machines each with " if nodes > 1 else ""
    others_text = f" and {len(machines) - _MAX_NAMED} more" if len(machines) > _MAX_NAMED else ""
    size = f"{job.model.parameters / 1e9:g}B {job.model.method}"
    notes = [
        f"sized from the model: {size} needs {needs.total_gib:,.1f} GiB ({memory_text}); held by {machines_text}"
        f"{', '.join(machines[:_MAX_NAMED])}{others_text}, with {assumptions.memory_headroom:.0%} of each card free"
    ]
    if policy_changes := non_defaults(assumptions):
        notes.append(
            f"sized by assumptions of the policies: {', '.join(f'{k} {v}' for k, v in policy_changes.items())}"
        )
    if needs.assumptions:
        notes.append(f"assumed for the size: {'; '.join(needs.assumptions)}")
    if work is not None and job.work is None:
        notes.append(
            f"work from the model's tokens: {work.duration / timedelta(hours=1):,.1f} h on "
            f"{work.accelerator}:{work.count}, at an "
            + assumptions.mfu_text(work.accelerator or "", job.model.parameters)
        )
    return tuple(notes)


def _larger_options(
    job: Job, totals: list[tuple[Accelerator, int]], nodes: int, assumptions: Assumptions
) -> tuple[str, ...]:
    """Accelerators that would suffice with more machines, if the job does not state their number."""
    wider = [
        (-(-gpus // assumptions.gpus_per_node), card.name)
        for card, gpus in totals
        if gpus > nodes * assumptions.gpus_per_node
    ]
    if job.num_nodes > 1 or not wider:
        return ()
    fewest = min(number for number, _ in wider)
    names = [name for number, name in wider if number == fewest]
    return (
        f"with `num_nodes: {fewest}` it would fit {', '.join(names[:_MAX_NAMED])} with {assumptions.gpus_per_node} "
        "each, "
        "too",
    )
