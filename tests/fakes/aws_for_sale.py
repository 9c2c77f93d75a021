"""A simulated AWS with capacity for sale, on loopback, to try purchases by hand: ``python -m
tests.fakes.aws_for_sale``.

It prints the variables that another terminal needs, and runs until Ctrl-C. Purchases are charged after a second.
"""

import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from tests.fakes.aws_cloud import AwsCloud, get_products
from tests.fakes.aws_files import on_demand, product
from tests.fakes.aws_gate import serve_cloud

REGION = "us-east-1"
_MACHINE = "p5.48xlarge"


def stock(cloud: AwsCloud) -> None:
    """Offer a block of two machines that begins tomorrow, and on-demand machines to reserve."""
    starts = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(days=1)
    cloud.blocks.append(
        {
            "region": REGION,
            "CapacityBlockOfferingId": "cb-1",
            "InstanceType": _MACHINE,
            "AvailabilityZone": "us-east-1a",
            "InstanceCount": 2,
            "StartDate": starts,
            "EndDate": starts + timedelta(days=2),
            "CapacityBlockDurationHours": 48,
            "UpfrontFee": "4000",
            "CurrencyCode": "USD",
            "Tenancy": "default",
        }
    )
    machine = product(_MACHINE, REGION)
    cloud.products = get_products([(machine, [on_demand(machine, "98.32")])])


def charge(cloud: AwsCloud) -> None:
    """Charge everything that was bought."""
    for row in cloud.reservations.get(REGION, []):
        if row["State"] == "payment-pending":
            row["State"] = "scheduled"


def main() -> None:
    with serve_cloud() as cloud:
        stock(cloud)
        print("# A simulated AWS. Nothing here costs money. Paste these lines into another terminal:")
        print(f"export AWS_ENDPOINT_URL={cloud.url} AWS_EC2_METADATA_DISABLED=true")
        print("export AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE AWS_SECRET_ACCESS_KEY=not-a-secret", flush=True)
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(1)
                charge(cloud)


if __name__ == "__main__":
    main()
