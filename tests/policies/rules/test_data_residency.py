from dataclasses import replace
from typing import Any

import pytest

from broker.core.job.jobs import Data, Job
from broker.core.policy.policy import ActionKind, Answer, Facts, Source
from policies.rules.places import DataResidency
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, job, placement

EUROPEAN = job(data=Data(location="aws/eu-west-1"))


def rule(config: Any, **scope: tuple[str, ...]) -> DataResidency:
    made: Any = DataResidency.Config.model_validate(config)
    return DataResidency("in-europe", made, Scope(**scope), Source("team.yaml", 3))


class TestDataResidency(RuleContract):
    plugin = "data_residency"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule({"data": ["*/eu-*"], "run_in": ["*/eu-*", "owned/*"]}, team=(TEAM,)),
            stopped=(action(job=EUROPEAN), Facts(NOW)),
            passed=(action(job=EUROPEAN, placement=placement(region="eu-west-1")), Facts(NOW)),
        )


def test_other_data_may_go_anywhere() -> None:
    american = action(job=job(data=Data(location="aws/us-east-1")))

    assert rule({"data": "*/eu-*", "run_in": "*/eu-*"}).judge(american, Facts(NOW)).code == "other_data"
    assert rule({"run_in": "*/eu-*"}).judge(american, Facts(NOW)).answer is Answer.DENY


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
def test_sensitive_data_must_say_where_it_is(region: str) -> None:
    secret = action(job=job(data=Data(sensitive=True)), placement=placement(region=region))

    assert rule({"run_in": "*/eu-*"}).judge(secret, Facts(NOW)).code == "data_location_unknown"


UNKNOWN = (job(), job(file_mounts={"/data": "s3://eu-patients"}), job(data=Data(size=10**12)))


@pytest.mark.parametrize("config", [{"run_in": "*/eu-*"}, {"data": "eu", "run_in": "eu"}])
@pytest.mark.parametrize("unknown", UNKNOWN)
def test_data_of_unknown_place_is_covered(config: Any, unknown: Job) -> None:
    elsewhere = rule(config).judge(action(job=unknown), Facts(NOW))
    assert (elsewhere.answer, elsewhere.code) == (Answer.DENY, "data_location_unknown")
    inside = action(job=unknown, placement=placement(region="eu-west-1"))
    assert rule(config).judge(inside, Facts(NOW)).answer is Answer.ALLOW


@pytest.mark.parametrize("data", ["eu", "*/eu-*", "eu-*", "*/europe-*"])
@pytest.mark.parametrize("location", ["gcp/europe-west4", "azure/westeurope", "aws/eu-central-1", "scaleway/fr-par-1"])
def test_a_territory_is_the_regions_of_every_provider(data: str, location: str) -> None:
    moved = action(job=job(data=Data(location=location)))
    provider, region = location.split("/")
    near = replace(moved, placement=placement(provider=provider, region=region))
    residency = rule({"data": data, "run_in": ["eu", "owned/*"]})
    assert residency.judge(moved, Facts(NOW)).code == "outside_of_residency"
    assert residency.judge(near, Facts(NOW)).answer is Answer.ALLOW


@pytest.mark.parametrize("location", ["gcp/europe-west2", "aws/us-east-1", "azure/uksouth", "oci/eu-dcc-zurich-1"])
def test_regions_that_only_sound_like_a_territory_lie_outside(location: str) -> None:
    british = action(job=job(data=Data(location=location)))
    assert rule({"data": "eu", "run_in": "eu"}).judge(british, Facts(NOW)).code == "other_data"


@pytest.mark.parametrize(
    "location", ["linode/eu-central", "scaleway/it-mil-1", "vultr/cdg", "acme/us-east-1", "slurm/x"]
)
def test_only_a_place_that_is_known_to_lie_elsewhere_is_outside_of_a_territory(location: str) -> None:
    somewhere = action(job=job(data=Data(location=location)))
    assert rule({"data": "eu", "run_in": "eu"}).judge(somewhere, Facts(NOW)).code == "outside_of_residency"
    assert rule({"data": "hyperstack/*", "run_in": "eu"}).judge(somewhere, Facts(NOW)).code == "other_data"


@pytest.mark.parametrize("source", ["gs://eu-patients", "https://data.example/x", {"name": "b", "store": "s3"}])
def test_each_mount_answers_for_itself(source: Any) -> None:
    def judged(location: str | None, **mounts: str) -> Any:
        data = Data(location=location, mounts={f"/{name}": place for name, place in mounts.items()})
        mounted = job(data=data, file_mounts={"/d": source, "code": "./src"})
        return rule({"data": "eu", "run_in": "eu"}).judge(action(job=mounted), Facts(NOW))

    unknown = judged("aws/us-east-1")
    assert (unknown.answer, unknown.code) == (Answer.DENY, "data_location_unknown")
    assert "write `data: {mounts: {/d: provider/region}}`" in unknown.message
    assert judged("aws/us-east-1", d="gcp/europe-west3").code == "outside_of_residency"
    assert judged("aws/us-east-1", d="aws/us-west-2").code == judged(None, d="aws/us-west-2").code == "other_data"
    assert judged("gcp/europe-west3", d="aws/us-west-2").code == "outside_of_residency"


def test_what_runs_elsewhere_may_not_go_on_and_its_near_twin_may() -> None:
    residency = rule({"run_in": "*/eu-*"})

    assert residency.judge(action(ActionKind.CONTINUE, job=EUROPEAN), Facts(NOW)).answer is Answer.DENY
    near = action(ActionKind.CONTINUE, job=EUROPEAN, placement=placement(region="eu-north-1"))
    assert residency.judge(near, Facts(NOW)).answer is Answer.ALLOW


@pytest.mark.parametrize(
    "place",
    ["slurm/it-cluster", "kubernetes/es-prod", "owned/de-lab", "kubernetes/europe-lab", "acme/eu-west", "slurm/eu"],
)
def test_a_name_that_people_chose_proves_no_territory(place: str) -> None:
    provider, _, region = place.partition("/")
    there = action(job=EUROPEAN, placement=placement(provider=provider, region=region))
    denied = rule({"data": "eu", "run_in": "eu"}).judge(there, Facts(NOW))
    assert (denied.answer, denied.code) == (Answer.DENY, "outside_of_residency")
    assert f"list it: `run_in: [eu, {place}]`" in denied.message
    assert rule({"data": "eu", "run_in": ["eu", place]}).judge(there, Facts(NOW)).answer is Answer.ALLOW


@pytest.mark.parametrize("location", ["owned/us-hq", "slurm/us-cluster", "kubernetes/no-gpu", "owned/ch-lab"])
def test_data_at_a_place_that_people_named_is_covered(location: str) -> None:
    away = action(job=job(data=Data(location=location)))
    assert rule({"data": "eu", "run_in": "eu"}).judge(away, Facts(NOW)).code == "outside_of_residency"
