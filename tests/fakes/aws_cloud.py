"""A simulated AWS: ``AwsCloud`` has the state that tests set; ``tests.fakes.aws_gate`` serves it to AWS's own
client.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.fakes.aws_shop import AwsShop

PAGE = 3  # rows per page, so that code that reads only the first page fails


@dataclass(frozen=True)
class AwsFault:
    """The error that an operation returns instead of its answer. ``body``: the bytes of the answer, whatever
    the code.
    """

    code: str = "InternalError"
    status: int = 500
    message: str = "made to fail"
    body: bytes | None = None


@dataclass
class AwsCloud:
    """The state of the cloud.

    ``faults``: operation → faults, one per answer, the last one for all later answers; ``(operation, region)`` for one
    region. ``mangle``: changes the body of every answer of an operation. ``late_faults``: like ``faults``, returned
    after the operation has taken effect. ``purchased_as``: the state of a new purchase; ``unsold``: returned instead of
    every purchase except dry runs; ``unlisted``: the number of lists of reservations that omit new purchases.
    """

    spot: list[dict[str, Any]] = field(default_factory=list)
    scores: dict[str, int] = field(default_factory=dict)
    quotas: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    products: list[str] = field(default_factory=list)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    reservations: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    reserved_instances: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    savings_plans: list[dict[str, Any]] = field(default_factory=list)
    rates: list[dict[str, Any]] = field(default_factory=list)
    charges: list[dict[str, Any]] = field(default_factory=list)
    faults: dict[str | tuple[str, str], list[AwsFault]] = field(default_factory=dict)
    mangle: dict[str, Callable[[bytes], bytes]] = field(default_factory=dict)
    late_faults: dict[str, list[AwsFault]] = field(default_factory=dict)
    purchased_as: str = "payment-pending"
    unsold: AwsFault | None = None
    unlisted: int = 0
    repeat_token: bool = False
    shop: AwsShop = field(default_factory=AwsShop)
    asked: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    url: str = ""

    def clear(self) -> None:
        """Reset everything except the address."""
        for name, value in vars(AwsCloud(url=self.url)).items():
            setattr(self, name, value)

    def add_spot(self, region: str, zone: str, instance_type: str, price: str, at: datetime, **more: Any) -> None:
        """Add a price in effect since ``at``. ``zone``: its letter and the number of its ID, as in ``"a6"``."""
        short = "".join(part[0] if not part.isdigit() else part for part in re.split(r"-", region))
        row = {
            "region": region,
            "AvailabilityZone": region + zone[0],
            "AvailabilityZoneId": f"{region[:2]}{short[1:]}-az{zone[1:]}",
            "InstanceType": instance_type,
            "ProductDescription": "Linux/UNIX",
            "SpotPrice": price,
            "Timestamp": at,
        }
        self.spot.append({**row, **more})

    def calls(self, operation: str) -> list[tuple[str, dict[str, Any]]]:
        """Region and parameters of each call of an operation."""
        return [(region, asked) for name, region, asked in self.asked if name == operation]

    def paged(self, rows: list[Any], asked: dict[str, Any], key: str, token: str = "NextToken") -> dict[str, Any]:
        start = int(asked.get(token) or 0)
        answer: dict[str, Any] = {key: rows[start : start + PAGE]}
        if start + PAGE < len(rows):
            answer[token] = "0" if self.repeat_token else str(start + PAGE)
        return answer

    # One method per operation; parameters as in the model.

    def ec2_DescribeSpotPriceHistory(self, asked: dict[str, Any], region: str) -> dict[str, Any]:
        wanted = asked.get("InstanceTypes") or []
        rows = [
            {name: value for name, value in row.items() if name != "region" and value is not None}
            for row in self.spot
            if row["region"] == region and (not wanted or row["InstanceType"] in wanted)
        ]
        return self.paged(rows, asked, "SpotPriceHistory")

    def ec2_GetSpotPlacementScores(self, asked: dict[str, Any], region: str) -> dict[str, Any]:
        assert len(asked["RegionNames"]) <= 10, "at most ten regions a question"
        rows = [{"Region": name, "Score": self.scores[name]} for name in asked["RegionNames"] if name in self.scores]
        return self.paged(rows, asked, "SpotPlacementScores")

    def ec2_DescribeCapacityBlockOfferings(self, asked: dict[str, Any], region: str) -> dict[str, Any]:
        rows = [
            {name: value for name, value in row.items() if name != "region"}
            for row in self.blocks
            if row["region"] == region
            and row["InstanceType"] == asked.get("InstanceType")
            and row["StartDate"] >= _utc(asked.get("StartDateRange", row["StartDate"]))
        ]
        return self.paged(rows, asked, "CapacityBlockOfferings")

    def ec2_PurchaseCapacityBlock(self, asked: dict[str, Any], region: str) -> dict[str, Any] | AwsFault:
        """Each offering is sold once; as with AWS, a repeated call is not idempotent."""
        wanted = asked["CapacityBlockOfferingId"]
        sold = [row for row in self.blocks if (row["CapacityBlockOfferingId"], row["region"]) == (wanted, region)]
        if not sold:
            return AwsFault("InvalidCapacityBlockOfferingId.NotFound", 400, f"{wanted} does not exist")
        if asked.get("DryRun"):
            return AwsFault("DryRunOperation", 412, "Request would have succeeded, but DryRun flag is set.")
        if self.unsold is not None:
            return self.unsold
        self.blocks.remove(sold[0])
        known = self.reservations.setdefault(region, [])
        bought = {
            "CapacityReservationId": f"cr-{len(known):017x}",
            "InstanceType": sold[0]["InstanceType"],
            "InstancePlatform": asked["InstancePlatform"],
            "AvailabilityZone": sold[0]["AvailabilityZone"],
            "TotalInstanceCount": sold[0]["InstanceCount"],
            "AvailableInstanceCount": 0,
            "State": self.purchased_as,
            "StartDate": sold[0]["StartDate"],
            "EndDate": sold[0]["EndDate"],
            "ReservationType": "capacity-block",
            "InstanceMatchCriteria": "targeted",
            "Tags": [tag for one in asked.get("TagSpecifications", []) for tag in one["Tags"]],
        }
        known.append(bought)
        return {"CapacityReservation": bought}

    def ec2_DescribeCapacityReservations(self, asked: dict[str, Any], region: str) -> dict[str, Any]:
        rows = list(self.reservations.get(region, []))
        for wanted in asked.get("Filters", []):
            assert wanted["Name"].startswith("tag:"), f"the fake does not filter by {wanted['Name']}"
            key = wanted["Name"].removeprefix("tag:")
            rows = [row for row in rows if _has_tag(row, key, wanted["Values"])]
        if self.unlisted > 0:
            self.unlisted -= 1
            rows = [row for row in rows if row.get("ReservationType") != "capacity-block"]
        return self.paged(self.shop.listed(rows, new="Filters" in asked), asked, "CapacityReservations")

    def ec2_CreateCapacityReservation(self, asked: dict[str, Any], region: str) -> Any:
        return self.shop.reserve(asked, self.reservations.setdefault(region, []), AwsFault, self.unsold)

    def ec2_CancelCapacityReservation(self, asked: dict[str, Any], region: str) -> Any:
        return self.shop.cancel(asked, self.reservations.get(region, []), AwsFault)

    def ec2_CreateCapacityReservationCancellationQuote(self, asked: dict[str, Any], region: str) -> Any:
        return self.shop.cancellation_quote(asked, self.reservations.get(region, []))

    def ec2_DescribeCapacityReservationCancellationQuotes(self, asked: dict[str, Any], region: str) -> Any:
        ids = asked["CapacityReservationCancellationQuoteIds"]
        return self.paged([self.shop.quotes[id] for id in ids], asked, "CapacityReservationCancellationQuotes")

    def ec2_DescribeReservedInstances(self, asked: dict[str, Any], region: str) -> dict[str, Any]:
        return {"ReservedInstances": self.reserved_instances.get(region, [])}

    def pricing_GetProducts(self, asked: dict[str, Any], region: str) -> dict[str, Any]:
        wanted = {one["Field"]: one["Value"] for one in asked.get("Filters", [])}
        rows = [row for row in self.products if wanted.get("instanceType", "") in row]
        return {"FormatVersion": "aws_v1", **self.paged(rows, asked, "PriceList")}

    def servicequotas_ListServiceQuotas(self, asked: dict[str, Any], region: str) -> dict[str, Any]:
        rows = [
            {"ServiceCode": "ec2", "QuotaName": name, "Value": value, "Unit": "None"}
            for name, value in self.quotas.get(region, [])
        ]
        return self.paged(rows, asked, "Quotas")

    def savingsplans_DescribeSavingsPlans(self, asked: dict[str, Any], region: str) -> dict[str, Any]:
        return self.paged(self.shop.listed(self.savings_plans), asked, "savingsPlans", "nextToken")

    def savingsplans_CreateSavingsPlan(self, asked: dict[str, Any], region: str) -> Any:
        return self.unsold or self.shop.plan(asked, self.savings_plans, self.rates, AwsFault)

    def savingsplans_ReturnSavingsPlan(self, asked: dict[str, Any], region: str) -> Any:
        return self.shop.undo_plan(asked["savingsPlanId"], self.savings_plans, AwsFault, queued=False)

    def savingsplans_DeleteQueuedSavingsPlan(self, asked: dict[str, Any], region: str) -> Any:
        return self.shop.undo_plan(asked["savingsPlanId"], self.savings_plans, AwsFault, queued=True)

    def savingsplans_DescribeSavingsPlansOfferingRates(self, asked: dict[str, Any], region: str) -> dict[str, Any]:
        return self.paged(self.rates, asked, "searchResults", "nextToken")

    def ce_GetCostAndUsage(self, asked: dict[str, Any], region: str) -> dict[str, Any]:
        return self.paged(self.charges, asked, "ResultsByTime", "NextPageToken")


def _utc(at: datetime) -> datetime:
    """The time in UTC: moto's parsers drop the time zone."""
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _has_tag(row: dict[str, Any], key: str, values: list[str]) -> bool:
    return any(tag["Key"] == key and tag["Value"] in values for tag in row.get("Tags", []))


