"""Detects entries of a folder that were renamed to their final name, by inotify of the Linux kernel.

On other systems it reports nothing, and callers must judge the entries by their content.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from pathlib import Path

_IN_MOVED_TO = 0x80
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows


class Renames:
    """Watches from its creation on. Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = -1
        if not sys.platform.startswith("linux"):
            return
        libc = ctypes.CDLL(None)
        descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor >= 0:  # otherwise the user's limit of inotify instances is reached
            if libc.inotify_add_watch(descriptor, os.fsencode(folder), _IN_MOVED_TO) >= 0:
                self._descriptor = descriptor
            else:
                os.close(descriptor)

    def since_last(self) -> set[str]:
        """The names to which entries were renamed since the last call."""
        names: set[str] = set()
        with contextlib.suppress(BlockingIOError):
            while self._descriptor >= 0:
                events = os.read(self._descriptor, 1 << 16)
                place = 0
                while place < len(events):
                    _, _, _, length = _EVENT.unpack_from(events, place)
                    place += _EVENT.size
                    names.add(os.fsdecode(events[place : place + length].rstrip(b"\0")))
                    place += length
        return names
