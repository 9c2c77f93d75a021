"""What several tests of the SkyPilot engine share: offers, launches, and the engine on a stand-in of the SDK."""

from datetime import UTC, datetime
from pathlib import Path

from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.ports import Launch
from broker.core.values.clock import Clock, SystemClock
from broker.core.values.money import Money
from broker.engines.skypilot.engine import Skypilot, SkypilotSettings
from broker.engines.skypilot.sdk import Sdk
from tests.contracts.engine_bench import Bench
from tests.fakes import skypilot as fake

URL = "http://127.0.0.1:46580"


def zones(region: str) -> dict[str, str]:
    return {"use1-az6": "us-east-1a"} if region == "us-east-1" else {}


def offer(provider: str = "aws", **more: object) -> Offer:
    values: dict[str, object] = {
        "provider": provider,
        "region": "us-east-1",
        "zone": "us-east-1a",
        "instance_type": "p5.48xlarge",
        "accelerator": "H100",
        "count": 8,
        "capacity_type": CapacityType.SPOT,
        "price": Money.usd(20),
        "as_of": datetime(2026, 1, 1, tzinfo=UTC),
        "source": provider,
        "cpus": 192.0,
        "memory_gib": 2048.0,
        "availability": Availability.AVAILABLE,
        "engine": "skypilot",
    }
    return Offer(**{**values, **more})  # type: ignore[arg-type]  # fields by name


def placed(what: Offer, nodes: int = 1) -> Placement:
    return Placement(what, nodes, Money.usd(20), Money.usd(20), (), None, None, 1.0, 1.0, 0.0)


def launch(what: Offer, job: Job | None = None, nodes: int = 1) -> Launch:
    return Launch("train-1", job or Job(name="train", run="true"), placed(what, nodes), "s3://runs/train/attempts/1")


def made(
    home: Path, sky: fake.Sky, settings: SkypilotSettings | None = None, clock: Clock | None = None, url: str = URL
) -> Skypilot:
    return Skypilot(
        home,
        clock or SystemClock(),
        settings,
        Sdk(sky, url),
        query_by_cloud={"aws": sky.word, "kubernetes": sky.word},
        cloud_ends={"aws": sky.end_lost},
    )


class ApiServerConnectionError(RuntimeError):
    pass


def bench_on(tmp_path: Path, sky: fake.Sky) -> Bench:
    """The engine on a stand-in of the SDK, whose machines are processes here."""
    settings = SkypilotSettings(shared_disk=True, look=0.0, refresh=0.1)
    return Bench(
        make=lambda: made(tmp_path / "home", sky, settings),
        placement=placed(offer()),
        clock=SystemClock(),
        folder=tmp_path,
        doomed=placed(offer()),
        take_away=lambda handle: sky.take_away(handle.rpartition(":")[2]),
    )
