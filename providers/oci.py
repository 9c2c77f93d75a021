"""Oracle Cloud's GPU machines, from the two documents behind its public cost estimator; no login needed.

``shapes.json`` lists the products of each shape, ``products.json`` their prices. A machine's price is the sum of its
parts; a machine with an unpriced part is skipped. For GPU shapes the part ``ocpu`` is priced per GPU and hour. Prices
are the same in every commercial region, and the documents do not give the regions of a shape: there is one offer per
shape, in the region ``global``.

Preemptible capacity costs half of the on-demand price, where Oracle allows it (docs.oracle.com, Compute, Preemptible
Instances). That is a rule, not a listed price, so it has its own source. Billing: by the second, virtual machines at
least a minute, bare metal at least an hour (Oracle's announcement of per-second billing).
Pitfalls: GPU memory is that of the machine for most shapes, of one card for some; new shapes lack OCPUs and memory;
names contain remarks (``(NVL72)``); a product may have several prices (tiers, commitments) in many currencies.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, ClassVar

from broker.core.errors import Malformed
from broker.core.market.offers import Billing, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from providers import rows as parse
from providers.http import Url
from providers.listing import ListProvider, ListSettings
from providers.rows import OfferRows, Row, RowRejected, short

_GLOBAL_REGION = "global"
_SOURCE = "oci-estimator"
_HALF = f"{_SOURCE}:preemptible-is-half"
_MAX_AGE = timedelta(days=7)
_SHAPE = re.compile(r"(VM|BM)\.(GPU\d?)(?:\.([A-Za-z0-9-]+))?(?:\.HS)?\.(\d{1,3})", re.ASCII)
_GENERATION = re.compile(r"-v\d$")  # words about the shape, not about its cards
_REMARK = re.compile(r"\s*\([^)]*\)\s*$")
# Accelerators that the name of a shape does not spell out.
_CARDS = {"GPU2": "P100", "GPU3": "V100", "GPU4": "A100", "A100-v2": "A100-80GB", "RTXPRO": "RTXPRO6000"}
_NVLINK = frozenset({"V100", "A100", "A100-80GB", "H100", "H200", "B200", "GB200", "B300", "GB300"})
_PCIE = frozenset({"A10", "L40S", "P100", "RTXPRO6000"})


class OciSettings(ListSettings):
    """``base_url``: the URL above ``/shapes.json`` and ``/products.json``."""

    base_url: Url = "https://www.oracle.com/a/ocom/docs/cloudestimator2/data"


class Oci(ListProvider[OciSettings]):
    """Every GPU shape of Oracle Cloud, on demand, and preemptible where Oracle allows it."""

    name = "oci"
    Settings: ClassVar = OciSettings
    document = "cost estimator"

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """All offers, whatever the query. Raises `RetryLater`, `Refused` and `Malformed`."""
        with self._open() as api:
            shapes = _items(api.document("/shapes.json"), "shapes.json")
            costs = _hourly_prices(_items(api.document("/products.json"), "products.json"))
        yield from parse.distinct(parse.read_rows(shapes, lambda row: self._read(row, costs)))

    def _read(self, row: Row, costs: Mapping[str, set[Decimal]]) -> OfferRows:
        if (kind := _value(row, "subType")) != "gpu":
            if not _has_gpus(row):
                parse.name(row.get("name"), "name")  # a row without a name may have accelerators
                return
            raise RowRejected("malformed_row", f"{short(row.get('name'))}: has GPUs, but is of the kind {short(kind)}")
        raw_name = _REMARK.sub("", row["name"]) if isinstance(row.get("name"), str) else row.get("name")
        machine = parse.name(raw_name, "name")
        if row.get("status") != "ACTIVE" or row.get("hidden") is True:
            raise RowRejected("not_on_sale", f"{machine}: status {short(row.get('status'))}")
        count = parse.whole(row.get("gpuQty"), f"{machine}: gpuQty")
        card = _card(machine, row, count)
        total = _machine_price(row, machine, count, costs)
        yield self._offer(row, machine, card, count, CapacityType.ON_DEMAND, total)
        preemptible = row.get("allowPreemptible")
        if preemptible is True:
            yield self._offer(row, machine, card, count, CapacityType.SPOT, total)
        elif preemptible is not None and preemptible is not False:
            raise RowRejected("malformed_row", f"{machine}: allowPreemptible is {short(preemptible)}")

    def _offer(self, row: Row, machine: str, card: str, count: int, kind: CapacityType, total: Decimal) -> Offer:
        spot = kind is CapacityType.SPOT
        bare_metal = machine.startswith("BM.")
        return Offer(
            provider=self.name,
            region=_GLOBAL_REGION,
            zone=None,
            instance_type=machine,
            accelerator=card,
            count=count,
            capacity_type=kind,
            price=parse.price(total, f"{machine}, {kind}", per=2 if spot else 1),
            as_of=self._clock.now(),
            source=_HALF if spot else _SOURCE,
            cpus=_cpus(row, card),
            memory_gib=parse.figure(row.get("bundleMemoryQty")),
            interconnect=_link(card) if count > 1 else None,
            engine="skypilot",
            billing=Billing(minimum=timedelta(hours=1) if bare_metal else timedelta(minutes=1)),
            max_age=_MAX_AGE,
        )


def _has_gpus(row: Row) -> bool:
    """Whether a shape of another kind than ``gpu`` has GPUs by its name or its figures."""
    raw_name, count = row.get("name"), parse.figure(row.get("gpuQty"))
    return (isinstance(raw_name, str) and ".GPU" in raw_name) or count is not None


def _items(answer: object, document: str) -> list[Any]:
    items = answer.get("items") if isinstance(answer, dict) else None
    if not isinstance(items, list):
        raise Malformed(
            f"no items in {document}", where="oci", hint="Oracle may have changed it; is there a newer gpubroker?"
        )
    return items


def _hourly_prices(products: Iterable[object]) -> dict[str, set[Decimal]]:
    """The pay-as-you-go prices of each product, USD per hour: by part number, every different price listed."""
    prices: dict[str, set[Decimal]] = {}
    for product in products:
        if not isinstance(product, dict) or not isinstance(product.get("partNumber"), str):
            continue
        if str(product.get("pricetype", product.get("priceType"))).upper() != "HOUR":
            continue
        for local in _rows(product, "currencyCodeLocalizations"):
            if local.get("currencyCode") != "USD":
                continue
            for listed_price in _rows(local, "prices"):
                if listed_price.get("model") == "PAY_AS_YOU_GO":
                    try:
                        value = parse.number(listed_price.get("value"), "value")
                    except RowRejected:
                        value = Decimal("NaN")  # a known product whose price must not be used
                    prices.setdefault(product["partNumber"], set()).add(value)
    return prices


def _machine_price(row: Row, machine: str, count: int, costs: Mapping[str, set[Decimal]]) -> Decimal:
    """USD per hour of the machine. Raises `RowRejected` if one of its parts is missing or has no unique price."""
    parts = _rows(row, "products")
    if [_value(part, "type") for part in parts].count("ocpu") != 1:
        raise RowRejected("part_without_price", f"{machine}: no one product for its GPUs")
    total = Decimal(0)
    for part in parts:
        kind, part_number = _value(part, "type"), part.get("partNumber")
        prices = costs.get(part_number, set()) if isinstance(part_number, str) else set()
        if kind not in ("ocpu", "memory"):
            raise RowRejected("part_without_price", f"{machine}: a part of the kind {short(kind)}")
        if len(prices) != 1:
            raise RowRejected("part_without_price", f"{machine}: {len(prices)} prices per hour of {short(part_number)}")
        (per_hour,) = prices
        if not per_hour.is_finite() or per_hour <= 0:
            raise RowRejected("invalid_price", f"{machine}: {short(part_number)} costs {short(per_hour)}")
        parse.price(per_hour, f"{machine}: {short(part_number)}")  # only plausible figures are added
        total += per_hour * (
            count if kind == "ocpu" else parse.whole(part.get("qty"), f"{machine}: memory", maximum=100_000)
        )
    return total


def _card(machine: str, row: Row, count: int) -> str:
    """The accelerator by the shape's name; the memory decides between cards of one name."""
    parts = _SHAPE.fullmatch(machine)
    if parts is None:
        raise RowRejected("unknown_accelerator", f"{machine}: no shape of GPUs by its name")
    card_name = parts[3] or parts[2]
    card_name = card_name if card_name in _CARDS else _GENERATION.sub("", card_name)
    memory = parse.figure(row.get("gpuMemoryQty"))
    return parse.accelerator(_CARDS.get(card_name, card_name), memory_gib=memory / count if memory else None)


def _cpus(row: Row, card: str) -> float | None:
    """CPU threads: two per OCPU, one for Arm CPUs (the Grace of a GB200)."""
    ocpus = next(
        (parse.figure(part.get("qty")) for part in _rows(row, "products") if _value(part, "type") == "ocpu"), None
    )
    return None if ocpus is None else ocpus * (1 if card.startswith("G") else 2)


def _link(card: str) -> Interconnect | None:
    if card in _NVLINK:
        return Interconnect.NVLINK
    return Interconnect.PCIE if card in _PCIE else None


def _value(row: Row, key: str) -> object:
    """The estimator writes ``{"value": …}`` around a choice."""
    inner = row.get(key)
    return inner.get("value") if isinstance(inner, dict) else inner


def _rows(row: Row, key: str) -> list[Row]:
    inner = row.get(key)
    return [part for part in inner if isinstance(part, dict)] if isinstance(inner, list) else []
