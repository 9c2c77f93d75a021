from dataclasses import replace

import pytest

from broker.core.policy.policy import Answer, Facts, Source
from policies.rules.prices import MaxPricePerGpuHour, PriceLimits
from policies.scope import Scope
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, placement

FACTS = Facts(NOW)
EVERYBODY = Scope()


def rule(limits: object, scope: Scope = EVERYBODY) -> MaxPricePerGpuHour:
    return MaxPricePerGpuHour("no-crazy-prices", PriceLimits.model_validate(limits), scope, Source("team.yaml", 3))


class TestMaxPricePerGpuHour(RuleContract):
    plugin = "max_price_per_gpu_hour"

    @pytest.fixture
    def case(self) -> Case:
        return Case(
            rule("$4", Scope(team=(TEAM,))),
            stopped=(action(placement=placement("32.000001")), FACTS),
            passed=(action(placement=placement("32")), FACTS),
        )


@pytest.mark.parametrize(
    ("limits", "accelerator", "price", "answer"),
    [
        ("$4", "H100", "32", Answer.ALLOW),
        ("$4", "H100", "32.01", Answer.DENY),
        ({"H100": "$4"}, "H100", "32.01", Answer.DENY),
        ({"H100": "$4"}, "A100", "320", Answer.ALLOW),  # nothing is said about it
        ({"H100": "$4", "default": "$1"}, "A100", "9", Answer.DENY),
        ({"H100": "$4", "default": "$1"}, "H100", "9", Answer.ALLOW),
        ({"h100 sxm": "$4"}, "H100", "33", Answer.DENY),  # an alias
        ({"H100": "$4"}, "H100-NVL", "33", Answer.DENY),  # a variant
        ({"=H100": "$4"}, "H100-NVL", "33", Answer.ALLOW),
        ({"H100": "$4", "H100-NVL": "$5"}, "H100-NVL", "40", Answer.ALLOW),  # named itself
        ({"RTX*": "$1", "default": "$9"}, "RTX4090", "9", Answer.DENY),
    ],
)
def test_limits_by_accelerator(limits: object, accelerator: str, price: str, answer: Answer) -> None:
    verdict = rule(limits).judge(action(placement=placement(price, accelerator=accelerator)), FACTS)

    assert verdict.answer is answer


def test_the_limit_is_per_gpu_and_compared_exactly() -> None:
    # A third of a micro-dollar above the limit per GPU: rounded to the micro-dollar it would pass.
    dear = placement("12.000001", count=3)

    assert rule("$4").judge(action(placement=dear), FACTS).code == "price_above_limit"


def test_more_nodes_are_not_dearer() -> None:
    assert rule("$4").judge(action(placement=placement("32", nodes=16)), FACTS).answer is Answer.ALLOW


def test_cpu_machines_have_no_gpu_hours() -> None:
    cpu = placement("900", accelerator=None, count=0)

    assert rule("$4").judge(action(placement=cpu), FACTS).code == "no_gpus"


def test_an_unknown_price_is_not_a_low_one() -> None:
    known = placement()
    unknown = replace(known, offer=replace(known.offer, price=None))

    verdict = rule("$4").judge(action(placement=unknown), FACTS)

    assert (verdict.answer, verdict.code) == (Answer.DENY, "price_unknown")
