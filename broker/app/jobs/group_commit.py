"""Group commit: threads that wait to write hand their work to the thread that writes next, which does it in one
transaction for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Work = TypeVar("Work")


@dataclass(eq=False, slots=True)
class _Place(Generic[Work]):
    """The place of one thread in the queue of those that wait."""

    work: Work
    over: bool = False


class GroupCommit(Generic[Work]):
    """``do`` does up to ``most`` pieces of work at once. It may leave pieces undone; their threads then do these
    themselves. An exception of ``do`` is raised in the thread that called it. ``do`` may run in two threads at once."""

    def __init__(self, do: Callable[[Sequence[Work]], None], most: int) -> None:
        self._do, self._most = do, most
        self._changed = threading.Condition()
        self._waiting: list[_Place[Work]] = []
        self._taken = False

    def take(self, work: Work) -> None:
        """Wait until ``work`` was tried, by this thread or by another one together with its own work. The main thread
        does only its own work: Ctrl-C can interrupt it between any two lines, and the waiting threads would then wait
        for ever."""
        if threading.current_thread() is threading.main_thread():
            self._do([work])
            return
        mine = _Place(work)
        with self._changed:
            self._waiting.append(mine)
            while self._taken and not mine.over:
                self._changed.wait()
            if mine.over:
                return
            self._waiting.remove(mine)
            some = [mine, *self._waiting[: self._most - 1]]
            del self._waiting[: self._most - 1]
            self._taken = True
        try:
            self._do([one.work for one in some])
        finally:
            with self._changed:
                self._taken = False
                for one in some:
                    one.over = True
                self._changed.notify_all()
