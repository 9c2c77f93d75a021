"""A simulation over time: GPUs in use, waiting jobs, and spend, in slots of whole hours."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate

from broker.core.market.offers import CapacityType, MoneyKind
from broker.whatif.workload import DAY, HOUR

_MOST_SLOTS = 240


class Slots:
    """The integral of something over time, by slot. Each stretch is added in constant time, however long it is."""

    def __init__(self, count: int, width: int) -> None:
        self._width, self._count = width, count
        self._parts = array("d", bytes(8 * (count + 1)))  # the parts of slots in which a stretch begins or ends
        self._whole = array("d", bytes(8 * (count + 2)))  # changes of the height, from one whole slot to the next

    def add(self, start: int, end: int, height: float) -> None:
        """``height`` from one second to another, cut at the last slot."""
        width = self._width
        end = min(end, self._count * width)
        if start >= end or not height:
            return
        first, last = start // width, end // width
        if first == last:
            self._parts[first] += height * (end - start)
            return
        self._parts[first] += height * ((first + 1) * width - start)
        self._parts[last] += height * (end - last * width)
        self._whole[first + 1] += height
        self._whole[last] -= height

    def means(self) -> list[float]:
        """The mean height in each slot."""
        heights = list(accumulate(self._whole))
        return [self._parts[slot] / self._width + heights[slot] for slot in range(self._count)]


class OverTime:
    """The slots of one simulation of ``days`` days of arrivals; later days are left out. ``gpus``: in use, by capacity
    type; ``spending``: micro-dollars per second, by kind of money; ``waiting``: jobs."""

    def __init__(self, days: int) -> None:
        hours = days * DAY // HOUR
        self.step = -(-hours // _MOST_SLOTS) * HOUR
        self._count = -(-hours * HOUR // self.step)
        self.gpus: dict[CapacityType, Slots] = {}
        self.spending: dict[MoneyKind, Slots] = {}
        self.waiting = self._slots()
        self._waiting_since, self._number = 0, 0

    def _slots(self) -> Slots:
        return Slots(self._count, self.step)

    def ran(self, start: int, end: int, gpus: int, kind: CapacityType) -> None:
        """Machines with so many accelerators ran from one second to another."""
        if (found := self.gpus.get(kind)) is None:
            found = self.gpus[kind] = self._slots()
        found.add(start, end, gpus)

    def paid(self, start: int, end: int, micros: int, kind: MoneyKind) -> None:
        """``micros`` micro-dollars were spent evenly over a time."""
        if (found := self.spending.get(kind)) is None:
            found = self.spending[kind] = self._slots()
        found.add(start, end, micros / max(end - start, 1))

    def wait(self, at: int, number: int) -> None:
        """From this second on, ``number`` jobs wait."""
        self.waiting.add(self._waiting_since, at, self._number)
        self._waiting_since, self._number = at, number

    def waiting_means(self) -> Sequence[float]:
        """The mean number of waiting jobs in each slot; none after the last call of `wait`."""
        return self.waiting.means()
