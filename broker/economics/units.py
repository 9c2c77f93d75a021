"""Units of this package, and checks of inputs.

Memory is GiB (2**30 bytes); everything else is decimal: GB, TFLOPS, tokens. Amounts are USD as floats: estimates, often
below a micro-dollar, converted to `broker.core.values.money.Money` only when spent.
"""

import math
from collections.abc import Iterable

from broker.core.errors import InvalidInput

GIB = 2**30
GB = 10**9
TERA = 10**12
HOURS_PER_YEAR = 8760
MONTHS_PER_YEAR = 12
HOURS_PER_MONTH = HOURS_PER_YEAR / MONTHS_PER_YEAR

MAX_USD = 1e12
"""More than any real purchase: larger values are typos."""

MAX_PARAMETERS = 1e14
"""A hundred times the largest trained model: larger values are typos."""


def positive(name: str, value: float, unit: str = "", most: float = math.inf) -> float:
    """``value`` if it is a number above 0 and not above ``most``. Raises InvalidInput."""
    return _require_range(name, value, unit, above=0, most=most, expected=f"above 0{_up_to(most)}")


def not_negative(name: str, value: float, unit: str = "", most: float = math.inf) -> float:
    """``value`` if it is 0 or more and not above ``most``. Raises InvalidInput."""
    return _require_range(name, value, unit, least=0, most=most, expected=f"0 or more{_up_to(most)}")


def fraction(name: str, value: float) -> float:
    """``value`` if it is above 0 and at most 1. Raises InvalidInput, with advice on percentages."""
    return _require_range(name, value, "", above=0, most=1, expected="above 0, up to 1 (0.7 is 70 %)")


def share(name: str, value: float) -> float:
    """``value`` if it is at least 0 and at most 1. Raises InvalidInput, with advice on percentages."""
    return _require_range(name, value, "", least=0, most=1, expected="from 0 to 1 (0.2 is 20 %)")


def whole(name: str, value: int, least: int = 1, most: int = 10**7) -> int:
    """``value`` if it is a whole number in the range. Raises InvalidInput."""
    _require_range(name, value, "", least=least, most=most, expected=f"a whole number from {least} to {most}")
    if value != int(value):
        raise InvalidInput(f"{name}: expected a whole number, got {value!r}")
    return int(value)


def overhead(pue: float) -> float:
    """A building's power usage effectiveness if it is credible (1 to 5). Raises InvalidInput."""
    return _require_range("PUE", pue, "", least=1, most=5, expected="1 (no overhead) to 5, such as 1.2")


def parameter_count(value: float) -> float:
    """A model's number of parameters if it is credible (1 thousand to 100 trillion). Raises InvalidInput."""
    expected = "1e3 to 1e14, such as 7e9 for 7B"
    if 0 < value < 1e3:  # a number of billions
        raise InvalidInput(f"parameters: expected {expected}, got {value:g}; did you mean {value:g}B?")
    return _require_range("parameters", value, "", least=1e3, most=MAX_PARAMETERS, expected=expected)


def ceil(value: float) -> int:
    """Rounded up, ignoring rounding errors of floating point: 4000.0000000001 / 400 is 10, not 11."""
    return math.ceil(value - 1e-9 * max(1.0, abs(value)))


def _up_to(most: float) -> str:
    return "" if most == math.inf else f", up to {most:g}"


def _require_range(
    name: str,
    value: float,
    unit: str,
    *,
    expected: str,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
) -> float:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not (ok and value >= least and value > above and value <= most):
        raise InvalidInput(f"{name}: expected {expected}{' ' + unit if unit else ''}, got {value!r}")
    return value


def quantile(values: Iterable[float], q: float) -> float:
    """Linear interpolation between order statistics. Raises ValueError for no values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])
