"""What a job printed, read from its run folder: for engines whose nodes keep no file within reach."""

from __future__ import annotations

import re
from collections.abc import Iterator

from broker.core.errors import Unreachable
from broker.launch.agent.formats import attempt_path
from broker.launch.agent.output import PIECE
from broker.launch.agent.store import Store, StoreTrouble, split_folder

_PIECE = re.compile(r"(?P<rank>[0-9]+)-(?P<number>[0-9]{6,})\.log")


def uploaded_lines(run_folder: str, nodes: int = 1) -> Iterator[str]:
    """The lines of every rank that were uploaded so far, rank by rank, with ``[rank]`` before them where there are
    several. Raises `Unreachable` when the store does not answer."""
    job, attempt = split_folder(run_folder)
    try:
        store = Store.open(job)
        names = store.files(attempt_path(attempt, "logs"))
        pieces = sorted(
            (int(one["rank"]), int(one["number"]), one[0]) for name in names if (one := _PIECE.fullmatch(name))
        )
        for rank in range(nodes):
            own = [(number, name) for of, number, name in pieces if of == rank]
            before = f"[{rank}] " if nodes > 1 else ""
            if own and own[0][0]:
                yield f"{before}[the first {own[0][0] * PIECE:,} bytes are no longer kept]"
            rest = b""
            for _, name in own:
                data = rest + (store.read(attempt_path(attempt, f"logs/{name}")) or b"")
                *lines, rest = data.split(b"\n")
                yield from (before + part for line in lines for part in _text(line))
            if rest:
                yield from (before + part for part in _text(rest))
    except StoreTrouble as error:
        raise Unreachable(str(error), where=run_folder) from error


def _text(line: bytes) -> list[str]:
    return line.decode("utf-8", "replace").rstrip("\r").split("\r")  # progress bars
