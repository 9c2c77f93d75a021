"""Azure's retail price list: meters as documented by Microsoft, filtered as requested, in pages."""

import re
from decimal import Decimal
from urllib.parse import urlencode

from tests.fakes.server import HttpAnswer, HttpRequest
from tests.fakes.strict import StrictBody

_CONTAINS = re.compile(r"contains\((\w+), '([^']*)'\)")
_EQUALS = re.compile(r"(\w+) eq '([^']*)'")


class SavingsPlan(StrictBody):
    unitPrice: Decimal
    retailPrice: Decimal
    term: str


class RetailItem(StrictBody):
    """One item. Reservations have ``reservationTerm``, the others do not have the key."""

    armSkuName: str
    retailPrice: Decimal
    productName: str
    meterName: str
    skuName: str
    armRegionName: str = "eastus"
    type: str = "Consumption"
    reservationTerm: str | None = None
    savingsPlan: list[SavingsPlan] | None = None
    currencyCode: str = "USD"
    tierMinimumUnits: Decimal = Decimal("0.0")
    location: str = "US East"
    effectiveStartDate: str = "2024-01-01T00:00:00Z"
    effectiveEndDate: str | None = None
    meterId: str = "4e763e64-5ae4-5ed3-8892-902bb82ca7d3"
    serviceName: str = "Virtual Machines"
    serviceFamily: str = "Compute"
    unitOfMeasure: str = "1 Hour"
    isPrimaryMeterRegion: bool = True

    def item(self) -> dict[str, object]:
        return self.model_dump(exclude_none=True) | {"unitPrice": self.retailPrice}


class FakeRetailPrices:
    """Answers ``GET /api/retail/prices``.

    As at Azure, links to the next page contain Azure's own host name. ``page``: rows per page. ``stuck``: every page
    links to the second one. ``gap``: the second page is empty.
    """

    def __init__(self, *meters: RetailItem, page: int = 100, stuck: bool = False, gap: bool = False) -> None:
        self.meters = list(meters)
        self.page = page
        self.stuck = stuck
        self.gap = gap

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if (request.method, request.path) != ("GET", "/api/retail/prices"):
            return HttpAnswer(404, {"Message": "not found"})
        wanted = request.query.get("$filter", "")
        if "armSkuName" in wanted and not _CONTAINS.search(wanted):
            return HttpAnswer(400, {"Error": {"Message": "Invalid OData parameters supplied"}})
        found = [meter for meter in self.meters if _matches(meter, wanted)]
        at = int(request.query.get("$skip", 0))
        gap = self.gap and at == self.page  # the page begins one row later
        rows = [] if gap else found[at - at % self.page : at - at % self.page + self.page]
        following = self.page if self.stuck else at + 1 if gap else at - at % self.page + self.page
        more = self.stuck or following < len(found)
        query = urlencode({**request.query, "$skip": str(following)})
        return HttpAnswer(
            200,
            {
                "BillingCurrency": "USD",
                "CustomerEntityId": "Default",
                "CustomerEntityType": "Retail",
                "Items": [row.item() for row in rows],
                "NextPageLink": f"https://prices.azure.com:443/api/retail/prices?{query}" if more else None,
                "Count": len(rows),
            },
        )


def _matches(meter: RetailItem, wanted: str) -> bool:
    """Whether all ``eq`` terms and at least one ``contains`` term hold; case-sensitive, as at Azure."""
    equal = all(getattr(meter, field) == value for field, value in _EQUALS.findall(wanted))
    terms = _CONTAINS.findall(wanted)
    return equal and (not terms or any(value in getattr(meter, field) for field, value in terms))
