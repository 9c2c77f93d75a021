"""`advise deploy` and `advise serve`: limited to places, with recorded capacity, split into baseline and bursts."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from broker.app.advise.deploy.files import PRIVATE
from broker.app.advise.prices import CurrentPrices, HeldGpus, resolve_places
from broker.core.errors import InvalidInput, UnknownName
from broker.core.job.file import parse_job
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.money import Money

BURSTY = "serve 13B --requests-per-minute 6000 --assume tokens_per_request=300 --assume peak_to_baseline=3"


def deploy(gpubroker: Any, line: str, folder: Path) -> Any:
    done = gpubroker("advise", "deploy", *line.split(), "--write", folder, "--json")
    assert done.code == 0, done.out
    return done.json


def test_a_bursty_demand_becomes_two_jobs_that_the_broker_takes(gpubroker: Any, tmp_path: Path) -> None:
    found = deploy(gpubroker, BURSTY, tmp_path)
    assert found["verdict"] == "hybrid"
    now = datetime.now(UTC)
    steady = parse_job(found["job_file"], file="job.yaml", now=now)
    burst = parse_job((tmp_path / "burst.yaml").read_text("utf-8"), file="burst.yaml", now=now)
    assert set(steady.constraints.capacity_types) == {CapacityType.OWNED, CapacityType.RESERVED}
    assert CapacityType.OWNED not in burst.constraints.capacity_types
    parts = [job.resources[0].count * job.num_nodes for job in (steady, burst)]
    assert parts[0] < sum(parts)
    assert sum(parts) >= found["gpus"]
    for name in ("job", "burst"):
        planned = gpubroker("plan", tmp_path / f"{name}.yaml", "--policy", tmp_path / "policy.yaml", "--json")
        assert planned.code in (0, 3, 4, 6), planned.out + planned.err
    assert gpubroker("policy", "check", tmp_path / "policy.yaml").code == 0


def test_sensitive_data_may_go_where_residency_allows(gpubroker: Any, tmp_path: Path) -> None:
    line = "fine-tune 7B --sensitive --where residency=eu"
    found = deploy(gpubroker, line, tmp_path)
    job = parse_job(found["job_file"], file="job.yaml", now=datetime.now(UTC))
    assert CapacityType.OWNED not in job.constraints.capacity_types or len(job.constraints.capacity_types) > 1
    assert "eu-*" in job.constraints.regions
    assert "europe-west2" in (tmp_path / "policy.yaml").read_text("utf-8"), "London is not in the EU"
    assert "eu-zurich-*" in (tmp_path / "policy.yaml").read_text("utf-8"), "nor is Zurich"
    assert any("apply it first" in one for one in found["warnings"]), "the job file alone would allow them"
    assert gpubroker("policy", "check", tmp_path / "policy.yaml").code == 0


def test_a_provider_limits_prices_and_files(gpubroker: Any, tmp_path: Path) -> None:
    found = deploy(gpubroker, "fine-tune 7B --where provider=lambda", tmp_path)
    prices = next(step["numbers"] for step in found["steps"] if step["step"] == "supply and budget")
    assert prices
    assert all("lambda/" in str(value) for value in prices.values())
    nowhere = gpubroker("advise", "deploy", "fine-tune", "7B", "--where", "provider=nobody")
    assert nowhere.code == 2
    misspelt = gpubroker("advise", "size", "7B", "--where", "provider=lamda")
    assert (misspelt.code, "did you mean 'lambda'" in misspelt.err) == (2, True)
    assert gpubroker("advise", "deploy", "fine-tune", "7B", "--where", "residency=mars").code == 2


def test_recorded_machines_are_used_at_their_marginal_cost(gpubroker: Any, tmp_path: Path) -> None:
    added = gpubroker("capacity", "add", "owned", "A100-80GB:8", "--machines", "4", "--site", "campus", "--price",
                      "400000", "--life", "4y", "--power", "22kW")  # fmt: skip
    assert added.code == 0
    found = deploy(gpubroker, "fine-tune 70B --assume method=lora", tmp_path)
    assert (found["verdict"], found["accelerator"]) == ("own", "A100-80GB")
    assert "owned already" in found["title"]
    hours = next(step["numbers"] for step in found["steps"] if step["step"] == "hardware")
    assert float(found["usd"]) == pytest.approx(
        22 / 32 * 0.12 * 1.58 * 4 * float(hours["A100-80GB"].split()[2]), rel=0.1
    )


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def prices(*rows: tuple[float, str | None]) -> CurrentPrices:
    """Machines of eight H100 at that price, with that engine."""
    offers = [
        Offer("p", "r", None, "t", "H100", 8, CapacityType.ON_DEMAND, Money(round(usd * 1e6)), NOW, "s", engine=engine)
        for usd, engine in rows
    ]
    return CurrentPrices.of(offers, NOW)


def test_a_whole_machine_is_no_price_of_one_gpu() -> None:
    """One H100 is wanted and eight are paid: a policy's limit is by the GPU that is there, not eight times that."""
    quote = prices((40, "skypilot")).quote("H100")
    assert quote is not None
    assert (quote.usd_per_gpu_hour, quote.usd_per_gpu_there) == (40, 5)


