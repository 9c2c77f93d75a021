"""List prices copied by hand into pricebook.toml: reference prices, not live ones.

They let a fresh install show and compare a market before any account is set up. Rows have the real provider's name, the
page and the date on which it showed the price, and no age limit; live rows of the same pool replace them. A policy
decides whether a launch may use such a price (``allow_reference_prices``).
"""

import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from broker.core.errors import InvalidInput, UnknownName
from broker.core.market.accelerators import canonical
from broker.core.market.offers import Billing, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import Clock
from broker.core.values.money import Money
from providers.registry import ProviderSettings


def _positive(price: Money) -> Money:
    if price.micros <= 0:
        raise ValueError("a price is more than 0")
    return price


Price = Annotated[Money, AfterValidator(_positive)]


class _PricebookTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PricePage(_PricebookTable):
    """One price page, as read on ``date``: the common properties of its machines.

    ``per_gpu``: the page's prices are for one accelerator, and a machine costs that times its count. Billing as the
    provider states it: at least ``minimum_seconds``, then steps of ``granularity_seconds``; spot is free when it is
    interrupted within ``spot_free_minutes``. ``engine``: the engine that could run jobs there.
    """

    provider: str
    source: str = Field(min_length=1)
    url: str = Field(min_length=1)
    date: date
    region: str
    engine: str | None = None
    per_gpu: bool = False
    minimum_seconds: float = Field(default=0, ge=0)
    granularity_seconds: float = Field(default=1, gt=0)
    spot_free_minutes: float = Field(default=0, ge=0)
    machines: tuple[dict[str, Any], ...] = ()


class PricebookMachine(_PricebookTable):
    """One line of a page: ``n`` times ``gpu``, or a machine without any. Prices in USD per hour; reserved ones by term
    in months, as total / (years × 8760)."""

    type: str
    gpu: str | None = None
    n: int = Field(default=1, ge=1)
    vcpus: float | None = Field(default=None, gt=0)
    gib: float | None = Field(default=None, gt=0)
    link: Interconnect | None = None
    region: str | None = None
    on_demand: Price | None = None
    spot: Price | None = None
    reserved: dict[int, Price] = Field(default_factory=dict)


class PricebookSettings(ProviderSettings):
    """``file``: another price book in the same format, instead of the one that comes with gpubroker."""

    file: Path | None = None


class Pricebook:
    """The rows of the price book as offers of the providers they name."""

    name = "pricebook"
    Settings: ClassVar = PricebookSettings

    def __init__(self, *, clock: Clock, settings: PricebookSettings | None = None) -> None:
        self._clock = clock
        self._file = (settings or PricebookSettings()).file

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """Every row, whatever the query. A row that does not fit the form, names an unknown accelerator or is dated
        in the future is skipped. Raises `InvalidInput` when the file cannot be read or is not TOML."""
        today = self._clock.now().date()
        for number, raw in enumerate(self._tables(), start=1):
            try:
                page = PricePage.model_validate(raw)
            except ValidationError as error:
                yield SkippedRow("malformed_page", f"page {number}: {_first_problem(error)}")
                continue
            if page.date > today:
                yield SkippedRow("dated_in_the_future", f"page {number}: {page.source}, {page.date}")
                continue
            for line in page.machines:
                yield from _offers(page, line)

    def _tables(self) -> list[Any]:
        where = str(self._file or "pricebook.toml")
        try:
            pages = _parse((self._file or files("providers").joinpath("pricebook.toml")).read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"cannot read the price book: {error}", where=where) from error
        except tomllib.TOMLDecodeError as error:
            raise InvalidInput(f"the price book is not a TOML file: {error}", where=where) from error
        if not isinstance(pages.get("pages"), list):
            raise InvalidInput("a price book has [[pages]]; this file has none", where=where)
        return list(pages["pages"])


@lru_cache(maxsize=1)
def _parse(text: str) -> Mapping[str, Any]:
    """A price book that is polled again is parsed again only when its text has changed."""
    return tomllib.loads(text)


def _offers(page: PricePage, line: Mapping[str, Any]) -> Iterator[Offer | SkippedRow]:
    try:
        machine = PricebookMachine.model_validate(line)
        accelerator = canonical(machine.gpu) if machine.gpu else None
    except ValidationError as error:
        yield SkippedRow("malformed_row", f"{page.source}: {line.get('type', '?')}: {_first_problem(error)}")
        return
    except UnknownName as error:
        yield SkippedRow("unknown_accelerator", f"{page.source}: {machine.type}: {error}")
        return
    prices = [
        (CapacityType.ON_DEMAND, None, machine.on_demand),
        (CapacityType.SPOT, None, machine.spot),
        *((CapacityType.RESERVED, months, price) for months, price in machine.reserved.items()),
    ]
    for capacity_type, months, price in prices:
        if price is not None:
            yield _offer(page, machine, accelerator, capacity_type, months, price)


def _offer(
    page: PricePage,
    machine: PricebookMachine,
    accelerator: str | None,
    capacity_type: CapacityType,
    months: int | None,
    price: Money,
) -> Offer:
    spot = capacity_type is CapacityType.SPOT
    return Offer(
        provider=page.provider,
        region=machine.region or page.region,
        zone=None,
        instance_type=machine.type,
        accelerator=accelerator,
        count=machine.n if accelerator else 0,
        capacity_type=capacity_type,
        price=price * machine.n if page.per_gpu else price,
        as_of=datetime.combine(page.date, time(), UTC),
        source=Pricebook.name,
        term_months=months,
        cpus=machine.vcpus,
        memory_gib=machine.gib,
        interconnect=machine.link,
        engine=page.engine if months is None else None,  # a term has to be bought before it runs anything
        reference=True,
        billing=Billing(
            minimum=timedelta(seconds=page.minimum_seconds),
            granularity=timedelta(seconds=page.granularity_seconds),
            free_if_interrupted_within=timedelta(minutes=page.spot_free_minutes if spot else 0),
        ),
    )


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_context=False)[0]
    return f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
