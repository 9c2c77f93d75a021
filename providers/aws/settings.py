"""The settings ``[providers.aws]``, and values common to all its offers."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from broker.core.market.offers import Billing
from providers.http import HttpSettings, Url
from providers.registry import split_commas

NAME = "aws"
ENGINE = "skypilot"
# The tag by which a purchase is found again; its value is the purchase's id.
PURCHASE_TAG = "gpubroker-purchase"

# Regions with most of AWS's GPUs. A price list has a few hundred megabytes per region, so without a login only these.
KEYLESS_REGIONS = ("us-east-1", "us-east-2", "us-west-2")
# The regions that every account has without opting in (docs: "AWS Regions", account settings). With a login, all these.
REGIONS = (
    *KEYLESS_REGIONS, "us-west-1", "ca-central-1", "sa-east-1", "eu-central-1", "eu-north-1", "eu-west-1", "eu-west-2",
    "eu-west-3", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1", "ap-southeast-1",
    "ap-southeast-2",
)  # fmt: skip

LIST_PATH = "/offers/v1.0/aws/AmazonEC2/current"
ADVISOR_PATH = "/spot-advisor-data.json"

# By the second, 60 at least; a spot machine that EC2 takes back in its first hour costs nothing. EC2 user guide:
# "Billing and purchasing options", "Billing for interrupted Spot Instances" (Linux but for RHEL and SUSE).
BILLING = Billing(minimum=timedelta(seconds=60), granularity=timedelta(seconds=1))
SPOT_BILLING = Billing(BILLING.minimum, BILLING.granularity, free_if_interrupted_within=timedelta(hours=1))

LIST_MAX_AGE = timedelta(days=7)  # list prices hold for weeks
SPOT_MAX_AGE = timedelta(hours=1)  # spot prices move a few times a day


Names = Annotated[tuple[Annotated[str, Field(pattern=r"^[a-z0-9-]{3,40}$")], ...], BeforeValidator(split_commas)]


class AwsSettings(HttpSettings):
    """``regions``: the regions to query, as a list or with commas; default: three without a login, and with one every
    region that accounts have without opting in. ``prices``: the source of list prices: ``list`` (the bulk list, no
    login), ``api`` (GetProducts, needs a login), or ``auto``: the API with a login, unless ``price_list_url`` is set.
    ``price_list_url``: a host, the folder above ``REGION/index.csv``, or a URL with ``{region}`` in it.
    ``spot_advisor_url``: a host or a file. ``pricing_region``: the region in which GetProducts is called (few regions
    have it). ``profile``: of ``~/.aws``, before AWS_PROFILE. ``instance_role``: log in by the role of this EC2 machine.
    ``placement_scores``, ``quotas``, ``savings_plans``: whether to query them.
    ``spot_exposure_hours``: see `providers.aws.spot`."""

    regions: Names = ()
    prices: Literal["auto", "list", "api"] = "auto"
    price_list_url: Url = f"https://pricing.us-east-1.amazonaws.com{LIST_PATH}"
    spot_advisor_url: Url = f"https://spot-bid-advisor.s3.amazonaws.com{ADVISOR_PATH}"
    pricing_region: str = Field(default="us-east-1", pattern=r"^[a-z0-9-]{3,40}$")
    profile: str | None = None
    instance_role: bool = False
    placement_scores: bool = True
    quotas: bool = True
    savings_plans: bool = True
    spot_exposure_hours: float = Field(default=24.0, gt=0, le=8760)

    def price_list(self, region: str) -> str:
        """The URL of the region's bulk price list."""
        url = self.price_list_url
        if "{region}" in url:
            return url.replace("{region}", region)
        return f"{url if urlsplit(url).path else url + LIST_PATH}/{region}/index.csv"

    @property
    def spot_advisor(self) -> str:
        """The URL of the spot advisor's data."""
        url = self.spot_advisor_url
        return url if urlsplit(url).path else url + ADVISOR_PATH


def utc(time: object) -> datetime | None:
    """A time of AWS in UTC: botocore returns datetimes, for savings plans text; None if invalid."""
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            return None
    if not isinstance(time, datetime):
        return None
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
