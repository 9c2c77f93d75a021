"""The long tail of GPU clouds, through the library gpuhunt (the optional install ``gpuhunt``), each as a provider of
its own: cloudrift, crusoe, daytona, digitalocean, hotaisle, jarvislabs, lium, seeweb; vultr on request.

Some need a login, in the variables that gpuhunt reads; without it they are left out. A failure of one does not stop the
others; it is raised at the end. Machines without accelerators are not read.

gpuhunt does not report availability or the time of a price. Prices are floats
there; their shortest decimal form is what the cloud wrote. Traps: a part of a card is counted as one card with little
memory (it is ``L40S-1of4`` here); the prices of Crusoe are written in gpuhunt's code, so they are reference prices
here, dated as that, and say so in their source; that of Crusoe's B200 is a guess, and left out; Lium's H100 may be the
SXM or the PCIe card, and gpuhunt drops which. Written for gpuhunt 0.1.34 (November 2026).
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from os import environ
from typing import Any, ClassVar

from pydantic import field_validator

from broker.core.errors import NoLogin, UnknownName
from broker.core.market.offers import CapacityType, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import Clock
from providers.catalogue.layout import card, whole_or_part
from providers.failures import Failures
from providers.gpuhunt_clouds import CLOUDS, NAME, CloudReport, GpuhuntCloud, query_cloud
from providers.http import HttpSettings, Url, endpoint
from providers.rows import OfferRows, RowRejected, distinct, figure, name, number, price, short, whole

_MAX_AGE = {CapacityType.ON_DEMAND: timedelta(hours=6), CapacityType.SPOT: timedelta(minutes=30)}
_BY_DEFAULT = tuple(name for name in CLOUDS if name != "vultr")
_GUESSED = {("crusoe", "B200")}
# The date of gpuhunt 0.1.34 (of the files in its wheel): the latest known date of the prices in its code.
_PRICES_DATED = datetime(2026, 10, 20, tzinfo=UTC)


class GpuhuntSettings(HttpSettings):
    """``clouds``: the clouds to query; default: all but Vultr, which has an adapter of its own. ``base_url``: another
    address for all, each under its name, such as ``…/vultr/v2/plans``; default: their own addresses."""

    clouds: tuple[str, ...] = ()
    base_url: Url | None = None

    @field_validator("clouds")
    @classmethod
    def _known(cls, clouds: tuple[str, ...]) -> tuple[str, ...]:
        for cloud in clouds:
            if cloud not in CLOUDS:
                raise ValueError(str(UnknownName("cloud", cloud, CLOUDS)))
        return clouds


class Gpuhunt:
    """Machines with accelerators of many small clouds."""

    name = NAME
    Settings: ClassVar = GpuhuntSettings

    def __init__(
        self, *, clock: Clock, settings: GpuhuntSettings | None = None, environment: Mapping[str, str] = environ
    ) -> None:
        self._clock = clock
        self._settings = settings or GpuhuntSettings()
        self._environment = environment

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """All offers, whatever the query. Clouds without a required login are left out; raises `NoLogin` if none is
        left. Failures of clouds are raised at the end (`RetryLater`, `LoginMissing`, `GiveUp`); `MissingExtra` at
        once."""
        clouds = [CLOUDS[name] for name in self._settings.clouds or _BY_DEFAULT]
        queryable = [cloud for cloud in clouds if cloud.can_query(self._environment)]
        if not queryable:
            variables = "; ".join(f"{cloud.name}: {', '.join(cloud.needs.values())}" for cloud in clouds)
            raise NoLogin("none of the selected clouds has a login", where=NAME, hint=f"set {variables}")
        failures = Failures()
        yield from distinct(self._everywhere(queryable, failures))
        failures.raise_any()

    def describe_setup(self) -> Mapping[str, Any]:
        base = self._settings.base_url
        return {
            "endpoints": {
                cloud.name: endpoint(NAME, "base_url", f"{base}/{cloud.name}" if base else cloud.address)
                for cloud in CLOUDS.values()
            },
            "logins": {
                cloud.name: {
                    "found": len(cloud.login(self._environment)) == len(cloud.variables),
                    "how": f"set {' and '.join(cloud.variables)}",
                    "adds": f"prices of {cloud.name}" if cloud.needs else f"availability at {cloud.name}",
                }
                for cloud in CLOUDS.values()
                if cloud.variables
            },
        }

    def _everywhere(self, clouds: list[GpuhuntCloud], failures: Failures) -> OfferRows:
        """Queries the clouds concurrently, and yields their rows in the order of the clouds."""
        base = self._settings.base_url

        def query(cloud: GpuhuntCloud) -> CloudReport:
            return query_cloud(cloud, self._settings, base, self._clock, cloud.login(self._environment))

        with ThreadPoolExecutor(len(clouds), NAME) as threads:
            for report in threads.map(query, clouds):
                yield from self._read(report)
                if report.error is not None:
                    failures.add(report.error)

    def _read(self, report: CloudReport) -> OfferRows:
        for line in report.passed_over:
            if not any(variable in line for variable in report.cloud.variables):  # needs a login: not lost
                yield SkippedRow("passed_over_by_gpuhunt", f"{report.cloud.name}: {short(line)}")
        for item in report.items:
            try:
                if offer := self._offer(report.cloud, item):
                    yield offer
            except RowRejected as error:
                yield SkippedRow(error.reason, f"{report.cloud.name}: {error.detail}")

    def _offer(self, cloud: GpuhuntCloud, item: Any) -> Offer | None:
        """The item as an offer, None for a machine without accelerators. Raises `RowRejected`."""
        machine = name(item.instance_name, "instance_name")
        region = name(item.location, f"{machine}: location")
        if len(region) == 1:  # gpuhunt reads a text in place of a list of regions letter by letter
            raise RowRejected("malformed_row", f"{machine}: a region called {short(region)}")
        if _exact(item.gpu_count, f"{machine}: gpu_count") == 0:
            if item.gpu_name or "gpu" in machine.lower():
                raise RowRejected("malformed_row", f"{machine}: its GPUs are missing")
            return None
        count = whole(_exact(item.gpu_count, "gpu_count"), f"{machine}: gpu_count")
        accelerator_name = _card(item, machine)
        if (cloud.name, accelerator_name) in _GUESSED:
            raise RowRejected("guessed_price", f"{machine}: gpuhunt's own guess")
        now = self._clock.now()
        kind = CapacityType.SPOT if item.spot is True else CapacityType.ON_DEMAND
        return Offer(
            provider=cloud.name,
            region=region,
            zone=None,
            instance_type=machine,
            accelerator=accelerator_name,
            count=count,
            capacity_type=kind,
            price=price(_exact(item.price, f"{machine}: price"), f"{machine} in {region}"),
            as_of=min(_PRICES_DATED, now) if cloud.has_static_prices else now,
            source=_price_source() if cloud.has_static_prices else NAME,
            cpus=_figure(item.cpu),
            memory_gib=_figure(item.memory),
            reference=cloud.has_static_prices,
            max_age=None if cloud.has_static_prices else _MAX_AGE[kind],
        )


def _price_source() -> str:
    """The source of prices that stand in gpuhunt's code."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"{NAME}-{version(NAME)}:price-in-its-code"
    except PackageNotFoundError:
        return f"{NAME}:price-in-its-code"


def _card(item: Any, machine: str) -> str:
    memory = _figure(item.gpu_memory)
    return whole_or_part(card(str(item.gpu_name), memory_gib=memory, machine=machine), memory)


def _exact(value: object, label: str) -> Decimal:
    """A float as the decimal number that it was written as. Raises `RowRejected`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RowRejected("malformed_row", f"{label} is not a number: {short(value)}")
    return number(Decimal(repr(value)), label)


def _figure(value: object) -> float | None:
    return None if isinstance(value, bool) or not isinstance(value, int | float) else figure(Decimal(repr(value)))
