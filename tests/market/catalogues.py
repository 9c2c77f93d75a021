"""Which accelerators and machine types the installed SkyPilot and gpuhunt know and gpubroker does not.

    python -m tests.market.catalogues

SkyPilot's catalogues are downloaded when it runs; installed are the tables by which it makes them. They are read as
text, nothing of SkyPilot is imported. Machine types are those of AWS, Azure and Google Cloud with accelerators that the
source of both names anywhere. Every name that is unknown here has its reason below.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from broker.core.errors import UnknownName
from broker.core.values.accelerators import canonical
from providers.aws import machines as aws
from providers.azure import machines as azure
from providers.gcp.accelerators import family_of
from providers.rows import Unfit

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
_MACHINES: Mapping[str, re.Pattern[str]] = {
    "aws": re.compile(r"\b((?:p|g|gr|trn|inf|dl|vt|f)\d+[a-z0-9-]*\.(?:metal(?:-\d+xl)?|\d*x?large))\b"),
    "azure": re.compile(r"\b(Standard_N[A-Z]{1,3}\d+[A-Za-z0-9_]*)"),
    "gcp": re.compile(r"\b((?:a\d[a-z]?|g\d)-(?:[a-z]+gpu|standard|maxgpu)-\d+g?(?:-metal|-nolssd)?)\b"),
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


def machine_types() -> dict[str, set[str]]:
    """Machine types with accelerators that the source of SkyPilot and gpuhunt names, by package and cloud."""
    found: dict[str, set[str]] = {}
    for package in ("sky", "gpuhunt"):
        spec = find_spec(package)
        folder = Path(spec.origin).parent if spec is not None and spec.origin else None
        source = "".join(file.read_text("utf-8", "replace") for file in folder.rglob("*.py")) if folder else ""
        for cloud, pattern in _MACHINES.items():
            found[f"{package}: machine types of {cloud}"] = set(pattern.findall(source))
    return found


def is_known_machine(name: str) -> bool:
    """Whether one of the three clouds' tables has it."""
    if name.startswith("Standard_"):
        with suppress(Unfit):
            return azure.machine(name).gpu is not None
        return False
    return aws.is_listed(name) or family_of(name) is not None


def unknown(names: set[str]) -> set[str]:
    """Those that gpubroker does not know."""
    found = set()
    for name in names:
        try:
            canonical(name)
        except UnknownName:
            found.add(name)
    return found


def main() -> int:
    unexplained = 0
    print(f"{'table':62}{'names':>7}{'unknown here':>14}")
    tables = [(table, names, unknown(names)) for table, names in {**skypilot(), **gpuhunt()}.items()]
    for table, names in machine_types().items():
        tables.append((table, names, {name for name in names if not is_known_machine(name)}))
    for table, names, missing in tables:
        lacking = sorted(missing)
        print(f"{table:62}{len(names):>7}{len(lacking):>14}")
        for name in lacking:
            unexplained += name not in REASONS
            print(f"    {name}: {REASONS.get(name, 'NO REASON')}")
    print(f"{unexplained} without a reason")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
