"""The agent as one file for bare nodes: a zip archive that any Python ≥ 3.9 runs, so it need not be published.

It needs obstore, in a folder ``lib`` next to the file or in that Python's path: exact releases with the SHA-256 of
their wheels, for pip and uv. Wheels for Linux on x86-64 and ARM, glibc (manylinux) and musl. To update a release, edit
the hashes by hand: `pip download` for each platform, `pip hash` for each file.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from functools import cache
from importlib.resources import files
from pathlib import Path

from broker.agent.store import make_private

_PACKAGE = "broker.agent"
_EARLIEST_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest date in a zip file
_MAIN = """\
import os, sys
sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "lib"))
from broker.agent.__main__ import main
sys.exit(main())
"""


@cache
def agent_archive() -> bytes:
    """The archive's bytes. They depend only on the agent's code, not on this machine, its clock or its zlib."""
    packed = io.BytesIO()
    folder = _PACKAGE.replace(".", "/")
    sources = {
        f"{folder}/{file.name}": file.read_bytes() for file in files(_PACKAGE).iterdir() if file.name.endswith(".py")
    }
    sources |= {"__main__.py": _MAIN.encode(), "broker/__init__.py": b""}
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(sources):
            entry = zipfile.ZipInfo(name, _EARLIEST_DATE)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, sources[name])
    return packed.getvalue()


def write_agent(folder: Path) -> Path:
    """Write the archive into the folder, named by its content, unless it exists. Raises `OSError`."""
    content = agent_archive()
    target = folder / f"agent-{hashlib.sha256(content).hexdigest()[:16]}.pyz"
    if not target.exists():
        make_private(folder)
        draft = target.with_suffix(f".{os.getpid()}.new")
        draft.write_bytes(content)
        draft.replace(target)
    return target


# The first entry that fits the node's Python applies. All releases have the interface that the agent uses.
OBSTORE: tuple[tuple[tuple[int, int], str], ...] = (
    ((3, 11), "obstore==0.12.1"),
    ((3, 10), "obstore==0.11.1"),
    ((3, 9), "obstore==0.8.2"),
)
_TYPING = "typing-extensions==4.15.0"  # required by obstore before Python 3.13
_HASHES = {
    "obstore==0.12.1": (
        "d31b255aec88d37636d374a651f5efc684c89716ab64dea6ac89d75801933af2",  # manylinux, x86-64
        "d7ee9cde74dbe11a4630c90d7245543993f3cebc38a70aceaedcd3b3d6192807",  # manylinux, ARM
        "656547972c57aee8054fedd2585f4280d50bc8fee192269367547c4a01759d2f",  # musl, x86-64
        "4240e5cb60d091e4a612499630eebede5164c821196322bc8a5ecb4861dc7b1f",  # musl, ARM
    ),
    "obstore==0.11.1": (
        "32dcdae4207656ef353f949f927342e31757f926c58f014873b2d90c70276cb7",
        "446dfe0019740da25394917585b8b0c116ae79454a633ee83aeb0c973c8812d2",
        "63be447e5fdaf0c31517a66906030148697ab3b1f1611fe03e30125a56199ccc",
        "a1dd9d7ddc10bbf17cea0e84553a665a822878bd199380557a6df2aa1e60ce34",
    ),
    "obstore==0.8.2": (
        "4952d69843bb78c73c9a81258f448003f74ff7b298a60899f015788db98a1cd1",
        "2e3cd6d0822888b7e79c92c1258997289ebf0224598aad8f46ada17405666852",
        "6ebc814302485d453b61df956c09662ebb33471684add5bbc321de7ba265b723",
        "feb4a6e5a3f2d323b3f61356d4ef99dd3f430aaacdaf5607ced5f857d992d2d4",
    ),
    _TYPING: ("f0fa19c6845758ab08074a0cfa8b7aecb71c999ca73d62883bc25cc018c4e548",),  # of any platform
}


def requirements(obstore: str) -> str:
    """A requirements file for ``--require-hashes``: this release of obstore and its dependencies."""
    return "\n".join(
        " ".join([pin, *(f"--hash=sha256:{digest}" for digest in _HASHES[pin])]) for pin in (obstore, _TYPING)
    )
