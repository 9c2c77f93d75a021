"""Checks that the packages of gpubroker that Python would import are gpubroker's own.

They are called ``broker``, ``providers``, ``policies`` and ``cli``. A file of such a name next to a script, or from
another distribution, comes first on Python's path. gpubroker could not work then, and its errors would be misleading.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

PARTS = ("broker", "providers", "policies", "cli")
_HERE = Path(__file__).resolve().parent
# In a wheel; in a checkout (<root>/broker/public/gpubroker).
_HOMES = (_HERE / "_parts", _HERE.parents[2])


def check_parts() -> None:
    """Raises `ImportError` that names the file which hides a part, or says that a part is missing."""
    for part in PARTS:
        spec = find_spec(part)
        if spec is None or spec.origin is None:
            raise ImportError(
                f"gpubroker's part {part!r} is not on Python's path; install gpubroker with pip into a virtual "
                "environment (`pip install --target` leaves out the line that names its folder)"
            )
        if not any(Path(spec.origin).resolve().is_relative_to(home) for home in _HOMES):
            raise ImportError(
                f"{spec.origin} hides gpubroker's own part {part!r}; rename it, or run from another folder or in a "
                "virtual environment without it"
            )
