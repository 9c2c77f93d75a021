"""The programs of the cluster: Kubernetes' own, built from Debian's source package once and kept in the cache folder,
and those that Debian has as packages. The cache's name is made of all that they are built from."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from filelock import FileLock

_HERE = Path(__file__).parent
_SCRIPT, _PROGRAM = _HERE / "build.sh", _HERE / "cluster.go"
_RELEASE = "12"  # Debian's: later ones have no Kubernetes that builds without the internet
_BUILD_WITHIN = 5400.0  # seconds; five and a half minutes of a processor that does nothing else
_LISTS = ("sources.list", "sources.list.d/debian.sources")


def cluster_binaries() -> Path:
    """The folder with ``bin`` and ``cni``; built if it is not there. Needs root, Debian 12's package archive and some
    minutes the first time. Raises `AssertionError` with the output where that fails."""
    place = kept_binaries()
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(place.with_suffix(".lock")):
        if not place.exists():
            with tempfile.TemporaryDirectory(prefix="kubernetes-", dir=place.parent) as folder:
                _build(Path(folder))
                (Path(folder) / "kept").rename(place)
    return place


def kept_binaries() -> Path:
    """Where the programs are or will be."""
    made_of = _SCRIPT.read_text() + _PROGRAM.read_text()
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpubroker-ci"
    return kept / f"kubernetes-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"


def cannot_build() -> str:
    """Why the programs cannot be had here; empty if they can."""
    if kept_binaries().exists():
        return ""
    about = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
    if f'VERSION_ID="{_RELEASE}"' not in about or "ID=debian" not in about.splitlines():
        return f"Kubernetes is built from the source package of Debian {_RELEASE}, which this machine is not"
    lacking = [name for name in ("apt-get", "dpkg-deb", "patch", "xz") if shutil.which(name) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


def _build(folder: Path) -> None:
    sources = folder / "sources"
    sources.mkdir()
    for name in _LISTS:
        place = Path("/etc/apt") / name
        if place.exists():
            text = place.read_text().replace("Types: deb\n", "Types: deb deb-src\n")
            lines = [line.replace("deb ", "deb-src ", 1) for line in text.splitlines() if line.startswith("deb ")]
            (sources / Path(name).name).write_text("\n".join([text, *lines, ""]))
    if (sources / "sources.list").exists():
        (sources / "sources.list").rename(sources / "debian.list")  # as apt calls them in a folder
    done = subprocess.run(
        ["bash", str(_SCRIPT)],
        cwd=folder, env={**os.environ, "SOURCES": str(sources), "PROGRAM": str(_PROGRAM)},
        capture_output=True, text=True, check=False, timeout=_BUILD_WITHIN,
    )  # fmt: skip
    assert done.returncode == 0, f"Kubernetes was not built: {done.stdout[-2000:]}{done.stderr[-4000:]}"
