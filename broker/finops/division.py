"""Rounds exact parts to whole numbers with the same sum: the largest remainders are rounded up (Hamilton's method)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor


def whole_parts(exact: Sequence[Fraction]) -> list[int]:
    """Whole numbers with the same sum, each less than one away from its exact part. Of equal remainders the first is
    rounded up. Raises ValueError if the sum is not whole."""
    total = sum(exact, Fraction(0))
    if total.denominator != 1:
        raise ValueError(f"the sum of the parts is not whole: {total}")
    found = [floor(part) for part in exact]
    missing = int(total) - sum(found)
    for place in sorted(range(len(exact)), key=lambda place: found[place] - exact[place])[:missing]:
        found[place] += 1
    return found


def shared(amount: int, weights: Sequence[int]) -> list[int]:
    """Divides an amount in proportion to ``weights``. Raises ValueError for a negative weight or if all are zero."""
    whole = sum(weights)
    if whole <= 0 or min(weights) < 0:
        raise ValueError("expected weights of 0 or more, and at least one above 0")
    return whole_parts([Fraction(amount * weight, whole) for weight in weights])
