"""Dollars for a euro: the European Central Bank's reference rate of the day, for sources that price in euros.

The rate is read with the poll that needs it, from a public document without a login. Nobody is billed at this rate: a
card or a bank adds its own margin. The bank publishes at about 16:00 CET on its working days; two of them are at most
six days apart (Easter, Christmas), so an older rate is refused, and so is an implausible one. Source: "Euro foreign
exchange reference rates", ``eurofxref-daily.xml``, read in November 2026.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from xml.etree import ElementTree as Xml  # documents with a DTD are refused before they are parsed

from broker.core.errors import Malformed
from providers.http import Api
from providers.rows import Unfit, decimal_text, short

CURRENCY = "EUR"
ECB = "https://www.ecb.europa.eu"
_PATH = "/stats/eurofxref/eurofxref-daily.xml"
_CUBE = "{http://www.ecb.int/vocabulary/2002-08-01/eurofxref}Cube"
_OLDEST = timedelta(days=7)
_AHEAD = timedelta(days=1)  # clocks and time zones
# Dollars for a euro. From 1999 to 2026 it was between 0.82 and 1.60.
_LOWEST, _HIGHEST = Decimal("0.6"), Decimal("2")


@dataclass(frozen=True, slots=True)
class ReferenceRate:
    """``usd``: dollars for one euro, exact; ``day``: of the rate."""

    usd: Decimal
    day: date

    def __str__(self) -> str:
        return f"1 {CURRENCY} = {self.usd} USD, the European Central Bank's reference rate of {self.day}"


def ask_rate(api: Api, now: datetime) -> ReferenceRate:
    """The newest rate. Raises what `Api.text` raises, and `Malformed` for a rate that is missing, old or absurd."""
    return read_rate(api.text(_PATH), now)


def read_rate(content: bytes, now: datetime) -> ReferenceRate:
    """The rate in the bank's document. Raises `Malformed`."""
    try:
        return _rate(content, now)
    except (Unfit, ValueError, Xml.ParseError) as error:
        detail = error.detail if isinstance(error, Unfit) else str(error)
        raise Malformed(f"no rate to convert {CURRENCY} by: {detail}", where=_PATH) from error


def _rate(content: bytes, now: datetime) -> ReferenceRate:
    if b"\0" in content:  # in UTF-16, the definitions below would be overlooked
        raise ValueError("a document that is not in UTF-8")
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise ValueError("a document with entity definitions")
    days = [cube for cube in Xml.fromstring(content).iter(_CUBE) if cube.get("time")]  # noqa: S314  # definitions were refused above
    if len(days) != 1:
        raise ValueError(f"{len(days)} days in the document")
    day = date.fromisoformat(days[0].get("time", ""))
    said = [cube.get("rate") for cube in days[0].iter(_CUBE) if cube.get("currency") == "USD"]
    usd = decimal_text(said[0]) if len(said) == 1 else None
    if usd is None:
        raise ValueError(f"{len(said)} rates of the dollar")
    if not _LOWEST <= usd <= _HIGHEST:
        raise ValueError(f"{short(usd)} dollars for a euro is implausible")
    if not now - _OLDEST <= datetime(day.year, day.month, day.day, tzinfo=now.tzinfo) <= now + _AHEAD:
        raise ValueError(f"the rate is of {day}")
    return ReferenceRate(usd, day)
