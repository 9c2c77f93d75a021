"""Container images that no registry has, made of a busybox: what each pod needs beside its own (``pause``), a small
program (``box``), and the machine that SkyPilot's pods are (``machine``), whose files come from the runtime."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

IMAGES = {name: f"docker.io/lab/{name}:1" for name in ("pause", "box", "machine")}
_FOLDERS = ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "var")
_PATH = "/home/ubuntu/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_USERS = b"root:x:0:0:root:/root:/bin/sh\n"


def write_images(folder: Path, busybox: Path) -> None:
    """An archive of each that ``ctr images import`` takes."""
    folder.mkdir()
    programs = {"bin/busybox": busybox.read_bytes(), "bin/sh": busybox.read_bytes(), "etc/passwd": _USERS}
    wait = ["/bin/busybox", "sleep", "1000000"]
    for name, files, command in (
        ("pause", {"bin/busybox": programs["bin/busybox"]}, wait),
        ("box", programs, wait),
        ("machine", {"etc/passwd": _USERS}, ["/bin/bash"]),
    ):
        (folder / f"{name}.tar").write_bytes(_image(IMAGES[name], files, command))


def _image(name: str, files: Mapping[str, bytes], command: list[str]) -> bytes:
    layer = _archive(files, _FOLDERS)
    digest = hashlib.sha256(layer).hexdigest()
    about = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": command, "Env": [f"PATH={_PATH}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    config = json.dumps(about).encode()
    named = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": named, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]
    parts = {named: config, f"{digest}/layer.tar": layer, "manifest.json": json.dumps(manifest).encode()}
    return _archive(parts)


def _archive(files: Mapping[str, bytes], folders: tuple[str, ...] = ()) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name in folders:
            about = tarfile.TarInfo(name)
            about.type, about.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(about)
        for name, text in files.items():
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(text), 0o755
            archive.addfile(about, io.BytesIO(text))
    return written.getvalue()
