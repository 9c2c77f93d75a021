"""Exact parts made whole without losing any of their sum: the largest remainders are rounded up (Hamilton's method)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor


def whole_parts(exact: Sequence[Fraction]) -> list[int]:
    """Whole numbers that add up to the same as these, each less than one away from its own. Of equal remainders the
    first is rounded up. Raises ValueError where the sum is not whole."""
    total = sum(exact, Fraction(0))
    if total.denominator != 1:
        raise ValueError(f"parts of {total}, which is not whole")
    found = [floor(part) for part in exact]
    missing = int(total) - sum(found)
    for place in sorted(range(len(exact)), key=lambda place: found[place] - exact[place])[:missing]:
        found[place] += 1
    return found


def shared(amount: int, weights: Sequence[int]) -> list[int]:
    """An amount in proportion to weights, none of them negative and one above zero. Raises ValueError otherwise."""
    whole = sum(weights)
    if whole <= 0 or min(weights) < 0:
        raise ValueError("weights are not negative, and one of them is above zero")
    return whole_parts([Fraction(amount * weight, whole) for weight in weights])
