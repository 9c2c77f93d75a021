"""What pays for a start, and what a refused move means."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.jobs.reasons import wait_text
from broker.core.events.outcomes import JobState
from broker.core.job.placements import CostTerm, Placement, Plan, TransferKind
from broker.core.market.offers import Billing
from broker.core.policy.policy import Action, Facts, Verdict
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.holds import STOP_GRACE, exposures, hold_needed, paid_until
from broker.reconciler.admission.admission import hold_duration, min_start_hold
from broker.store import Store
from tests.reconciler.rehearsal import MINUTE, OpenPolicy, Stage, offer

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@given(st.integers(1, 10**9), st.integers(1, 8), st.integers(0, 7200), st.sampled_from([1, 60, 3600]), st.booleans())
def test_the_least_to_start_is_enough(micros: int, nodes: int, minimum: int, step: int, exact: bool) -> None:
    billing = Billing(timedelta(seconds=minimum), timedelta(seconds=step))
    sold = replace(offer(NOW, "od"), price=Money(micros), billing=billing)
    place = Placement(sold, nodes, Money(micros) * nodes, Money.ZERO, (), None, None, 1.0, 1.0, 0.0)
    left = min_start_hold(place) if exact else min_start_hold(place) + Money(1)
    until = paid_until(NOW, left, Money(micros) * nodes, billing=billing, stop_grace=STOP_GRACE)
    assert until is not None
    assert until > NOW


def test_a_start_takes_what_moving_the_data_costs_as_well() -> None:
    sold = replace(offer(NOW, "od"), price=Money.usd("6"))
    data = CostTerm("data egress", Money.usd("180"), per_start=Money.usd("180"), moves=TransferKind.DATA)
    place = Placement(sold, 1, Money.usd("6"), Money.ZERO, (data,), None, None, 1.0, 1.0, 0.0)
    without = replace(place, terms=())
    assert min_start_hold(place) == min_start_hold(without) + Money.usd("180")


@pytest.mark.parametrize(("cost", "minutes"), [(None, 360), ("1.00", 3), ("12.40", 60)])
def test_a_hold_lasts_as_long_as_the_dearest_place_lets_it(cost: str | None, minutes: int) -> None:
    sold = [replace(offer(NOW, "od"), price=Money.usd(price)) for price in ("6", "12")]
    places = [Placement(one, 1, Money.ZERO, Money.ZERO, (), None, None, 1.0, 1.0, 0.0) for one in sold]
    plan, longest = Plan(NOW, tuple(places), (), 2, None, None), timedelta(hours=6)
    most = None if cost is None else Money.usd(cost)
    held = hold_needed(exposures(places), max_duration=longest, max_cost=most, stop_grace=STOP_GRACE)
    assert hold_duration(held, plan, longest, NOW) == timedelta(minutes=minutes)


class Elsewhere(OpenPolicy):
    """Denies by a rule that is not about money."""

    def judge(self, action: Action, facts: Facts) -> list[Verdict]:
        return [replace(verdict, rule="max_concurrent_gpus") for verdict in super().judge(action, facts)]


@pytest.mark.parametrize(("policy", "paused"), [(OpenPolicy, True), (Elsewhere, False)])
def test_only_a_refusal_of_money_pauses(store: Store, clock: ManualClock, policy: type, paused: bool) -> None:
    stage = Stage(store, clock)
    stage.policy = policy(denied=frozenset({"extend"}))
    stage.submit(hold="0.10")
    stage.pass_time()
    stage.engine.take_back("j-1-1")
    stage.pass_time(MINUTE)
    view = stage.pass_time(MINUTE)
    assert (view.state is JobState.PAUSED_BUDGET) is paused
    assert "extend is denied" in wait_text(view.waiting)
