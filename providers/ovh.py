"""OVHcloud's GPU instances at list prices, from the public catalog of its Public Cloud. No login needed.

The catalog is of one subsidiary, in its currency; the default, WE (World, English), is in US dollars. A machine is an
addon of the product ``publiccloud-instance``: its plan for each hour ends with ``.consumption``, its price is in 1/10⁸
of a dollar without tax, and ``blobs.technical`` has its size. Traps: the same machine by the month is another plan
(``…monthly…``); ``win-`` and an ``os`` of Windows are the same machine with a license; plans without the tag ``active``
are no longer sold. ``configurations`` lists the regions that have a machine; without it, the offer is in ``worldwide``.
The catalog names the card without its form; the instances have PCIe cards (from knowledge of OVHcloud's product
pages, not from the catalog), so an H100 is the PCIe card here, which is slower than the SXM one. Fields: OVHcloud's
API console, ``GET /order/catalog/public/cloud`` (order.catalog.public.Catalog). It is one call of some MB; no limit is
published for it. Read in November 2026.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import ClassVar

from pydantic import Field

from broker.core.market.offers import CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from providers import rows as parse
from providers.http import Url
from providers.listing import ListProvider, ListSettings, rows_of
from providers.rows import OfferRows, Row, RowRejected, short

_UNITS = 10**8  # part of a dollar
_HOURLY = ".consumption"
_WORLDWIDE = "worldwide"


class OvhSettings(ListSettings):
    """``base_url``: the URL above ``/order``. ``subsidiary``: the owner of the catalog; one not in US dollars
    (``FR``, ``CA``) has no usable prices. OVHcloud US is ``https://api.us.ovhcloud.com/v1`` with ``US``."""

    base_url: Url = "https://ca.api.ovh.com/v1"
    subsidiary: str = Field(default="WE", pattern=r"^[A-Z]{2,4}$")


class Ovh(ListProvider[OvhSettings]):
    """Every GPU instance of the catalog."""

    name = "ovh"
    Settings: ClassVar = OvhSettings
    _source = "ovh-catalogue"
    document = "catalogue"

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """All offers, whatever the query: one call. Raises `RetryLater`, `Refused` and `Malformed`."""
        with self._open() as api:
            answer = api.document("/order/catalog/public/cloud", params={"ovhSubsidiary": self._settings.subsidiary})
        addons = rows_of(answer, "addons", self.name)
        locale = answer.get("locale")
        currency = locale.get("currencyCode") if isinstance(locale, dict) else None
        yield from parse.distinct(parse.read_rows(addons, lambda row: self._read(row, currency)))

    def _read(self, row: Row, currency: object) -> OfferRows:
        plan = parse.name(row.get("planCode"), "planCode")
        technical = _technical(row, plan)
        if technical is None:
            return
        gpu = technical["gpu"]
        if not isinstance(gpu, dict):
            raise RowRejected("malformed_row", f"{plan}: gpu is {short(gpu)}")
        parse.usd(currency)
        model, memory = gpu.get("model"), _size(gpu.get("memory"), "size")
        card = parse.accelerator(f"{model} PCIe" if model == "H100" else model, memory_gib=memory)
        count = parse.whole(gpu.get("number"), f"{plan}: number of GPUs")
        hourly = parse.price(_hourly(row, plan), plan, per=_UNITS)
        for region in _regions(row, plan):
            try:
                yield Offer(
                    provider=self.name,
                    region=parse.name(region, f"{plan}: region"),
                    zone=None,
                    instance_type=plan.removesuffix(_HOURLY),
                    accelerator=card,
                    count=count,
                    capacity_type=CapacityType.ON_DEMAND,
                    price=hourly,
                    as_of=self._clock.now(),
                    source=self._source,
                    cpus=_size(technical.get("cpu"), "cores"),
                    memory_gib=_size(technical.get("memory"), "size"),
                    interconnect=Interconnect.PCIE if count > 1 else None,
                    max_age=timedelta(days=1),
                )
            except RowRejected as error:
                yield error.skipped


def _technical(row: Row, plan: str) -> Row | None:
    """The size of an hourly Linux machine with GPUs; None for everything else. Raises `RowRejected` if it is
    unknown."""
    if row.get("product") not in ("publiccloud-instance", None) or not plan.endswith(_HOURLY):
        return None
    raw_blobs = row.get("blobs")
    blobs: Row = raw_blobs if isinstance(raw_blobs, dict) else {}
    technical, commercial = blobs.get("technical"), blobs.get("commercial")
    brick = commercial.get("brick") if isinstance(commercial, dict) else None
    if not isinstance(technical, dict):
        raise RowRejected("malformed_row", f"{plan}: its size is missing")
    if not technical.get("gpu"):
        if brick == "gpu":
            raise RowRejected("unknown_accelerator", f"{plan}: {short(technical.get('gpu'))}")
        return None
    system = technical.get("os")
    family = system.get("family") if isinstance(system, dict) else None
    if family == "windows" or plan.startswith("win-"):
        raise RowRejected("other_product", f"{plan}: with a Windows license")
    tags = blobs.get("tags")
    if not isinstance(tags, list) or "active" not in tags:
        raise RowRejected("not_sold", f"{plan}: its tags are {short(tags)}")
    return technical


def _hourly(row: Row, plan: str) -> object:
    """The price of an hour, in 1/10⁸."""
    pricings = row.get("pricings")
    prices = {
        pricing.get("price")
        for pricing in (pricings if isinstance(pricings, list) else ())
        if isinstance(pricing, dict) and pricing.get("intervalUnit") == "hour" and pricing.get("interval") == 1
        if not isinstance(pricing.get("price"), dict | list)
    }
    if len(prices) != 1:
        raise RowRejected("no_price", f"{plan}: {len(prices)} prices of an hour")
    return prices.pop()


def _regions(row: Row, plan: str) -> list[object]:
    configurations = row.get("configurations")
    if not configurations:
        return [_WORLDWIDE]
    if not isinstance(configurations, list) or not all(isinstance(item, dict) for item in configurations):
        raise RowRejected("malformed_row", f"{plan}: configurations is {short(configurations)}")
    values = [item.get("values") for item in configurations if item.get("name") == "region"]
    if not values:
        return [_WORLDWIDE]
    if not all(isinstance(regions, list) and regions for regions in values):
        raise RowRejected("no_region", f"{plan}: its regions are {short(values)}")
    return [region for regions in values for region in regions]


def _size(part: object, key: str) -> float | None:
    return parse.figure(part.get(key)) if isinstance(part, dict) else None