def get_products(products: Iterable[tuple[dict[str, str], list[dict[str, str]]]]) -> list[str]:
    """Rows of the price list (see `aws_files`) in the form of GetProducts: one JSON text per product."""
    names = {"Instance Type": "instanceType", "Region Code": "regionCode", "Operating System": "operatingSystem",
             "Tenancy": "tenancy", "CapacityStatus": "capacitystatus", "Pre Installed S/W": "preInstalledSw",
             "License Model": "licenseModel", "MarketOption": "marketoption", "Instance Family": "instanceFamily",
             "GPU": "gpu", "Location Type": "locationType", "Memory": "memory", "usageType": "usagetype"}  # fmt: skip
    written = []
    for product, rows in products:
        terms: dict[str, dict[str, Any]] = defaultdict(dict)
        for number, row in enumerate(rows):
            code = f"{product['SKU']}.{row['OfferTermCode']}"
            about = {"LeaseContractLength": "LeaseContractLength", "PurchaseOption": "PurchaseOption",
                     "OfferingClass": "OfferingClass"}  # fmt: skip
            term = terms[row["TermType"]].setdefault(
                code,
                {
                    "priceDimensions": {},
                    "sku": product["SKU"],
                    "effectiveDate": row["EffectiveDate"] + "T00:00:00Z",
                    "offerTermCode": row["OfferTermCode"],
                    "termAttributes": {name: row[column] for name, column in about.items() if column in row},
                },
            )
            term["priceDimensions"][f"{code}.{number}"] = {
                "unit": row["Unit"],
                "description": row["PriceDescription"],
                "appliesTo": [],
                "rateCode": f"{code}.{number}",
                "pricePerUnit": {row["Currency"]: row["PricePerUnit"]},
            }
        attributes = {names[column]: value for column, value in product.items() if column in names}
        written.append(
            json.dumps(
                {
                    "product": {
                        "productFamily": product["Product Family"],
                        "attributes": {**attributes, "servicecode": "AmazonEC2"},
                        "sku": product["SKU"],
                    },
                    "serviceCode": "AmazonEC2",
                    "terms": terms,
                    "version": "20261112225308",
                    "publicationDate": "2026-11-12T22:53:08Z",
                }
            )
        )
    return written
