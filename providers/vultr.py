"""Vultr's machines with GPUs, from its public lists of plans: on demand and preemptible, by region. No login needed.

A plan has its price for the whole machine per hour, and for some regions another one (``location_cost``). A plan that
cannot be deployed on demand may still be listed with an on-demand price: ``deploy_ondemand`` and ``deploy_preemptible``
state what is for sale. Traps: ``gpu_vram_gb`` is of the whole machine, and less than a card's where the plan has a part
of a card (an A100 of Vultr's has 80 GB, so 40 GB are half of one); bare metal may lack the ``gpu_…`` fields, then its
id says what it has. Vultr stops charging after 672 hours of a month; prices here are per hour before that. Fields:
Vultr's API v2, "List Plans" and "List Bare Metal Plans"; limit: 30 calls a second from one address; here it is one call
for each 500 plans. Read in November 2026.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import ClassVar

from broker.core.errors import Malformed
from broker.core.market.accelerators import lookup
from broker.core.market.offers import CapacityType, Offer, OfferQuery, SkippedRow
from broker.core.values.money import Money
from providers import rows as parse
from providers.http import Api, Url
from providers.listing import ListProvider, ListSettings, rows_of
from providers.rows import OfferRows, Row, RowRejected, short

_LISTS = {"/plans": "plans", "/plans-metal": "plans_metal"}
_ROWS_PER_PAGE, _MAX_PAGES = 500, 20
_WHOLE_CARD = 0.87  # share of a card's memory; a plan with less has a part of a card
_KINDS = {
    CapacityType.ON_DEMAND: ("deploy_ondemand", "hourly_cost", timedelta(hours=6)),
    CapacityType.SPOT: ("deploy_preemptible", "hourly_cost_preemptible", timedelta(minutes=30)),
}
# Vultr's own names of cards. The bare metal called L40 has the L40S.
_CARDS = {"A100": "A100-80GB"}
_METAL_PLAN = "vbm-"
_METAL = re.compile(r"(?:-(\d{1,2}))?-([a-z]+\d+[a-z]*)-gpu$")
_CARDS_OF_METAL = {"l40": "L40S", **{key.lower(): card for key, card in _CARDS.items()}}


class VultrSettings(ListSettings):
    """``base_url``: the URL above ``/plans``."""

    base_url: Url = "https://api.vultr.com/v2"


class Vultr(ListProvider[VultrSettings]):
    """Every plan with GPUs, in every region that has it."""

    name = "vultr"
    Settings: ClassVar = VultrSettings
    _source = "vultr-api"
    document, per_second = "plans", 30

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """All offers, whatever the query. Raises `RetryLater`, `Refused` and `Malformed`."""
        with self._open() as api:
            for path, key in _LISTS.items():
                yield from parse.distinct(parse.read_rows(_pages(api, path, key, self.name), self._read))

    def _read(self, row: Row) -> OfferRows:
        plan = parse.name(row.get("id"), "id")
        gpu_type = row.get("gpu_type")
        if not gpu_type and "gpu" not in plan and not plan.startswith("vcg-") and row.get("type") not in ("vcg", "vdm"):
            return
        cards = _cards(row, plan)
        regions = row.get("locations")
        if not isinstance(regions, list):
            raise RowRejected("malformed_row", f"{plan}: locations is {short(regions)}")
        if not regions:
            raise RowRejected("no_region", plan)
        location_costs = row.get("location_cost") or {}
        if not isinstance(location_costs, dict):
            raise RowRejected("malformed_row", f"{plan}: location_cost is {short(location_costs)}")
        is_sold = False
        for kind, (flag, key, max_age) in _KINDS.items():
            if not _is_sold(row, plan, flag, default=kind is CapacityType.ON_DEMAND):
                continue
            is_sold = True
            for region in regions:
                try:
                    costs = location_costs.get(region) if isinstance(region, str) else None
                    price_row = row if costs is None else costs if isinstance(costs, dict) else {}
                    hourly = parse.price(price_row.get(key), f"{plan} in {short(region)}, {kind}")
                    place = parse.name(region, f"{plan}: location")
                    yield self._offer(row, plan, cards, place, (kind, hourly, max_age))
                except RowRejected as error:
                    yield error.skipped
        if not is_sold:
            raise RowRejected("not_sold", f"{plan}: neither on demand nor preemptible")

    def _offer(
        self, row: Row, plan: str, cards: tuple[str, int], region: str, terms: tuple[CapacityType, Money, timedelta]
    ) -> Offer:
        (card, count), (kind, hourly, max_age) = cards, terms
        memory = parse.figure(row.get("ram"))
        return Offer(
            provider=self.name,
            region=region,
            zone=None,
            instance_type=plan,
            accelerator=card,
            count=count,
            capacity_type=kind,
            price=hourly,
            as_of=self._clock.now(),
            source=self._source,
            cpus=parse.figure(row.get("vcpu_count", row.get("cpu_threads"))),
            memory_gib=None if memory is None else memory / 1024,
            max_age=max_age,
        )


def _pages(api: Api, path: str, key: str, where: str) -> Iterator[object]:
    cursor = ""
    for _ in range(_MAX_PAGES):
        params = {"per_page": str(_ROWS_PER_PAGE), **({"cursor": cursor} if cursor else {})}
        answer = api.document(path, params=params)
        yield from rows_of(answer, key, where)
        meta = answer.get("meta")
        links = meta.get("links") if isinstance(meta, dict) else None
        cursor = links.get("next", "") if isinstance(links, dict) else ""
        if not cursor:
            return
        if not isinstance(cursor, str):
            raise Malformed(f"the next page of {key} is called {short(cursor)}", where=where)
    yield SkippedRow("too_many_pages", f"{key}: more than {_MAX_PAGES} pages of {_ROWS_PER_PAGE}")


def _is_sold(row: Row, plan: str, flag: str, *, default: bool) -> bool:
    value = row.get(flag, default)
    if not isinstance(value, bool):
        raise RowRejected("malformed_row", f"{plan}: {flag} is {short(value)}")
    return value


def _cards(row: Row, plan: str) -> tuple[str, int]:
    """The accelerator and how many, or one part of one."""
    gpu_type, memory = row.get("gpu_type"), parse.figure(row.get("gpu_vram_gb"))
    if not gpu_type and (metal := _METAL.search(plan)):
        return parse.accelerator(_CARDS_OF_METAL.get(metal[2], metal[2])), int(metal[1] or 1)
    text = gpu_type.partition("_")[2] if isinstance(gpu_type, str) else ""
    card = parse.accelerator(_CARDS.get(text, text), text.replace("_", " "), text.partition("_")[0])
    if memory is None and plan.startswith(_METAL_PLAN):  # a whole machine; a cloud plan may have a part of a card
        return card, parse.whole(row.get("gpu_count"), f"{plan}: gpu_count")
    if memory is None:
        raise RowRejected("malformed_row", f"{plan}: gpu_vram_gb is {short(row.get('gpu_vram_gb'))}")
    card_gb = lookup(card).memory_gb
    if memory < _WHOLE_CARD * card_gb:
        return parse.part_of_card(card, memory), 1
    count = parse.whole(round(memory / card_gb), f"{plan}: cards")
    counted = row.get("gpu_count", count)
    if abs(memory / count - card_gb) > (1 - _WHOLE_CARD) * card_gb or counted != count:
        raise RowRejected(
            "malformed_row", f"{plan}: {memory:g} GB and {short(counted)} of {card}, which has {card_gb:g}"
        )
    return card, count
