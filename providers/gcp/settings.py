"""The settings ``[providers.gcp]``, and values common to all its offers."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from broker.core.market.offers import Billing
from providers.http import HttpSettings, Url
from providers.registry import split_commas

NAME = "gcp"
ENGINE = "skypilot"

# By the second, a minute at least; a spot machine that is taken back in its first minute costs nothing. Compute Engine
# documentation: "VM instance pricing", "Spot VMs".
BILLING = Billing(minimum=timedelta(seconds=60), granularity=timedelta(seconds=1))
SPOT_BILLING = Billing(BILLING.minimum, BILLING.granularity, free_if_interrupted_within=timedelta(seconds=60))

LIST_MAX_AGE = timedelta(days=7)  # list prices hold for weeks
SPOT_MAX_AGE = timedelta(days=1)  # spot prices hold for days; the catalog itself is up to 12 hours old
HELD_MAX_AGE = timedelta(hours=1)  # a reservation's free machines change with every start


Patterns = Annotated[tuple[Annotated[str, Field(pattern=r"^[a-z0-9*?-]{1,60}$")], ...], BeforeValidator(split_commas)]


class GcpSettings(HttpSettings):
    """``project``: the project whose machine types, quotas and reservations are queried; default: GOOGLE_CLOUD_PROJECT
    or the project of the login. ``credentials_file``: a login's file, which takes precedence over
    GOOGLE_APPLICATION_CREDENTIALS. ``metadata_server``: log in as the service account of this Google Cloud machine.
    ``anonymous``: call without a login, if a proxy adds one. ``compute_url``, ``billing_url``: hosts of the two APIs.
    ``regions``: the regions to query, as a list or with commas, ``us-*`` allowed; default: all. ``n1_hosts``: the N1
    machines to offer with a GPU attached. ``advice``, ``quotas``: whether to query them. ``spot_exposure_hours``: see
    `providers.gcp.advice`."""

    project: str | None = Field(default=None, pattern=r"^[a-z0-9.:-]{1,80}$")
    credentials_file: Path | None = None
    metadata_server: bool = False
    anonymous: bool = False
    compute_url: Url = "https://compute.googleapis.com"
    billing_url: Url = "https://cloudbilling.googleapis.com"
    regions: Patterns = ()
    n1_hosts: Patterns = ("n1-standard-*", "n1-highmem-*")
    advice: bool = True
    quotas: bool = True
    spot_exposure_hours: float = Field(default=24.0, gt=0, le=8760)

    @property
    def compute(self) -> str:
        """The host of the Compute Engine API, in the form for Google's SDK, which adds the path."""
        return self.compute_url.removesuffix("/compute/v1")

    @property
    def billing(self) -> str:
        """The same of the Cloud Billing API."""
        return self.billing_url.removesuffix("/v1")
