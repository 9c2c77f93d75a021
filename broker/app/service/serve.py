"""The service: several duties in one process, each in its own thread, until it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

_LOOK = 0.5  # seconds between two checks whether a duty failed


class Duty(Protocol):
    """Something that a service does for as long as it runs."""

    @property
    def name(self) -> str: ...

    def run(self, stop: threading.Event) -> None:
        """Run until ``stop`` is set, and return soon after. Retries what can be retried; an exception ends the
        service."""


def serve(duties: Sequence[Duty], stop: threading.Event) -> None:
    """Run all duties until ``stop`` is set, then wait for each to end. If one raises, the others are stopped and its
    exception is raised, so that no service keeps running with only some of its duties."""
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
            thread.join(_LOOK)  # in steps, so that signals are handled in between
    if broken:
        raise broken[0]
