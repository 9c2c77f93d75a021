"""Serving: several duties side by side in one process, each in a thread of its own, until told to stop."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

_LOOK = 0.5  # seconds between two looks whether a duty broke


class Duty(Protocol):
    """Something a service does for as long as it runs."""

    @property
    def name(self) -> str: ...

    def run(self, stop: threading.Event) -> None:
        """Until ``stop`` is set; returns soon after. Mends what can be mended itself; what it raises ends the
        service."""
        ...


def serve(duties: Sequence[Duty], stop: threading.Event) -> None:
    """Run all until ``stop`` is set, then wait for each to end cleanly. When one breaks, the others are stopped and its
    exception is raised: a service that does half of its work looks healthy and is not."""
    broken: list[BaseException] = []

    def run(duty: Duty) -> None:
        try:
            duty.run(stop)
        except BaseException as error:  # noqa: BLE001  # raised again below, in the caller's thread
            broken.append(error)
            stop.set()

    threads = [threading.Thread(target=run, args=(duty,), name=duty.name) for duty in duties]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_LOOK)  # in steps, so that signals are looked at between them
    if broken:
        raise broken[0]
