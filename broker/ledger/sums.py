"""Divides an amount of money into slots of time, for stored sums. Pure; times in microseconds since 1970.

A slot's part is a difference of two rounded running totals. So the slots of an entry add up to it exactly, and whole
slots together equal the entry counted over all their time.
"""

from collections.abc import Iterator

from broker.core.values.money import divide_half_even

# In all present time zones, periods begin and end on quarters of an hour. Slots of a day make long periods quick to
# sum.
QUARTER = 900_000_000
DAY = 96 * QUARTER
SIZES = (DAY, QUARTER)


def amount_before(micros: int, covers_from: int, covers_to: int, edge: int) -> int:
    """The part of an amount for that time before ``edge``; an amount without duration belongs to its start."""
    duration = covers_to - covers_from
    if duration <= 0:
        return micros if covers_from < edge else 0
    return divide_half_even(micros * min(max(edge - covers_from, 0), duration), duration)


def amount_within(micros: int, covers_from: int, covers_to: int, left: int, right: int) -> int:
    """The part of an amount for that time in the half-open period."""
    return amount_before(micros, covers_from, covers_to, right) - amount_before(micros, covers_from, covers_to, left)


def slots(micros: int, covers_from: int, covers_to: int, size: int) -> Iterator[tuple[int, int]]:
    """The slots of ``size`` microseconds that an amount falls into, counted from 1970, and its part in each."""
    first = covers_from // size
    last = max((covers_to - 1) // size, first)
    before = 0
    for slot in range(first, last + 1):
        until = amount_before(micros, covers_from, covers_to, (slot + 1) * size)
        yield slot, until - before
        before = until


def spans(left: int, right: int) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
    """The half-open time from ``left`` to ``right`` as few ranges of whole slots (size, first slot, slot after the
    last), and the remaining ranges, which are shorter than a slot."""
    whole_slots: list[tuple[int, int, int]] = []
    remaining = [(left, right)]
    for size in SIZES:
        smaller: list[tuple[int, int]] = []
        for start, end in remaining:
            first, after = -(-start // size), end // size
            if first < after:
                whole_slots.append((size, first, after))
                smaller += [(start, first * size), (after * size, end)]
            else:
                smaller.append((start, end))
        remaining = [(start, end) for start, end in smaller if start < end]
    return whole_slots, remaining
