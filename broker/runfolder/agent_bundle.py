"""The agent as one file for bare nodes: a zip archive that any Python ≥ 3.9 runs, so it need not be published.

It needs obstore, in a folder ``lib`` next to the file or in that Python's path.
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
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the earliest date in a zip file
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
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, sources[name])
    return packed.getvalue()


def write_agent(folder: Path) -> Path:
    """Write the archive into the folder, named by its content, unless it exists. Raises `OSError`."""
    content = agent_archive()
    place = folder / f"agent-{hashlib.sha256(content).hexdigest()[:16]}.pyz"
    if not place.exists():
        make_private(folder)
        draft = place.with_suffix(f".{os.getpid()}.new")
        draft.write_bytes(content)
        draft.replace(place)
    return place
