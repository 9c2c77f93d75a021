"""An approval of any action covers no other that is worse."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.job.jobs import Data
from broker.core.market.offers import CapacityType, Interconnect, MoneyKind
from broker.core.policy.approvals import max_run_time, total_of
from broker.core.policy.policy import Action, Answer
from broker.core.values.money import Money
from tests.contracts.rule_contract import NOW, action, job, placement
from tests.policies.test_coverage import HOUR, PLAIN, again, approved, entry_of, of, policy

# --- any two actions ------------------------------------------------------------------------------------------------

_ACTIONS = st.builds(
    lambda provider, region, price, accelerator, count, kind, hours, asked, sensitive, link: replace(
        action(
            placement=placement(
                str(price), provider=provider, region=region, accelerator=accelerator, count=count, capacity_type=kind,
                interconnect=link,
            ),
            hold={MoneyKind.CASH: Money.usd(asked)},
            window=(NOW, NOW + hours * HOUR),
        ),
        job=job(data=Data(location="gcp/eu-1", sensitive=sensitive)),
    ),
    st.sampled_from(["aws", "gcp"]), st.sampled_from(["eu-1", "us-1"]), st.integers(40, 44),
    st.sampled_from(["H100", "B200"]), st.sampled_from([4, 8]), st.sampled_from(list(CapacityType)[1:]),
    st.integers(9, 11), st.integers(89, 91), st.just(True), st.sampled_from([Interconnect.PCIE, Interconnect.NONE]),
)  # fmt: skip


def _same(*names: str) -> Callable[[Action, Action], bool]:
    def same(one: Action, two: Action) -> bool:
        assert one.placement is not None
        assert two.placement is not None
        return all(getattr(one.placement.offer, name) == getattr(two.placement.offer, name) for name in names)

    return same


def _no_dearer(one: Action, two: Action) -> bool:
    assert one.placement is not None
    assert two.placement is not None
    before, after = one.placement.offer, two.placement.offer
    assert before.price is not None
    assert after.price is not None
    cheap = after.price.micros * before.count <= before.price.micros * after.count
    return _same("provider", "region", "accelerator")(one, two) and cheap


# By hand, and not from what the rules say of themselves: when a yes to the first may let the second through.
MAY_COVER: dict[str, Callable[[Action, Action], bool]] = {
    "allowed_locations": _same("provider", "region"),
    "max_price_per_gpu_hour": _no_dearer,
    "capacity_types": _same("capacity_type"),
    "accelerators": _same("accelerator"),
    "data_residency": _same("provider", "region"),
    "sensitive_data": _same("provider", "region", "capacity_type"),
    "min_interconnect": _same("interconnect"),
    "max_job_cost": lambda one, two: True,
    "max_job_duration": lambda one, two: True,
    "approve_above": lambda one, two: True,
}


@pytest.mark.parametrize("kind", MAY_COVER)
@given(first=_ACTIONS, second=_ACTIONS)
def test_an_approval_of_any_action_covers_no_other_that_is_worse(kind: str, first: Action, second: Action) -> None:
    entry, section = entry_of(kind)
    policies = policy(entry, section)
    if {of(policies, one, PLAIN).answer for one in (first, second)} != {Answer.ASK}:
        return
    assert first.placement is not None
    assert second.placement is not None
    grant = approved(policies, first, PLAIN)
    more = total_of(second) > total_of(first) or second.placement.gpus > first.placement.gpus
    longer = (max_run_time(second) or HOUR) > (max_run_time(first) or HOUR)
    covered_now = of(policies, again(second), replace(PLAIN, grants=(grant,))).answer is Answer.ALLOW
    if covered_now:
        assert not more
        assert not longer
        assert MAY_COVER[kind](first, second)
    elif not (more or longer):
        assert not MAY_COVER[kind](first, second) or second.placement.offer.count > first.placement.offer.count
