"""Which of several clouds on this machine a run has: its bridge, addresses and folder are its own, so that runs beside
each other do not meet. A run that was killed leaves them to the next one, which ends what still runs there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Interface
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

_MOST = 16
_PLACE = Path("/var/tmp/gpubroker-cloud")  # not pytest's: login users of nodes have files below, and must get there


@dataclass(frozen=True)
class CloudSlot:
    """``number``: from 0, whatever else runs."""

    number: int

    @property
    def folder(self) -> Path:
        return _PLACE / f"lab-{self.number}"

    @property
    def bridge(self) -> str:
        return f"gpbcloud{self.number}"

    @property
    def gateway(self) -> IPv4Interface:
        return IPv4Interface(f"10.{99 + self.number}.0.1/16")

    @property
    def prefix(self) -> str:
        """Of network namespaces and links."""
        return f"gpbc{self.number}-"

    def clear(self) -> None:
        """End whatever a run left: processes, network, mounts, files."""
        names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.splitlines()
        for name in (line.split()[0] for line in names if line.startswith(self.prefix)):
            remove_namespace(name)
        while victims := self._processes():  # again: some start others meanwhile
            for process in victims:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(victims, timeout=10)
        if Path("/sys/class/net", self.bridge).exists():
            subprocess.run(["ip", "link", "del", self.bridge], capture_output=True, check=True)
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if Path(place := line.split()[1]).is_relative_to(self.folder):
                subprocess.run(["umount", "--lazy", place], check=True)
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def _processes(self) -> list[psutil.Process]:
        """SkyPilot's and gpubroker's, by their home, or by open files: SkyPilot's workers overwrite their variables."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                places = [process.environ().get("HOME", "/"), *(file.path for file in process.open_files())]
                mine = any(Path(place).is_relative_to(self.folder) for place in places)
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


@contextmanager
def taken_slot() -> Iterator[CloudSlot]:
    """The first that no other run has, cleared before and after; its folder exists and everybody may enter it. What
    killed runs left in other slots is cleared, too."""
    _PLACE.mkdir(mode=0o755, exist_ok=True)
    for slot in map(CloudSlot, range(_MOST)):
        if slot.folder.exists():
            with _held(slot) as held:
                if held:
                    slot.clear()
    for slot in map(CloudSlot, range(_MOST)):
        with _held(slot) as held:
            if not held:
                continue
            try:
                slot.clear()
                slot.folder.mkdir(mode=0o755)
                yield slot
            finally:
                slot.clear()
            return
    raise AssertionError(f"{_MOST} clouds run on this machine already")


@contextmanager
def _held(slot: CloudSlot) -> Iterator[bool]:
    """Whether no other run has it: then this one has it meanwhile."""
    lock = FileLock(_PLACE / f"{slot.number}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def remove_namespace(name: str) -> None:
    """With every process that is in it."""
    asked = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
    for pid in asked.stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), 9)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
