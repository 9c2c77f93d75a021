"""A sweep over AWS: moto's machines, found by their tags and ended; and from Cost Explorer to the ledger: what AWS
charged for an attempt is what was spent on it.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, timedelta
from pathlib import Path

from broker.app.billing.charges import billed_attempts, fetch
from broker.app.billing.report import ledger_faults
from broker.core.market.offers import MoneyKind
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.reconciler.settlement.batch import post_due
from providers.aws.login import AwsLogin
from providers.aws.provider import Aws
from providers.aws.settings import AwsSettings
from tests.contracts.sweeping import LONG_AGO, broker_with, check_a_sweep
from tests.fakes.aws_cloud import AwsCloud


def test_a_sweep_ends_orphans_and_nothing_else(make: Callable[..., Aws], login: AwsLogin, tmp_path: Path) -> None:
    regions = ("us-east-1", "eu-west-1")
    started: list[str] = []

    def start(tags: Mapping[str, str]) -> None:
        client = login.client("ec2", regions[len(started) % 2])
        kind = {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        made = client.run_instances(
            ImageId="ami-12c6146b", InstanceType="g5.xlarge", MinCount=1, MaxCount=1, TagSpecifications=[kind]
        )
        started.append(made["Instances"][0]["InstanceId"])

    check_a_sweep(make(login, prices="api", regions=regions), tmp_path, start, just_started=True)
    stranger = login.client("ec2", regions[5 % 2]).describe_instances(InstanceIds=[started[5]])
    assert stranger["Reservations"][0]["Instances"][0]["State"]["Name"] == "running"


def test_what_aws_charged_is_in_the_ledger(cloud: AwsCloud, login: AwsLogin, tmp_path: Path) -> None:
    aws = Aws(clock=SystemClock(), settings=AwsSettings(regions=("us-east-1",), attempts=1), login=login)
    first = LONG_AGO.astimezone(UTC).date()
    cloud.charges = [
        {
            "TimePeriod": {"Start": str(first + timedelta(days=day)), "End": str(first + timedelta(days=day + 1))},
            "Total": {},
            "Groups": [
                {"Keys": [f"gpubroker${key}"], "Metrics": {"UnblendedCost": {"Amount": amount, "Unit": "USD"}}}
                for key, amount in groups.items()
            ],
            "Estimated": False,
        }
        for day, groups in enumerate(({"over-1": "20.5000004", "": "7"}, {"over-1": "0.75"}))
    ]
    with broker_with(aws, tmp_path, timedelta(hours=1)) as broker:
        with broker.store.writing() as tx:
            view = tx.job("over")
            assert view is not None
            post_due(tx, [view], LONG_AGO)
        for adjusted in (["over-1"], []):
            assert [one.key for one in fetch(broker).adjusted] == adjusted
        row = next(one for one in billed_attempts(broker).rows if one.key == "over-1")
        assert (row.metered, row.billed, row.adjusted) == (Money.usd(20), Money.usd("21.25"), Money.usd("1.25"))
        assert billed_attempts(broker).for_others == {"aws": Money.usd(7)}
        with broker.store.reading() as look:
            assert look.balance("over")[MoneyKind.CASH].spent == Money.usd("21.25")
        assert ledger_faults(broker) == []
