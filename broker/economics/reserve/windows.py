"""The latest hours of a demand, kept sorted, so that any quantile is known at any time."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence


class SlidingWindow:
    """The last ``hours`` values, or fewer at the beginning. Adding one costs a search and a shift, which for windows of
    weeks is a microsecond or two."""

    def __init__(self, hours: int) -> None:
        self._hours = hours
        self._latest: deque[float] = deque(maxlen=hours)
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def extend(self, values: Sequence[float]) -> None:
        """Take many hours at once, oldest first."""
        self._latest.extend(values[-self._hours :])
        self._sorted = sorted(self._latest)

    def add(self, value: float) -> None:
        """Take the next hour's value; the oldest leaves once the window is full."""
        if len(self._latest) == self._hours:
            del self._sorted[bisect_left(self._sorted, self._latest.popleft())]
        self._latest.append(value)
        insort(self._sorted, value)

    def quantile(self, q: float) -> float:
        """The quantile ``q`` of the hours, interpolated; outside 0 to 1 the extremes; 0 for an empty window."""
        if not self._sorted:
            return 0.0
        at = min(max(q, 0.0), 1.0) * (len(self._sorted) - 1)
        low = int(at)
        high = min(low + 1, len(self._sorted) - 1)
        return self._sorted[low] + (at - low) * (self._sorted[high] - self._sorted[low])

    def level(self, share: float) -> float:
        """The largest value that at least a ``share`` of the hours reaches; 0 if none. For ``share`` ρ this is the (1 −
        ρ)-quantile of the level rule.
        """
        hours = math.ceil(share * len(self._sorted) - 1e-9)
        return self._sorted[len(self._sorted) - max(hours, 1)] if 0 <= hours <= len(self._sorted) != 0 else 0.0

    def largest(self, rank: int) -> float | None:
        """The value that ``rank`` values stand above in the order (0: the largest); None with fewer values."""
        return self._sorted[-1 - rank] if rank < len(self._sorted) else None
