"""The installed version of gpubroker, and the command that installs its optional parts; data tables stored as
TOML files in the packages."""

import json
import sys
import tomllib
from importlib import resources
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


def own_version() -> str:
    """The installed version of gpubroker."""
    try:
        return version("gpubroker")
    except PackageNotFoundError:
        return "not installed"


def install_command(*extras: str) -> str:
    """The command that installs these extras where this Python finds them, from the checkout if there is one."""
    try:
        origin = json.loads(distribution("gpubroker").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    arguments, source = "", "gpubroker"
    if str(origin.get("url", "")).startswith("file:") and "dir_info" in origin:  # a checkout
        source = unquote(urlsplit(origin["url"]).path)
        arguments = f"-c {source}/constraints.txt " if (Path(source) / "constraints.txt").is_file() else ""
        arguments += "-e " if origin["dir_info"].get("editable") else ""
    return f"{sys.executable} -m pip install {arguments}'{source}[{','.join(extras)}]'"


def load_packaged_toml(package: str, name: str) -> dict[str, Any]:
    """The content of a package's TOML file."""
    return tomllib.loads(resources.files(package).joinpath(name).read_text(encoding="utf-8"))
