"""The names of accelerators that the installed SkyPilot and gpuhunt know."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from broker.core.errors import UnknownName
from broker.core.values.accelerators import canonical

# What they know and gpubroker does not.
REASONS: Mapping[str, str] = {
    "MI308X": "sold in one country; no data sheet is public",
    "A100-80GB-NVLINK": "FluidStack's word for cards with a bridge; whether they are SXM or PCIe is not said",
    "RTX4000": "two cards have that name, of 2018 with 8 GB and of 2023 with 20 GB; each is known by its full name",
    "RTX5000": "two cards have that name, of 2018 with 16 GB and of 2023 with 32 GB; each is known by its full name",
    "GRAYSKULL-E150": "a card that is no longer made; no provider that is read here lists it",
    "GRAYSKULL-E75": "a card that is no longer made; no provider that is read here lists it",
    "tpu": "the beginning of every TPU's name, not one of them",
    "Standard_ND48s_H100_v5": "an example in a comment; Azure has no such size",
}
# SkyPilot's modules, with the tables whose values (or entries) are names of accelerators.
_SKYPILOT = {
    "catalog/data_fetchers/fetch_azure.py": "FAMILY_NAME_TO_SKYPILOT_GPU_NAME",
    "catalog/data_fetchers/fetch_fluidstack.py": "GPU_MAP",
    "catalog/data_fetchers/fetch_runpod.py": "GPU_NAME_OVERRIDES",
    "catalog/data_fetchers/fetch_seeweb.py": "SEEWEB_GPU_NAME_TO_SKYPILOT_GPU_NAME",
    "catalog/data_fetchers/fetch_lambda_cloud.py": "GPU_TO_MEMORY",
    "utils/accelerator_registry.py": "_SCHEDULABLE_NON_GPU_ACCELERATORS",
}
_KEYED = {"GPU_TO_MEMORY"}  # the keys are the names there


def skypilot() -> dict[str, set[str]]:
    """Names by table. Empty without SkyPilot."""
    spec = find_spec("sky")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    if folder is None:
        return {}
    return {f"skypilot {table}": set(_names(folder / file, table)) for file, table in _SKYPILOT.items()}


def _names(file: Path, table: str) -> Iterator[str]:
    for statement in ast.parse(file.read_text("utf-8")).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == table for target in targets):
            value = statement.value  # type: ignore[attr-defined]  # an assignment has one
            found = ast.literal_eval(value)
            names = found.values() if isinstance(found, dict) and table not in _KEYED else found
            yield from (name for name in names if isinstance(name, str) and name)


def gpuhunt() -> dict[str, set[str]]:
    """Names by table. Empty without gpuhunt."""
    if find_spec("gpuhunt") is None:
        return {}
    from gpuhunt._internal import constraints

    tables = ("KNOWN_NVIDIA_GPUS", "KNOWN_AMD_GPUS", "KNOWN_TPUS", "KNOWN_INTEL_ACCELERATORS")
    return {f"gpuhunt {table}": {gpu.name for gpu in getattr(constraints, table)} for table in tables}


def unknown(names: set[str]) -> set[str]:
    """Those that gpubroker does not know."""
    found = set()
    for name in names:
        try:
            canonical(name)
        except UnknownName:
            found.add(name)
    return found
