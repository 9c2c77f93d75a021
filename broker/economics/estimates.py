"""Estimates as text with three significant digits, as many as their inputs justify."""

from __future__ import annotations

from math import ceil, floor, isfinite, log10

DIGITS = 3
"""Significant digits of a shown estimate: prices move by more than the fourth within days, and speeds are known to a
tenth."""


def rounded(value: float, to: int = DIGITS) -> float:
    """The value with ``to`` significant digits; infinite values and NaN stay unchanged."""
    return float(f"{value:.{to}g}") if isfinite(value) else value


def limit(amount: float) -> float:
    """A limit (USD) above an estimate: rounded up to three significant digits."""
    if not isfinite(amount) or amount <= 0:
        return amount
    step = 10.0 ** (floor(log10(amount)) - DIGITS + 1)
    return round(ceil(round(amount / step, 6)) * step, 6)


def count_text(value: float) -> str:
    """``7B``, ``1.5T``, ``350M``."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if value >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:g}"


def about(amount: float) -> str:
    """USD: ``$11,100``, ``$58.1``, ``$4.31``, ``$0.163``."""
    return f"{'-' if rounded(amount) < 0 else ''}${digits(abs(amount), cents=True)}"


def digits(value: float, *, cents: bool = False) -> str:
    """A number: ``1,190``, ``58.1``, ``4.31``, ``0.163``. ``cents``: at least two decimals below 10."""
    near = rounded(value)
    if not isfinite(near) or abs(near) >= 100:
        return f"{near:,.0f}"
    if cents and 0.1 <= abs(near) < 10:
        return f"{near:.2f}" if abs(near) >= 1 else f"{near:.3f}"
    return f"{near:.{_decimals(near)}f}" if near else "0"


def _decimals(near: float) -> int:
    """The decimals that show a rounded value below 100, without zeros at the end."""
    _, _, exponent = f"{near:.{DIGITS - 1}e}".partition("e")
    most = max(0, DIGITS - 1 - int(exponent))
    shown = f"{near:.{most}f}".rstrip("0")
    return len(shown.partition(".")[2])
