"""A build hook of hatchling: where the packages are installed. It is not used at run time.

A wheel has one folder, ``gpubroker``, and the line in ``gpubroker.pth`` by which Python finds the packages in it. So no
file with a general name (``cli.py``, ``policies``, ``providers``) lies in site-packages itself, where another
distribution's would replace it. An editable install copies nothing: its line names this checkout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PARTS = "gpubroker/_parts"
_HERE = "broker/public"


def wheel_paths(root: Path) -> dict[str, str]:
    """Paths in the checkout at ``root``, each with its path in the wheel."""
    entries = [f"broker/{entry.name}" for entry in (root / "broker").iterdir()]
    parts = [part for part in entries if part not in (_HERE, "broker/__pycache__")]
    return {
        f"{_HERE}/gpubroker": "gpubroker",
        f"{_HERE}/gpubroker.pth": "gpubroker.pth",
        "examples": f"{_PARTS}/broker/examples",
        **{part: f"{_PARTS}/{part}" for part in (*parts, "providers", "policies", "cli.py")},
    }


class PackageLayout(BuildHookInterface[Any]):  # type: ignore[misc,unused-ignore]  # hatchling is there for builds alone
    """The hook that pyproject.toml names."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """``version``: ``standard`` for a wheel, ``editable`` for an editable install."""
        if version == "standard":
            build_data["force_include"].update(wheel_paths(Path(self.root)))
