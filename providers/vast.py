"""Vast.ai's marketplace: hosts' prices for their machines, the lowest bids, and prepaid discounts.

No login is needed; with an API key the pages are larger. One offer here is one listing of a host; ``zone`` names it,
``region`` is the country. Instance types are named as SkyPilot names Vast.ai's. A row states its kind: ``is_bid`` makes
it spot at ``min_bid``, otherwise ``dph_total`` is its on-demand price, which includes a disk of ``storage_gb``; more
disk, and traffic, are billed apart, and so is the disk of a spot machine. A lower ``discounted_dph_total`` is the price
after prepayment. Fields: Vast.ai's API reference (search offers) as of November 2026.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from os import environ
from typing import Any, ClassVar

from pydantic import Field, SecretStr

from broker.core.errors import Malformed
from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import Clock
from providers import rows as parse
from providers.http import Api, HttpSettings, Url, endpoint, setting, usable_key
from providers.rows import OfferRows, Row, RowRejected, short

_KINDS = ("on-demand", "bid", "reserved")
_PAGE = 1000  # requested rows; without a login the service sends fewer
_MAX_PAGES = 500
_SHORTEST_TERM = 1  # month; a row does not state the term of its discount, and this is the shortest term for sale
_MAX_AGE = {
    CapacityType.ON_DEMAND: timedelta(hours=1),
    CapacityType.SPOT: timedelta(minutes=30),
    CapacityType.RESERVED: timedelta(days=1),
}
_MIB_PER_GIB = 1024
_VARIABLE = "VAST_API_KEY"


class VastSettings(HttpSettings):
    """``base_url``: the URL above ``/api/v0/bundles/``. ``api_key``: optional; default: VAST_API_KEY. ``storage_gb``:
    the disk that on-demand prices include, in GB. ``verified_only``: offers of hosts that Vast.ai has not verified are
    shown as unavailable."""

    base_url: Url = "https://console.vast.ai"
    api_key: SecretStr | None = None
    storage_gb: float = Field(default=8, ge=1, le=100_000)
    verified_only: bool = True


class Vast:
    """Every listing that can be rented now, on demand, by bid, and prepaid."""

    name = "vast"
    Settings: ClassVar = VastSettings
    _source = "vast-bundles"

    def __init__(
        self, *, clock: Clock, settings: VastSettings | None = None, environment: Mapping[str, str] = environ
    ) -> None:
        self._clock = clock
        self._settings = settings or VastSettings()
        self._key = usable_key(self._settings.api_key) or usable_key(environment.get(_VARIABLE))

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """All offers, whatever the query. Raises `RetryLater`, `LoginMissing`, `Refused` and `Malformed`; earlier rows
        stay valid. A repeated page is the last one, and is counted as a `SkippedRow`."""
        yield from parse.distinct(parse.read_rows(self._rows(), self._read))

    def describe_setup(self) -> Mapping[str, Any]:
        how = f"optional: set {_VARIABLE} (vastai keeps it in ~/.config/vastai) or {setting(self.name, 'api_key')}"
        return {
            "endpoints": {"bundles": endpoint(self.name, "base_url", self._settings.base_url)},
            "logins": {"api_key": {"found": self._key is not None, "how": how, "adds": "larger pages"}},
        }

    def _rows(self) -> Iterator[object]:
        hint = f"check {setting(self.name, 'api_key')} or {_VARIABLE}; without either, prices can be queried, too"
        with Api(
            self.name,
            self._settings.base_url,
            self._settings,
            self._clock,
            login_hint=hint if self._key else "",
            per_second=2,
        ) as api:
            for kind in _KINDS:
                for row in self._pages(api, kind):
                    if kind == "bid" and isinstance(row, dict) and "is_bid" not in row:
                        row = {**row, "is_bid": None}  # a price that may be a bid does not count as on-demand
                    yield row

    def _pages(self, api: Api, kind: str) -> Iterator[object]:
        """The rows of one kind to the end, page after page by rising id."""
        last = 0
        for _ in range(_MAX_PAGES):
            rows = _listings(api.post("/api/v0/bundles/", self._search(kind, last), token=self._key))
            ids = [row["id"] for row in rows if isinstance(row, dict) and type(row.get("id")) is int]
            if last and ids and max(ids) <= last:
                yield SkippedRow("page_repeated", f"the page of {kind} offers after id {last} was repeated; {_PARTIAL}")
                return
            yield from rows
            if not rows:
                return  # the service decides on the length of a page
            if not ids:
                raise Malformed(f"no id in a page of {kind} offers", where=self.name, hint=_PARTIAL)
            last = max(ids)
        raise Malformed(f"more than {_MAX_PAGES} pages of {kind} offers", where=self.name, hint=_PARTIAL)

    def _search(self, kind: str, after: int) -> dict[str, Any]:
        query: dict[str, Any] = {
            "type": kind,
            "rentable": {"eq": True},
            "id": {"gt": after},
            "order": [["id", "asc"]],
            "limit": _PAGE,
            "allocated_storage": self._settings.storage_gb,
        }
        return query | ({"verified": {"eq": True}} if self._settings.verified_only else {})

    def _read(self, row: Row) -> OfferRows:
        listing = parse.whole(row.get("id"), "id", maximum=10**12)
        count = parse.whole(row.get("num_gpus"), "num_gpus")
        memory_mib = parse.figure(row.get("gpu_ram"))
        gpu = parse.accelerator(row.get("gpu_name"), memory_gib=memory_mib / _MIB_PER_GIB if memory_mib else None)
        if memory_mib is None:
            raise RowRejected("incomplete_row", f"offer {listing}: no gpu_ram, so it may be a smaller {gpu}")
        if row.get("is_bid", False) is True:
            yield self._offer(row, listing, gpu, count, CapacityType.SPOT, row.get("min_bid"))
            return
        if row.get("is_bid", False) is not False:
            raise RowRejected("malformed_row", f"offer {listing}: is_bid is {short(row['is_bid'])}")
        yield self._offer(row, listing, gpu, count, CapacityType.ON_DEMAND, row.get("dph_total"))
        prepaid = row.get("discounted_dph_total")
        if prepaid is None:
            return
        if parse.number(prepaid, f"offer {listing}: discounted_dph_total") < parse.number(
            row["dph_total"], "dph_total"
        ):
            yield self._offer(row, listing, gpu, count, CapacityType.RESERVED, prepaid)

    def _offer(
        self, row: Row, listing: int, gpu: str, count: int, capacity_type: CapacityType, per_hour: object
    ) -> Offer:
        reason = self._unavailable(row)
        reserved = capacity_type is CapacityType.RESERVED
        return Offer(
            provider=self.name,
            region=_country(row.get("geolocation")),
            zone=f"offer-{listing}",
            instance_type=_type_name(row, count),
            accelerator=gpu,
            count=count,
            capacity_type=capacity_type,
            price=parse.price(per_hour, f"offer {listing} {capacity_type}"),
            as_of=self._clock.now(),
            source=self._source,
            term_months=_SHORTEST_TERM if reserved else None,
            cpus=parse.figure(row.get("cpu_cores_effective")),
            memory_gib=_memory_gib(row),
            interconnect=None if count == 1 else _link(row),
            availability=Availability.UNAVAILABLE if reason else Availability.AVAILABLE,
            unavailable_because=reason,
            score=_reliability(row),
            slots=None if reason else 1,
            engine=None,  # no engine rents this listing: SkyPilot takes the cheapest of its own search
            max_age=_MAX_AGE[capacity_type],
        )

    def _unavailable(self, row: Row) -> str:
        if row.get("rentable") is False or row.get("rented") is True:
            return "rented by another user"
        if self._settings.verified_only and row.get("verification") in ("unverified", "deverified"):
            return f"Vast.ai has not verified the host; {setting(self.name, 'verified_only')}=false allows such hosts"
        return ""


_PARTIAL = "only a part of the market was read; the offers before it are kept"


def _listings(answer: object) -> list[object]:
    offers = answer.get("offers") if isinstance(answer, dict) else None
    if isinstance(offers, list):
        return offers
    if isinstance(offers, dict):  # a single offer, as in the reference's example
        return [offers]
    message = (answer.get("msg") or answer.get("error")) if isinstance(answer, dict) else None
    raise Malformed(f"no offers in the answer{f': {short(message)}' if message else ''}", where="vast")


def _country(geolocation: object) -> str:
    """``NO`` of ``Oslo, NO``; the whole name without a comma, ``unknown`` without a name."""
    if geolocation is None:
        return "unknown"
    return parse.name(geolocation.rpartition(",")[2] if isinstance(geolocation, str) else geolocation, "geolocation")


def _type_name(row: Row, count: int) -> str:
    """As SkyPilot names it: ``1x-RTX_4090-24-64393``, with the host's CPU cores and its memory in MB."""
    card = str(row["gpu_name"]).strip().replace(" ", "_")
    parts = [
        part for part in (parse.figure(row.get("cpu_cores")), parse.figure(row.get("cpu_ram"))) if part is not None
    ]
    return parse.name(
        "-".join([f"{count}x", card, *(f"{part:g}" if part < 1e6 else str(int(part)) for part in parts)]), "type"
    )


def _memory_gib(row: Row) -> float | None:
    """The host's memory × the listing's share of the cores; more is not guaranteed."""
    whole_mib, cores, effective = (
        parse.figure(row.get(key)) for key in ("cpu_ram", "cpu_cores", "cpu_cores_effective")
    )
    if whole_mib is None:
        return None
    share = min(1.0, effective / cores) if effective and cores else 1.0
    return round(whole_mib / _MIB_PER_GIB * share, 1) or None


def _link(row: Row) -> Interconnect:
    return Interconnect.NVLINK if parse.figure(row.get("bw_nvlink")) else Interconnect.PCIE


def _reliability(row: Row) -> float | None:
    score = parse.figure(row.get("reliability2", row.get("reliability")))
    return score if score is not None and score <= 1 else None
