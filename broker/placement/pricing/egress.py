"""Costs of data transfer between regions, from the dated list prices in ``egress.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources

from broker.core.values.money import Money


@dataclass(frozen=True, slots=True)
class EgressRate:
    """One row: USD per GB (10⁹ bytes) from a place matching ``origin`` to one matching ``destination``.

    Patterns are shell-style over ``provider/region``. ``source`` and ``as_of``: publisher and date.
    """

    origin: str
    destination: str
    per_gb: Money
    source: str
    as_of: date


FREE = EgressRate("*", "*", Money.ZERO, "stays in its region", date.min)


@cache
def rates() -> tuple[EgressRate, ...]:
    """The table, in the order in which rows are tried."""
    text = resources.files(__package__).joinpath("egress.toml").read_text(encoding="utf-8")
    return tuple(
        EgressRate(row["from"], row["to"], Money.usd(row["usd_per_gb"]), row["source"], row["as_of"])
        for row in tomllib.loads(text)["rate"]
    )


@cache
def egress_rate(origin: str, destination: str) -> EgressRate:
    """The rate for data going from ``origin`` to ``destination`` (both ``provider/region``); free within one region."""
    if origin == destination:
        return FREE
    return next(
        rate for rate in rates() if fnmatchcase(origin, rate.origin) and fnmatchcase(destination, rate.destination)
    )
