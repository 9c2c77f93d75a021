"""Reads captured answers of providers and prints rows read, offered, and skipped by reason.

    python -m tests.market.payloads FOLDER-OR-FILE... [--json]

Which adapter an answer belongs to is told by its shape. What no adapter reads as prices is listed as such. A row may
give several offers, or none where it is of a machine without accelerators.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

from broker.core.errors import BrokerError
from broker.core.market.offers import Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from providers.aws.price_api import read_products
from providers.aws.settings import REGIONS
from tests.contracts.provider_contract import NOW
from tests.fakes.server import FakeServer, HttpAnswer, encode


@dataclass(frozen=True)
class PayloadForm:
    """One form of answers. ``rows``: the rows of a body of this form, None for another."""

    adapter: str
    rows: Callable[[Any], list[Any] | None]
    read: Callable[[Any], Iterable[Offer | SkippedRow]]


def _under(*keys: str) -> Callable[[Any], list[Any] | None]:
    def rows(body: Any) -> list[Any] | None:
        for key in keys:
            body = body.get(key) if isinstance(body, dict) else None
        return list(body.values()) if isinstance(body, dict) else body if isinstance(body, list) else None

    return rows


def _served(module: str, *arguments: str) -> Callable[[Any], Iterator[Offer | SkippedRow]]:
    """Through the adapter, in place of the answer that its tests damage; any further page is empty."""

    def read(body: Any) -> Iterator[Offer | SkippedRow]:
        answers = import_module(f"tests.providers.{module}").answers(*arguments)
        if isinstance(body, dict) and "NextPageLink" in body:
            body = {**body, "NextPageLink": None}
        hijacked = answers.hijacked()
        hijacked.body = encode(body)
        with FakeServer(hijacked) as server:
            yield from answers.make(server.url, ManualClock(NOW)).offers(OfferQuery())

    return read


def _products(body: Any) -> list[Any] | None:
    rows = body.get("PriceList") if isinstance(body, dict) else body
    if not isinstance(rows, list) or not rows:
        return None
    first = json.loads(rows[0]) if isinstance(rows[0], str) else rows[0]
    return rows if isinstance(first, dict) and "product" in first and "terms" in first else None


def _verda(body: Any) -> list[Any] | None:
    rows = [body] if isinstance(body, dict) else body
    alike = isinstance(rows, list) and rows and isinstance(rows[0], dict) and "price_per_hour" in rows[0]
    return rows if alike and "instance_type" in rows[0] else None


def _lambda(body: Any) -> list[Any] | None:
    rows = _under("data")(body)
    return rows if rows and all(isinstance(row, dict) and "instance_type" in row for row in rows) else None


def _first_has(key: str, rows: Callable[[Any], list[Any] | None]) -> Callable[[Any], list[Any] | None]:
    def found(body: Any) -> list[Any] | None:
        inside = rows(body)
        return inside if inside and isinstance(inside[0], dict) and key in inside[0] else None

    return found


FORMS = (
    PayloadForm("aws: GetProducts", _products, lambda body: read_products(_products(body) or (), REGIONS, NOW)),
    PayloadForm("azure: retail prices", _first_has("armSkuName", _under("Items")), _served("azure.test_retail")),
    PayloadForm("gcp: SKUs", _under("skus"), _served("gcp.test_fuzz")),
    PayloadForm("lambda_cloud", _lambda, _served("test_lambda_cloud")),
    PayloadForm("oci: shapes", _first_has("products", _under("items")), _served("test_oci", "shapes", "10")),
    PayloadForm("hyperstack", _first_has("flavors", _under("data")), _served("test_hyperstack")),
    PayloadForm("ovh", _first_has("planCode", _under("addons")), _served("test_ovh")),
    PayloadForm("prime_intellect", _first_has("cloudId", _under("items")), _served("test_prime_intellect")),
    PayloadForm("runpod", _under("data", "gpuTypes"), _served("test_runpod")),
    PayloadForm("scaleway", _first_has("sku", _under("products")), _served("test_scaleway")),
    PayloadForm("shadeform", _under("instance_types"), _served("test_shadeform")),
    PayloadForm("vast", _under("offers"), _served("test_vast")),
    PayloadForm("verda", _verda, lambda body: _served("test_verda")(_verda(body))),
    PayloadForm("gpuhunt: lium", _under("nodes"), _served("test_gpuhunt_tail", "lium")),
    PayloadForm("gpuhunt: digitalocean", _under("sizes"), _served("test_gpuhunt_tail", "digitalocean")),
    PayloadForm("gpuhunt: jarvislabs", _under("server_meta"), _served("test_gpuhunt_tail", "jarvislabs")),
    PayloadForm("gpuhunt: seeweb", _first_has("gpu_label", _under("plans")), _served("test_gpuhunt_tail", "seeweb")),
    PayloadForm("vultr", _first_has("hourly_cost", _under("plans")), _served("test_vultr")),
)


@dataclass(frozen=True)
class PayloadReading:
    """What an adapter made of one file. ``error``: what it gave up with, or why nobody reads the file."""

    file: str
    adapter: str = "-"
    rows: int = 0
    offers: int = 0
    skipped: tuple[tuple[str, int], ...] = ()
    examples: tuple[str, ...] = ()
    error: str = ""


def reading(file: Path) -> PayloadReading:
    if file.suffix == ".csv":
        return _price_list(file)
    try:
        body = json.loads(file.read_bytes(), parse_float=Decimal)
    except ValueError as error:
        return PayloadReading(file.name, error=f"not JSON: {error}")
    form = next((form for form in FORMS if form.rows(body) is not None), None)
    if form is None:
        return PayloadReading(file.name, error="no list of prices that an adapter reads")
    return _of(file.name, form.adapter, len(form.rows(body) or ()), form.read(body))


def _price_list(file: Path) -> PayloadReading:
    """AWS's bulk list, for whatever region is in its name."""
    from providers.aws.provider import Aws
    from providers.aws.settings import AwsSettings
    from tests.fakes.aws_files import advisor

    content = file.read_bytes()
    if not content.startswith(b'"FormatVersion"'):
        return PayloadReading(file.name, error="no list of prices that an adapter reads")
    region = next((name for name in REGIONS if name in file.name), REGIONS[0])

    def market(request: Any) -> HttpAnswer:
        return HttpAnswer(200, content if request.path.endswith(".csv") else advisor({}))

    with FakeServer(market) as server:
        url = server.url
        settings = AwsSettings(regions=(region,), price_list_url=url, spot_advisor_url=url, prices="list")
        rows = Aws(clock=ManualClock(NOW), settings=settings).offers(OfferQuery())
        return _of(file.name, "aws: price list", content.count(b"\n") - 6, rows)


