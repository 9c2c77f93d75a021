"""Data tables stored as TOML files in the packages."""

import tomllib
from importlib import resources
from typing import Any


def load_packaged_toml(package: str, name: str) -> dict[str, Any]:
    """The content of a package's TOML file."""
    return tomllib.loads(resources.files(package).joinpath(name).read_text(encoding="utf-8"))
