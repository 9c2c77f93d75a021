"""Verda's (formerly DataCrunch's) instances: on demand, spot, and long-term periods. Needs a client id and secret.

Prices are text (``"3.95"``), per hour of the whole instance, and the same in every location; separate queries give the
locations with on-demand and with spot stock. Each location with stock becomes an offer; a type without stock is one
sold-out offer in the region ``global``. A long-term period takes a percentage off the on-demand price. Volumes are
billed separately.
Fields: Verda's API, version 1 (OpenAPI document and official SDKs, November 2026).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from os import environ
from typing import Any, ClassVar

from pydantic import SecretStr

from broker.core.errors import GiveUp, LoginMissing, Malformed, NoLogin, Refused
from broker.core.market.offers import Availability, Billing, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import Clock
from providers import rows as parse
from providers.http import Api, HttpSettings, Url, endpoint, setting, usable_key
from providers.rows import OfferRows, Row, RowRejected, short

_ID, _SECRET = "VERDA_CLIENT_ID", "VERDA_CLIENT_SECRET"
_GLOBAL_REGION = "global"
_MONTHS = {"month": 1, "months": 1, "year": 12, "years": 12}
_MAX_AGE = {CapacityType.ON_DEMAND: timedelta(hours=2), CapacityType.SPOT: timedelta(minutes=30)}
# Each ten minutes are paid in advance (docs.verda.com, pricing and billing).
_BILLING = Billing(minimum=timedelta(minutes=10), granularity=timedelta(minutes=10))


class VerdaSettings(HttpSettings):
    """``base_url``: the URL above ``/v1/instance-types``. ``client_id``, ``client_secret``: default: VERDA_CLIENT_ID
    and VERDA_CLIENT_SECRET."""

    base_url: Url = "https://api.verda.com"
    client_id: str | None = None
    client_secret: SecretStr | None = None


@dataclass(frozen=True, slots=True)
class _LongTerm:
    """A long-term period for sale: its months, and its discount in percent."""

    months: int
    discount: Decimal


@dataclass(frozen=True, slots=True)
class _Stock:
    """The locations with stock by type; None if Verda did not answer."""

    on_demand: Mapping[str, Sequence[str]] | None
    spot: Mapping[str, Sequence[str]] | None


class Verda:
    """Every instance type of Verda, in every location that has some."""

    name = "verda"
    Settings: ClassVar = VerdaSettings
    _source = "verda-api"

    def __init__(
        self, *, clock: Clock, settings: VerdaSettings | None = None, environment: Mapping[str, str] = environ
    ) -> None:
        self._clock = clock
        self._settings = settings or VerdaSettings()
        self._id = usable_key(self._settings.client_id) or usable_key(environment.get(_ID))
        self._secret = usable_key(self._settings.client_secret) or usable_key(environment.get(_SECRET))
        setting_names = " and ".join(setting(self.name, key) for key in ("client_id", "client_secret"))
        self._how = f"set {_ID} and {_SECRET} (or {setting_names}) to credentials of Verda's API"

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """All offers, whatever the query. Missing data on stock or long-term periods is counted; the prices are
        returned without it. Raises `LoginMissing`, `RetryLater`, `Refused` and `Malformed`."""
        if self._id is None or self._secret is None:
            missing = " and ".join(key for key, value in ((_ID, self._id), (_SECRET, self._secret)) if not value)
            raise NoLogin(f"Verda's prices need a login: {missing} not set", where=self.name, hint=self._how)
        with Api(self.name, self._settings.base_url, self._settings, self._clock, login_hint=self._how) as api:
            token = self._token(api)
            rows = api.get("/v1/instance-types", params={"currency": "usd"}, token=token)
            if not isinstance(rows, list):
                raise Malformed("a list of instance types was expected", where=self.name)
            stock, terms, skipped = self._stock_and_terms(api, token)
        yield from skipped
        yield from parse.distinct(parse.read_rows(rows, lambda row: self._read(row, stock, terms)))

    def describe_setup(self) -> Mapping[str, Any]:
        present = {"client_id": self._id is not None, "client_secret": self._secret is not None}
        return {
            "endpoints": {"instance types": endpoint(self.name, "base_url", self._settings.base_url)},
            "logins": {
                key: {"found": is_set, "how": self._how, "adds": "Verda's prices, stock and long-term periods"}
                for key, is_set in present.items()
            },
        }

    def _token(self, api: Api) -> str:
        body = {"grant_type": "client_credentials", "client_id": self._id, "client_secret": self._secret}
        try:
            answer = api.post("/v1/oauth2/token", body, secret=self._secret)
        except Refused as error:  # 400 for a client that does not exist
            raise LoginMissing(error.message, where=error.where, hint=self._how) from error
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or usable_key(token) is None:
            raise Malformed("no access_token in the answer", where=self.name)
        return token.strip()

    def _stock_and_terms(self, api: Api, token: str) -> tuple[_Stock, list[_LongTerm], list[SkippedRow]]:
        """Stock and long-term periods, and skipped rows for failed queries of them."""
        skipped: list[SkippedRow] = []

        def query(path: str, **params: str) -> list[Any] | None:
            try:
                answer = api.get(path, params=params, token=token)
                if not isinstance(answer, list):
                    raise Malformed(f"a list was expected, got {short(answer)}")
            except GiveUp as error:
                skipped.append(SkippedRow("not_told", f"{path}: {error.message}"))
                return None
            return answer

        stock = _Stock(
            _by_type(query("/v1/instance-availability", is_spot="false")),
            _by_type(query("/v1/instance-availability", is_spot="true")),
        )
        terms = []
        for row in query("/v1/long-term/periods/instances") or []:
            try:
                terms += _terms(row)
            except RowRejected as error:
                skipped.append(error.skipped)
        return stock, terms, skipped

    def _read(self, row: Row, stock: _Stock, terms: Sequence[_LongTerm]) -> OfferRows:
        instance_type = parse.name(row.get("instance_type"), "instance_type")
        parse.usd(row.get("currency", "usd"))
        per_hour, spot = row.get("price_per_hour"), row.get("spot_price")
        yield from self._everywhere(row, instance_type, stock.on_demand, CapacityType.ON_DEMAND, per_hour)
        if spot is not None:
            yield from self._everywhere(row, instance_type, stock.spot, CapacityType.SPOT, spot)
        elif "spot_price" not in row:
            yield SkippedRow("no_price", f"{instance_type}: no data on spot")
        for period in terms:
            yield from self._everywhere(
                row, instance_type, stock.on_demand, CapacityType.RESERVED, per_hour, terms=period
            )

    def _everywhere(
        self,
        row: Row,
        instance_type: str,
        stock: Mapping[str, Sequence[str]] | None,
        capacity_type: CapacityType,
        amount: object,
        *,
        terms: _LongTerm | None = None,
    ) -> OfferRows:
        """The offer in each location that has the type; an invalid price is skipped once."""
        regions = [] if stock is None else stock.get(instance_type, [])
        try:
            for region in regions or [_GLOBAL_REGION]:
                reason = "" if regions or stock is None else "no location has any"
                listed_availability = Availability.UNAVAILABLE if reason else Availability.AVAILABLE
                yield self._offer(
                    row,
                    instance_type,
                    region,
                    capacity_type,
                    amount,
                    Availability.UNKNOWN if stock is None else listed_availability,
                    reason,
                    terms,
                )
        except RowRejected as error:
            yield error.skipped

    def _offer(
        self,
        row: Row,
        instance_type: str,
        region: str,
        capacity_type: CapacityType,
        amount: object,
        availability: Availability,
        reason: str,
        terms: _LongTerm | None,
    ) -> Offer:
        card, count = _cards(row, instance_type)
        exact = parse.decimal_text(amount) if isinstance(amount, str) else amount
        label = f"{instance_type} {capacity_type}"
        full = parse.price(exact, label)
        if terms is not None and isinstance(exact, int | Decimal):
            full = parse.price(exact * (100 - terms.discount), f"{label} {terms.months} months", per=100)
        return Offer(
            provider=self.name,
            region=region,
            zone=None,
            instance_type=instance_type,
            accelerator=card,
            count=count,
            capacity_type=capacity_type,
            price=full,
            as_of=self._clock.now(),
            source=self._source,
            term_months=terms.months if terms else None,
            cpus=_nested_figure(row, "cpu", "number_of_cores"),
            memory_gib=_nested_figure(row, "memory", "size_in_gigabytes"),
            interconnect=_link(row) if count > 1 else None,
            availability=availability,
            unavailable_because=reason,
            billing=_BILLING,
            max_age=_MAX_AGE.get(capacity_type, timedelta(days=3)),
        )


def _by_type(rows: list[Any] | None) -> dict[str, list[str]] | None:
    """Instance type → locations, without unreadable rows."""
    if rows is None:
        return None
    locations: dict[str, list[str]] = {}
    for row in rows:
        types = row.get("availabilities") if isinstance(row, dict) else None
        if isinstance(types, list):
            try:
                region = parse.name(row.get("location_code"), "location_code")
            except RowRejected:
                continue
            for instance_type in dict.fromkeys(kind for kind in types if isinstance(kind, str)):
                if region not in locations.setdefault(instance_type, []):
                    locations[instance_type].append(region)
    return locations


def _terms(row: object) -> list[_LongTerm]:
    """The period as a list of one; empty if it is not for sale or not counted in months. Raises `RowRejected`."""
    if not isinstance(row, dict):
        raise RowRejected("malformed_row", f"expected a long-term period, found {short(row)}")
    unit = row.get("unit_name")
    if row.get("is_enabled") is not True or not isinstance(unit, str) or unit not in _MONTHS:
        return []
    discount = parse.number(row.get("discount_percentage"), "discount_percentage")
    if not 0 <= discount < 100:
        raise RowRejected("malformed_row", f"a discount of {short(discount)} %")
    return [_LongTerm(parse.whole(row.get("unit_value"), "unit_value", maximum=120) * _MONTHS[unit], discount)]


def _cards(row: Row, instance_type: str) -> tuple[str | None, int]:
    """The accelerator and how many; the row gives the memory of all cards together. Raises `RowRejected`."""
    gpu = row.get("gpu")
    gpus = gpu.get("number_of_gpus") if isinstance(gpu, dict) else None
    if parse.number(gpus, f"{instance_type}: number_of_gpus") == 0:
        return None, 0
    count = parse.whole(gpus, "number_of_gpus")
    memory = _nested_figure(row, "gpu_memory", "size_in_gigabytes")
    return parse.accelerator(row.get("name"), row.get("model"), memory_gib=memory / count if memory else None), count


def _nested_figure(row: Row, key: str, part: str) -> float | None:
    inner = row.get(key)
    return parse.figure(inner.get(part)) if isinstance(inner, dict) else None


def _link(row: Row) -> Interconnect:
    return Interconnect.NVLINK if "SXM" in str(row.get("name")) else Interconnect.PCIE
