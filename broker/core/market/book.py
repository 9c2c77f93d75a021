"""A price book: list prices copied by hand, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Protocol, runtime_checkable

from broker.core.market.offers import Offer


@dataclass(frozen=True, slots=True)
class BookPage:
    """One page as it was read on ``day``. ``url``: where to check it again; ``title``: its name there."""

    provider: str
    title: str
    url: str
    day: date
    offers: tuple[Offer, ...]


@runtime_checkable
class HasPages(Protocol):
    """A provider whose prices are copied pages."""

    def pages(self) -> Iterator[BookPage]:
        """Every page that can be read. Raises `InvalidInput` if the book cannot be read at all."""
