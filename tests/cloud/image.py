"""The machine image of the nodes: one layer over this machine's own files, built once and kept.

It holds SkyPilot's runtime as SkyPilot's own images do. Nodes share it and write to layers of their own, which stay
small. Its name is made of all that it is built from; one of another version is built beside it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock

from broker.engines.runfolder.agent_bundle import OBSTORE, requirements
from tests.skypilot_server import package_index

USER = "ubuntu"  # whom SkyPilot logs in as on AWS
_SCRIPT = Path(__file__).with_name("image.sh")
# As SkyPilot 0.14 installs them on a node, in its order: sky/skylet/constants.py and the extras of its wheel.
_RUNTIME = (
    "setuptools<70",
    "click<8.3.0",
    "ray[default]==2.9.3",
    "pydantic-core==2.41.1",
    "skypilot[aws,kubernetes,remote]=={}",
)
_CHROOT = """
set -eu
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=/,upperdir=$FOLDER/upper,workdir=$FOLDER/work" "$FOLDER/root"
for part in proc sys dev; do mount --rbind "/$part" "$FOLDER/root/$part"; done
for part in tmp run; do mount -t tmpfs tmpfs "$FOLDER/root/$part"; done
mkdir -p "$FOLDER/root/tmp/from" && mount --bind "$FOLDER" "$FOLDER/root/tmp/from"
[ -e /etc/resolv.conf ] && cat /etc/resolv.conf > "$FOLDER/resolv.conf"
exec chroot "$FOLDER/root" bash /tmp/from/image.sh
"""


@contextmanager
def mounted_image(place: Path, number: int) -> Iterator[None]:
    """The whole image at that place: the kept layer over this machine's files, read-only. ``number``: of the run, which
    has a folder in the layer for the kernel. Building it needs root, a package index and a minute the first time;
    raises `AssertionError` with the output where that fails. (Not given to nodes as two layers: the kernel refuses
    layers of which one lies in the other. Several runs mount the same layer; nobody writes to it.)"""
    layer = machine_layer()
    work = layer / f"work-{number}"
    place.mkdir()
    work.mkdir(exist_ok=True)
    options = f"ro,index=off,lowerdir=/,upperdir={layer}/upper,workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def machine_layer() -> Path:
    """The kept layer; built if it is not there."""
    runtime = [word.format(version("skypilot")) for word in _RUNTIME]
    python = _system_python()
    agent = next(pin for least, pin in OBSTORE if python >= least)
    parts = [_SCRIPT.read_text(), *runtime, requirements(agent), str(python)]
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpubroker-ci"
    kept.mkdir(parents=True, exist_ok=True)
    place = kept / f"node-image-{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:12]}"
    with FileLock(place.with_suffix(".lock")):
        if not place.exists():
            with tempfile.TemporaryDirectory(prefix="node-image-", dir=kept) as folder:
                _build(Path(folder), runtime, requirements(agent), python)
                for name in ("uv", "wheels", "root"):
                    shutil.rmtree(Path(folder) / name)
                Path(folder).rename(place)
                Path(folder).mkdir()
    return place


def _system_python() -> tuple[int, int]:
    """The version of the Python that the nodes have: this machine's own, whatever runs the tests."""
    asked = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run(["/usr/bin/python3", "-c", asked], capture_output=True, text=True, check=True)
    major, minor = map(int, done.stdout.split())
    return major, minor


def _build(folder: Path, runtime: list[str], agent: str, python: tuple[int, int]) -> None:
    folder.chmod(0o755)
    for name in ("upper", "work", "root", "wheels"):
        (folder / name).mkdir()
    shutil.copy(_SCRIPT, folder / "image.sh")
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "install", "--quiet", "--target", folder / "uv", "uv"], check=True, timeout=120)
    wanted: list[str | Path] = ["--only-binary", ":all:", "--python-version", ".".join(map(str, python)), "--dest"]
    wanted.append(folder / "wheels")
    # What a node installs anew: the agent's part, and the two that SkyPilot names again before it looks.
    (folder / "agent.txt").write_text(agent)
    exact = ["--require-hashes", "--requirement", str(folder / "agent.txt")]
    for words in (exact, ["--no-deps", "setuptools<70"], ["--no-deps", "click<8.3.0"]):
        subprocess.run([*pip, "download", "--quiet", *wanted, *words], check=True, timeout=120)
    environment = {
        **os.environ,
        **package_index(),
        "FOLDER": str(folder),
        "NODE_USER": USER,
        "UV": "/tmp/from/uv/bin/uv",
        "WHEELS": "/tmp/from/wheels",
        "RUNTIME": " ".join(runtime),
    }
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", _CHROOT],
        env=environment, capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, f"the image of the nodes was not built: {done.stdout[-2000:]}{done.stderr[-4000:]}"
