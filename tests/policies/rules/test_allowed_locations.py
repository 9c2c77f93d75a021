import pytest

from broker.core.policy.policy import Facts, Source
from policies.rules.places import AllowedLocations, LocationPatterns
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, placement

FACTS = Facts(NOW)
EVERYBODY = Scope()


def rule(config: object, scope: Scope = EVERYBODY) -> AllowedLocations:
    return AllowedLocations("eu-only", LocationPatterns.model_validate(config), scope, Source("team.yaml", 9))


class TestAllowedLocations(RuleContract):
    plugin = "allowed_locations"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule({"regions": ["us-*"]}, Scope(team=(TEAM,))),
            stopped=(action(placement=placement(region="eu-west-1")), FACTS),
            passed=(action(placement=placement(region="us-west-1")), FACTS),
        )


@pytest.mark.parametrize(
    ("config", "place", "code"),
    [
        ({"providers": ["aws", "gcp"]}, "aws/us-east-1", "allowed"),
        ({"providers": ["aws", "gcp"]}, "AWS/us-east-1", "allowed"),  # capitals do not count
        ({"providers": ["aws", "gcp"]}, "vast/us-east-1", "provider_not_allowed"),
        ({"providers": "aws"}, "aws-x/us-east-1", "provider_not_allowed"),  # not a prefix
        ({"providers": {"deny": ["va*", "runpod"]}}, "vast/us-east-1", "provider_not_allowed"),
        ({"providers": {"deny": ["va*", "runpod"]}}, "aws/us-east-1", "allowed"),
        ({"providers": {"allow": ["*"], "deny": ["vast"]}}, "vast/x", "provider_not_allowed"),  # a denial wins
        ({"regions": ["eu-*"]}, "gcp/eu-west4", "allowed"),
        ({"regions": ["eu-*"]}, "gcp/us-west4", "region_not_allowed"),
        ({"regions": ["gcp/eu-*", "aws/us-*"]}, "aws/eu-1", "region_not_allowed"),
        ({"regions": ["gcp/eu-*", "aws/us-*"]}, "aws/us-1", "allowed"),
        ({"regions": {"deny": ["*/cn-*"]}}, "aws/cn-north-1", "region_not_allowed"),
        ({"providers": ["aws"], "regions": ["eu-*"]}, "aws/us-1", "region_not_allowed"),
        ({"providers": ["aws"], "regions": ["eu-*"]}, "gcp/eu-1", "provider_not_allowed"),
        ({"regions": ["eu-*"]}, "owned/local", "region_not_allowed"),  # no exception that is not written down
    ],
)
def test_places(config: object, place: str, code: str) -> None:
    provider, region = place.split("/")

    verdict = rule(config).judge(action(placement=placement(provider=provider, region=region)), FACTS)

    assert verdict.code == code
