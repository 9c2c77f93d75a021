"""AWS's price API (GetProducts): the bulk list's products for a few machines in all regions, with a login.

A query by instance type returns a few pages instead of gigabytes. It exists in few regions (setting
``pricing_region``). ``as_of`` is the time of the query: the answer is the list in force.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from providers.aws.login import AwsLogin
from providers.aws.products import Dimension, Term, is_plain, key, read_product
from providers.rows import OfferRows, RowRejected, short

SOURCE = "aws-price-api"

# Only fewer rows to fetch; the row itself decides what it is.
_FILTERS = {"operatingSystem": "Linux", "tenancy": "Shared", "capacitystatus": "Used", "preInstalledSw": "NA"}


def product_rows(login: AwsLogin, pricing_region: str, instance_type: str) -> Iterator[object]:
    """The products of an instance type, as AWS writes them (JSON texts). Raises what `AwsLogin.rows` raises."""
    filters = {**_FILTERS, "instanceType": instance_type}
    yield from login.rows(
        "pricing",
        pricing_region,
        "get_products",
        "PriceList",
        ServiceCode="AmazonEC2",
        FormatVersion="aws_v1",
        Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in filters.items()],
    )


def read_products(rows: Iterable[object], regions: tuple[str, ...], now: datetime) -> OfferRows:
    """The offers in these regions. A row that is not a product is skipped."""
    for row in rows:
        try:
            yield from _product(row, regions, now)
        except RowRejected as error:
            yield error.skipped


def _product(row: object, regions: tuple[str, ...], now: datetime) -> Iterator[Any]:
    try:
        document = json.loads(row) if isinstance(row, str) else row
    except (ValueError, RecursionError) as error:
        raise RowRejected("malformed_row", f"no JSON: {short(row)}") from error
    product = _mapping(document, "product", document)
    attributes = {
        key(name): value for name, value in _mapping(product, "attributes", document).items() if isinstance(value, str)
    }
    if not attributes.get("instancetype"):
        raise RowRejected("incomplete_row", f"no instanceType: {short(row)}")
    region = attributes.get("regioncode", "")
    if (region and region not in regions) or not is_plain(attributes):
        return  # the API lists every region; the settings name only some
    if not region:
        raise RowRejected("incomplete_row", f"{attributes.get('instancetype', '')}: no regionCode")
    terms: list[Term] = []
    for kind, by_code in _mapping(document, "terms", document).items():
        for term in by_code.values() if isinstance(by_code, dict) else (by_code,):
            try:
                terms.append(_term(kind, term, document))
            except RowRejected as error:
                yield error.skipped
    yield from read_product(attributes, terms, now, SOURCE)


def _term(kind: str, term: object, row: object) -> Term:
    if not isinstance(term, dict):
        raise RowRejected("malformed_row", f"no term: {short(term)}")
    attributes = term.get("termAttributes")
    attributes = attributes if isinstance(attributes, dict) else {}
    parsed = Term(
        kind=kind,
        effective=_text(term.get("effectiveDate")),
        length=_text(attributes.get("LeaseContractLength")),
        option=_text(attributes.get("PurchaseOption")),
        offering_class=_text(attributes.get("OfferingClass")),
    )
    for dimension in _mapping(term, "priceDimensions", row).values():
        prices = _mapping(dimension, "pricePerUnit", row)
        currency = "USD" if "USD" in prices else _text(next(iter(prices), ""))
        parsed.dimensions.append(Dimension(_text(dimension.get("unit")), prices.get(currency), currency))
    return parsed


def _mapping(parent: object, name: str, row: object) -> Mapping[str, Any]:
    value = parent.get(name) if isinstance(parent, dict) else None
    if not isinstance(value, dict):
        raise RowRejected("malformed_row", f"without {name!r}: {short(row)}")
    return value


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