def _of(file: str, adapter: str, number: int, rows: Iterable[Offer | SkippedRow]) -> PayloadReading:
    offers, skipped, examples, error = 0, Counter[str](), dict[str, str](), ""
    try:
        for row in rows:
            if isinstance(row, Offer):
                offers += 1
            else:
                skipped[row.reason] += 1
                examples.setdefault(row.reason, row.detail)
    except BrokerError as failure:
        error = str(failure)
    told = tuple(f"{reason}: {detail}" for reason, detail in examples.items())
    return PayloadReading(file, adapter, number, offers, tuple(skipped.most_common()), told, error)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.market.payloads", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, help="files, or folders of .json and .csv files")
    parser.add_argument("--json", action="store_true", help="print one document")
    asked = parser.parse_args()
    files = [file for path in asked.paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    found = [reading(file) for file in files if file.suffix in (".json", ".csv")]
    if asked.json:
        print(json.dumps([{**vars_of(one), "skipped": dict(one.skipped)} for one in found], indent=2))
        return 0
    print(f"{'file':58}{'adapter':22}{'rows':>7}{'offers':>8}{'skipped':>9}  by reason")
    for one in found:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in one.skipped) or one.error
        total = sum(count for _, count in one.skipped)
        print(f"{one.file[:56]:58}{one.adapter:22}{one.rows:>7,}{one.offers:>8,}{total:>9,}  {reasons}")
        print(*(f"{'':60}{example[:140]}" for example in one.examples), sep="\n", end="\n" if one.examples else "")
    return 0


def vars_of(one: PayloadReading) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__dataclass_fields__}


if __name__ == "__main__":
    sys.exit(main())