def test_a_place_without_an_engine_is_the_last_resort() -> None:
    quote = prices((10, None), (20, "skypilot")).quote("H100", 8)
    assert quote is not None
    assert quote.usd_per_hour == 20
    only = prices((10, None)).quote("H100", 8)
    assert only is not None
    assert "no engine starts jobs" in only.not_launched_on


def test_held_gpus_are_quoted_only_if_there_are_enough() -> None:
    held = CurrentPrices(NOW, held=(HeldGpus("H100", 16, CapacityType.RESERVED, "aws/us-east-1", 0.0),))
    quote = held.paid_for("H100", 8, 2)
    assert quote is not None
    assert (quote.usd_per_hour, quote.capacity_type) == (0.0, CapacityType.RESERVED)
    assert held.paid_for("H100", 8, 3) is None
    assert held.paid_for("H100", 8, 2, kinds=PRIVATE) is None, "it is another's machine"


def test_places_are_patterns_in_lower_case() -> None:
    assert resolve_places(["AWS"], ["EU-*"]).providers == ("aws",)
    assert "eu-*" in resolve_places(residencies=["EU"]).regions
    with pytest.raises(UnknownName):
        resolve_places(residencies=["mars"])


def test_a_region_and_a_residency_hold_together(gpubroker: Any, tmp_path: Path) -> None:
    """A region outside the territory once replaced it."""
    us = "fine-tune 7B --where residency=eu,region=us-*"
    refused = gpubroker("advise", "deploy", *us.split())
    assert (refused.code, "known to lie in EU" in refused.err) == (2, True)
    found = deploy(gpubroker, "fine-tune 7B --where residency=eu,region=gcp/europe-*", tmp_path)
    assert gpubroker("policy", "check", tmp_path / "policy.yaml").code == 0
    assert "gcp/europe-*" in found["job_file"]
    assert resolve_places((), ["aws/*"], ["eu"]).regions[0] == "aws/eu-*"
    assert resolve_places((), ["eu-west-[12]"], ["eu"]).regions == ("eu-west-[12]",), "London is left out besides"
    with pytest.raises(InvalidInput):
        resolve_places((), ["??-*"], ["eu"])  # it may be anywhere


def test_an_offer_at_a_place_that_people_named_is_not_known_to_lie_there() -> None:
    def there(provider: str) -> bool:
        offer = Offer(
            provider, "eu-1", None, "t", "H100", 8, CapacityType.ON_DEMAND, Money.usd("1"), datetime.now(UTC), "test"
        )
        return resolve_places(residencies=["eu"]).has(offer)

    assert (there("nebius"), there("slurm"), there("kubernetes")) == (True, False, False)


AGREED = {"hipaa": ("aws", "gcp"), "hds": ("ovh",)}


def test_an_agreement_limits_to_the_providers_that_it_names() -> None:
    assert resolve_places(compliance=["HIPAA"], agreements=AGREED).providers == ("aws", "gcp")
    assert resolve_places(["g*"], compliance=["hipaa"], agreements=AGREED).providers == ("gcp",)
    for named, compliance, why in (
        ((), ["hipaa", "hds"], "no provider is left"), (["ovh"], ["hipaa"], "no provider is left"),
        ((), ["hippa"], "did you mean 'hipaa'"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=why):
            resolve_places(named, compliance=compliance, agreements=AGREED)


@pytest.mark.parametrize(
    "line",
    ["size 7B --gpu H100", "buy-or-rent --gpu H100 --gpus 8", "hardware --gpu H100",
     "speed --assume gpu_hours=100", "cost unit 1000 --gpu H100", "cost run 10 --gpu H100"],
)  # fmt: skip
def test_every_price_of_the_market_keeps_to_the_places(
    gpubroker: Any, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setenv("GPUBROKER_AGREEMENTS", '{"hipaa": ["lambda"], "hds": ["nobody"]}')
    text = gpubroker("advise", *line.split(), "--where", "compliance=hipaa").out
    assert "lambda" in text
    assert not [name for name in ("aws/", "gcp/", "azure/", "vast/", "oci/") if name in text]
    refused = gpubroker("advise", *line.split(), "--where", "compliance=hds")
    assert (refused.code, "unknown provider 'nobody'" in refused.err) == (2, True)
