"""The published lists of savings plans: rates per machine and hour of one region, without a login.

An index names the file of each region; the file is CSV with a line for each plan and each kind of use that it covers.
`providers.aws.savings_plans` describes the rates. Layout: AWS Price List user guide, "Reading the service price list
file for a Savings Plan".
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from urllib.parse import urlsplit

from broker.core.errors import Malformed
from broker.core.market.offers import CapacityType, Offer, SkippedRow
from broker.core.values.clock import Clock
from providers.aws.list_file import ListFiles, check_header
from providers.aws.machines import machine
from providers.aws.products import NOT_YET, key, offer_of
from providers.aws.savings_plans import OPTIONS
from providers.aws.settings import NAME, PLANS_PATH, AwsSettings
from providers.failures import Failures
from providers.http import Api
from providers.rows import OfferRows, RowRejected, decimal_text, price, short, usd

SOURCE = "aws-savings-plan-list"

_URL_KEY = "savings_plan_list_url"
_NEEDED = ("unit", "effectivedate", "discountedrate", "currency", "discountedusagetype", "discountedoperation",
           "purchaseoption", "leasecontractlength", "leasecontractlengthunit", "productfamily",
           "discountedregioncode", "discountedinstancetype")  # fmt: skip
_FAMILIES = {"ComputeSavingsPlans": "compute", "EC2InstanceSavingsPlans": "ec2-instance"}
_MONTHS = {"1": 12, "3": 36}
# Lines about machines with accelerators; the name also stands in the usage type.
_GPU_TYPE = re.compile(rb"[,\":](?:p\d|g\d|gr\d|trn\d|inf\d|dl\d|f\d|vt\d)[a-z0-9-]*\.", re.IGNORECASE).search
_PLAIN_USE = re.compile(r"(?:[A-Z0-9]+-)?BoxUsage:[a-z0-9.-]+")
_OTHER_USE = re.compile(
    r"(?:[A-Z0-9]+-)?(?:UnusedBox|DedicatedUsage|UnusedDed|HostBoxUsage|HostUsage|DedicatedRes|UnusedDedicatedRes|"
    r"Reservation):[a-z0-9.-]+"
)
_OTHER_SYSTEM = re.compile(r"RunInstances:[A-Za-z0-9]+")  # Windows, RHEL and others


class SavingsPlanLists:
    """The lists of all regions; one object may be used repeatedly."""

    def __init__(self, settings: AwsSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._files = ListFiles(settings, clock, _URL_KEY)

    def offers(self, regions: tuple[str, ...]) -> OfferRows:
        """The rates of these regions. A region that fails does not stop the others. Raises what `Api.get` and
        `ListFiles.read` raise."""
        settings = self._settings
        with Api(NAME, settings.savings_plan_list_url, settings, self._clock, url_key=_URL_KEY) as api:
            paths = _paths(api.document(PLANS_PATH))
        failures = Failures()
        for region in regions:
            path = paths.get(region)
            if path is None:
                yield SkippedRow("no_list", f"{region}: not in the index of savings plans")
                continue
            url = settings.savings_plan_list_url + path
            yield from failures.kept(self._files.read(url, partial(_PlanReader, region)))
        failures.raise_any()


def _paths(index: object) -> Mapping[str, str]:
    """The path of each region's list as CSV. The index names those as JSON; both are published side by side."""
    regions = index.get("regions") if isinstance(index, dict) else None
    if not isinstance(regions, list):
        raise Malformed("the index of savings plans has no 'regions'", where=NAME)
    paths = {}
    for row in regions:
        code, path = (row.get("regionCode"), row.get("versionUrl")) if isinstance(row, dict) else (None, None)
        if isinstance(code, str) and isinstance(path, str) and path.startswith("/") and path.endswith(".json"):
            paths[code] = urlsplit(path.removesuffix("json") + "csv").path
    return paths


class _PlanReader:
    """Parses the lines of one list and keeps the plain machines with accelerators."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._columns: dict[str, int] = {}
        self._width = 0
        self._lines = 0
        self._found: list[dict[str, str]] = []
        self._skipped: list[SkippedRow] = []

    def line(self, raw: bytes) -> None:
        if self._columns:
            self._lines += 1
            if not _GPU_TYPE(raw) and raw.count(b",") >= self._width - 1:
                return
        try:
            row = next(csv.reader((raw.decode("utf-8", "replace").replace("\0", ""),)), [])
        except csv.Error as error:
            self._skip("malformed_row", f"not CSV: {error}")
            return
        if not self._columns:
            names = [key(name) for name in row]
            if "sku" in names:
                self._columns = {name: index for index, name in reversed(list(enumerate(names)))}
                self._width = len(row)
        elif len(row) != self._width:
            self._skip("malformed_row", f"{len(row)} columns, not {self._width}: {','.join(row[:3])}")
        elif all(name in self._columns for name in _NEEDED):
            self._row({name: row[self._columns[name]].strip() for name in _NEEDED})

    def _row(self, row: dict[str, str]) -> None:
        use, system = row["discountedusagetype"], row["discountedoperation"]
        if _OTHER_USE.fullmatch(use) or _OTHER_SYSTEM.fullmatch(system):
            return
        if row["discountedregioncode"].startswith(f"{self._region}-"):  # a local zone
            return
        if not _PLAIN_USE.fullmatch(use) or system != "RunInstances":
            self._skip("unknown_usage", f"{short(use)}, {short(system)}")
        else:
            self._found.append(row)

    def check(self, where: str) -> None:
        check_header(self._columns, _NEEDED, "list of savings plans", where)
        if not self._lines:
            raise Malformed("a list of savings plans without a single rate", where=where)

    def rows(self, now: datetime) -> Iterator[Offer | SkippedRow]:
        for row in self._found:
            try:
                yield _offer(row, self._region, now)
            except RowRejected as error:
                yield error.skipped
        yield from self._skipped

    def _skip(self, reason: str, detail: str) -> None:
        self._skipped.append(SkippedRow(reason, f"{self._region}: {detail}"))


def _offer(row: Mapping[str, str], region: str, now: datetime) -> Offer:
    shape = machine(row["discountedinstancetype"])
    label = f"{region}: {shape.instance_type}, {row['leasecontractlength']} {row['leasecontractlengthunit']}"
    if row["discountedregioncode"] != region:
        raise RowRejected("other_region", f"in the list of {region}: {short(row['discountedregioncode'])}")
    if row["discountedusagetype"].rpartition(":")[2] != shape.instance_type:
        raise RowRejected("conflicting_row", f"{label}: {short(row['discountedusagetype'])}")
    if row["effectivedate"][:10] > now.date().isoformat():
        raise RowRejected(NOT_YET, f"{label}: from {short(row['effectivedate'])}")
    kind, option = _FAMILIES.get(row["productfamily"]), OPTIONS.get(row["purchaseoption"])
    months = _MONTHS.get(row["leasecontractlength"]) if row["leasecontractlengthunit"].lower() == "year" else None
    if kind is None or option is None or months is None:
        raise RowRejected("unknown_term", f"{label}: {short(row['productfamily'])}, {short(row['purchaseoption'])}")
    if row["unit"] != "Hrs":
        raise RowRejected("unknown_unit", f"{label}: per {short(row['unit'])}")
    usd(row["currency"])
    hourly = price(decimal_text(row["discountedrate"]), label)
    return offer_of(shape, region, CapacityType.RESERVED, hourly, now, f"{SOURCE}:{kind}-{option}", months=months)
