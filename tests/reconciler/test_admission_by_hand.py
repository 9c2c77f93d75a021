"""What the gate holds, judges and lets through, by hand: machines at $12 an hour, billed by whole minutes."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.core.events import events as ev
from broker.core.events.events import Event, EventBody
from broker.core.events.lifecycle import advance
from broker.core.events.views import JobView
from broker.core.job.jobs import Job
from broker.core.job.placements import CostTerm, Placement, Plan, TransferKind
from broker.core.market.offers import Billing, CapacityType, MoneyKind, Offer
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, Source, Verdict
from broker.core.ports import PolicyDefaults
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Balance, Dates
from broker.reconciler.admission.admission import (
    Admission,
    MoreMoney,
    admit,
    hold_duration,
    judge_continuation,
    min_start_hold,
    re_place,
    whole_hold,
)

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
CASH, PAID = MoneyKind.CASH, MoneyKind.AMORTISED
JOB = Job(name="j", run="x")


@dataclass
class GateByMachine:
    """A policy set that says what the test wants about each type of machine, and remembers what it was asked."""

    says: dict[str, Answer] = field(default_factory=dict)
    asked: list[Action] = field(default_factory=list)
    defaults: PolicyDefaults = field(default_factory=PolicyDefaults)

    def judge(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        self.asked.append(action)
        assert action.placement is not None
        name = action.placement.offer.instance_type
        answer = self.says.get(name, Answer.ALLOW)
        fine = Verdict(Answer.ALLOW, "other", "fine", "fine", Source("team.yaml", 1))
        return [fine, Verdict(answer, "rule", "said", f"{name}: {answer}", Source("team.yaml", 4))]


def sold(name: str = "box", price: str = "12", **more: Any) -> Offer:
    values: dict[str, Any] = {"billing": Billing(timedelta(0), MINUTE), "capacity": CapacityType.ON_DEMAND} | more
    capacity = values.pop("capacity")
    return Offer("aws", "east", None, name, "H100", 8, capacity, Money.usd(price), NOW, "test", **values)


def at(offer: Offer, nodes: int = 1, egress: str = "0") -> Placement:
    moved = (
        CostTerm("egress of data", Money.usd(egress), moves=TransferKind.DATA),
        CostTerm("machine time", Money.usd(999)),
    )
    return Placement(offer, nodes, (offer.price or Money.ZERO) * nodes, Money.ZERO, moved, None, None, 1.0, 1.0, 0.0)


def plan(*placements: Placement) -> Plan:
    return Plan(NOW, placements, (), len(placements), None, None)


def no_facts(action: Action) -> Facts:
    return Facts(NOW)


def submitted(policy: GateByMachine, *placements: Placement, job: Job = JOB, hours: float = 10) -> Admission:
    gate: Any = policy
    return admit(job, "ann", plan(*placements), gate, no_facts, max_duration=hours * HOUR, now=NOW)


# --- a submission ---------------------------------------------------------------------------------------------------


def test_a_hold_covers_the_dearest_fallback_with_the_dearest_egress() -> None:
    """10 h, a minute that is billed at a stroke and two to stop: $12 × 10.05 h, and $7 of egress."""
    gate = GateByMachine()
    found = submitted(gate, at(sold("cheap", "6"), egress="7"), at(sold("dear"), egress="3"))

    assert found.money == {CASH: Money.usd("127.60")}
    assert found.burns == {CASH: Burn(Money.usd("127.60"), NOW, NOW + 10 * HOUR + 3 * MINUTE, Money.usd(12))}
    (action,) = gate.asked
    assert (action.kind, action.job, action.user, action.hold) == (ActionKind.LAUNCH, JOB, "ann", found.money)
    assert (action.window, action.burns) == ((NOW, NOW + 10 * HOUR), found.burns)
    assert (action.placement, found.placement) == (at(sold("cheap", "6"), egress="7"),) * 2
    assert (found.action, found.short_of, found.answer, len(found.verdicts)) == (action, None, Answer.ALLOW, 2)


def test_max_cost_limits_a_hold_and_how_long_it_burns() -> None:
    """$31, of which the start takes $7 for egress: $24 last two hours, whatever the job file says."""
    found = submitted(GateByMachine(), at(sold(), egress="7"), job=JOB.model_copy(update={"max_cost": Money.usd(31)}))

    assert found.money == {CASH: Money.usd(31)}
    assert found.burns == {CASH: Burn(Money.usd(31), NOW, NOW + 2 * HOUR, Money.usd(12))}


def test_each_kind_of_money_has_its_own_hold_and_its_own_egress() -> None:
    own = sold("own", "0", money=PAID, amortised=Money.usd(2), capacity=CapacityType.RESERVED)
    found = submitted(GateByMachine(), at(own, egress="5"), at(sold(), egress="7"))

    assert found.money == {PAID: Money.usd("25.10"), CASH: Money.usd("127.60")}  # $2 × 10.05 h + $5


def test_what_a_job_would_hold_leaves_out_what_is_paid_for() -> None:
    own = sold("own", "0", money=PAID, amortised=Money.usd(2), capacity=CapacityType.RESERVED)
    places = plan(at(own, egress="50"), at(sold("cheap", "6"), egress="7"), at(sold("dear"), egress="3"))
    assert whole_hold(places, 10 * HOUR) == Money.usd("127.60")


def test_only_egress_counts_as_egress() -> None:
    assert at(sold(), egress="7").egress == Money.usd(7)
    data = CostTerm("egress of data", Money.usd(1), moves=TransferKind.DATA)
    checkpoints = CostTerm("egress of checkpoints", Money.usd(2), moves=TransferKind.CHECKPOINT)
    both = (data, checkpoints)
    assert replace(at(sold()), terms=both).egress == Money.usd(3)


@pytest.mark.parametrize(
    ("says", "chosen", "answer"),
    [
        ({}, "a", Answer.ALLOW),
        ({"a": Answer.ASK}, "b", Answer.ALLOW),  # nobody is asked where nobody need be
        ({"a": Answer.ASK, "b": Answer.DENY}, "c", Answer.ALLOW),
        ({"a": Answer.ASK, "b": Answer.ASK, "c": Answer.ASK}, "a", Answer.ASK),
        ({"a": Answer.DENY}, "a", Answer.DENY),  # the plan had left out what is denied: this is about the whole
    ],
)
def test_where_a_submission_goes(says: dict[str, Answer], chosen: str, answer: Answer) -> None:
    found = submitted(GateByMachine(says), at(sold("a", "3")), at(sold("b", "4")), at(sold("c", "5")))
    assert (found.placement.offer.instance_type, found.answer) == (chosen, answer)


def test_a_submission_goes_to_the_best_place_whose_start_the_money_pays_for() -> None:
    """$1 pays five minutes at $12, and less than the first hour that the other bills at once."""
    hourly = sold("hourly", "6", billing=Billing(HOUR, HOUR))
    poor = JOB.model_copy(update={"max_cost": Money.usd(1)})
    found = submitted(GateByMachine(), at(hourly), at(sold("box")), job=poor)
    assert (found.placement.offer.instance_type, found.short_of, found.may_launch) == ("box", None, True)
    asks = submitted(GateByMachine({"box": Answer.ASK}), at(hourly), at(sold("box")), job=poor)
    assert (asks.placement.offer.instance_type, asks.answer) == ("box", Answer.ASK)
    short = submitted(GateByMachine(), at(hourly), job=poor)
    assert (short.short_of, short.answer, short.may_launch) == (Money.usd("6.000001"), Answer.ALLOW, False)


def test_what_moves_the_data_does_not_pay_for_the_start_too() -> None:
    egress = at(sold(), egress="7")
    short = submitted(GateByMachine(), egress, job=JOB.model_copy(update={"max_cost": Money.usd(7)}))
    assert short.short_of == Money.usd("7.600001")
    enough = submitted(GateByMachine(), egress, job=JOB.model_copy(update={"max_cost": Money.usd("7.61")}))
    assert enough.may_launch


def test_what_costs_nothing_needs_no_money_and_lasts() -> None:
    free = at(sold("free", "0", capacity=CapacityType.OWNED))
    assert submitted(GateByMachine(), free).may_launch
    assert hold_duration({}, plan(free), HOUR, NOW) == HOUR


def test_what_was_paid_before_costs_nothing_to_start() -> None:
    own = sold(
        "own", "0", money=PAID, amortised=Money.usd(2), capacity=CapacityType.RESERVED, billing=Billing(HOUR, HOUR)
    )
    found = submitted(GateByMachine(), at(own), job=JOB.model_copy(update={"max_cost": Money.usd(1)}))
    assert found.short_of is None


@pytest.mark.parametrize(
    ("minimum", "step", "nodes", "least"),
    [
        (0, 60, 1, "0.600001"),  # two minutes to stop and one to run
        (0, 60, 3, "1.800001"),
        (0, 3600, 1, "12.000001"),
        (600, 60, 1, "2.000001"),
        (90, 60, 1, "0.600001"),
        (200, 60, 1, "0.800001"),  # whole steps: four minutes
    ],
)
def test_the_least_that_a_start_takes(minimum: int, step: int, nodes: int, least: str) -> None:
    billing = Billing(timedelta(seconds=minimum), timedelta(seconds=step))
    assert min_start_hold(at(sold(billing=billing), nodes)) == Money.usd(least)


def test_how_long_a_hold_lasts() -> None:
    """$31 with $7 of egress: $24 at $12 an hour last two hours, of which two minutes are for stopping."""
    places = plan(at(sold("cheap", "6"), egress="7"), at(sold("dear"), egress="3"))
    assert hold_duration({CASH: Money.usd(31)}, places, 10 * HOUR, NOW) == 2 * HOUR - 2 * MINUTE
    assert hold_duration({CASH: Money.usd(31)}, places, HOUR, NOW) == HOUR
    assert hold_duration({}, places, HOUR, NOW) == timedelta(0)
    own = sold("own", "0", money=PAID, amortised=Money.usd(2), capacity=CapacityType.RESERVED)
    assert hold_duration({}, plan(at(own)), HOUR, NOW) == HOUR, "what was paid before ends nothing"
    both = plan(at(own, egress="30"), at(sold(), egress="7"))
    assert hold_duration({CASH: Money.usd(31)}, both, 10 * HOUR, NOW) == 2 * HOUR - 2 * MINUTE


# --- a move ---------------------------------------------------------------------------------------------------------


def life(job: Job = JOB, hours: float = 10, attempts: int = 1) -> JobView:
    bodies: list[tuple[int | None, EventBody]] = [
        (None, ev.Submitted(job=job, user="ann", max_duration_seconds=hours * 3600))
    ]
    for number in range(1, attempts + 1):
        bodies.append((number, ev.LaunchRequested(key=f"j-1-{number}", engine="stage", placement=at(sold()))))
        if number < attempts:
            bodies.append((number, ev.Launched(handle="h")))
            bodies.append((number, ev.AttemptEnded(cause="preempted")))
            bodies.append((number, ev.MachineGone(gone_at=NOW)))
    view: JobView | None = None
    for seq, (attempt, body) in enumerate(bodies, 1):
        view = advance(view, Event("j-1", seq, NOW - HOUR, attempt, body))
    assert view is not None
    return view


def held(amount: str, spent: str = "0", dates: Dates | None = None) -> Balance:
    return Balance(held=Money.usd(amount), spent=Money.usd(spent), dates=dates)


def moved(
    policy: GateByMachine, balance: dict[MoneyKind, Balance], *placements: Placement, view: JobView | None = None,
    billed: timedelta = 4 * HOUR, by_owner: bool = False,
) -> Admission:  # fmt: skip
    gate: Any = policy
    return re_place(
        view or life(),
        plan(*placements),
        gate,
        no_facts,
        balance,
        billed=billed,
        now=NOW,
        by_owner=by_owner,
    )


def test_a_move_needs_what_the_time_left_costs_there_with_its_egress() -> None:
    """6 of 10 hours are left: $12 × 6.05 h + $3 = $75.60, of which $30 are held. Money of another kind is no help."""
    gate = GateByMachine()
    balance = {CASH: held("30", "50"), PAID: held("900", "700")}
    found = moved(gate, balance, at(sold(), egress="3"), view=life(attempts=2))

    assert found.money == {CASH: Money.usd("45.60")}
    assert found.burns == {CASH: Burn(Money.usd("75.60"), NOW, NOW + 6 * HOUR + 3 * MINUTE, Money.usd(12))}
    (action,) = gate.asked
    assert (action.kind, action.user, action.job, action.job_id) == (ActionKind.EXTEND, "ann", JOB, "j-1")
    assert (action.hold, action.burns, action.own) == (found.money, found.burns, {})
    assert (action.window, action.elapsed) == ((NOW, NOW + 6 * HOUR), 4 * HOUR)
    assert (action.spent, action.held) == (Money.usd(50), Money.usd(30))
    assert (action.submitted_at, action.attempts, action.by_owner) == (NOW - HOUR, 2, False)
    assert (action.placement, found.placement) == (at(sold(), egress="3"),) * 2
    assert (found.answer, found.short_of, len(found.verdicts)) == (Answer.ALLOW, None, 2)


def test_what_a_job_has_spent_counts_towards_its_max_cost() -> None:
    """Of $100, $50 are spent: no more than $50 are held in all."""
    view = life(JOB.model_copy(update={"max_cost": Money.usd(100)}))
    assert moved(GateByMachine(), {CASH: held("30", "50")}, at(sold()), view=view).money == {CASH: Money.usd(20)}
    used_up = moved(GateByMachine(), {CASH: held("0", "120")}, at(sold()), view=view)
    assert (used_up.money, used_up.burns) == ({}, {})
    assert used_up.short_of == Money.usd("0.600001")
    assert not used_up.may_launch


def test_machine_time_that_was_billed_is_not_held_for_again() -> None:
    assert moved(GateByMachine(), {}, at(sold()), billed=9 * HOUR).money == {CASH: Money.usd("12.60")}
    over = moved(GateByMachine(), {}, at(sold()), billed=11 * HOUR)
    assert over.money == {CASH: Money.usd(12).for_duration(3 * MINUTE + timedelta(seconds=1))}
    assert over.action.window == (NOW, NOW + timedelta(seconds=1))


def test_a_hold_that_is_enough_is_judged_as_a_whole_with_new_dates() -> None:
    dates = Dates(NOW - 5 * HOUR, NOW + HOUR, Money.usd(9))
    for amount in ("80", "72.60"):
        found = moved(GateByMachine(), {CASH: held(amount, dates=dates)}, at(sold()))
        assert (found.action.kind, found.money) == (ActionKind.RE_PLACE, {})
        assert found.burns[CASH].amount == Money.usd(amount)
        assert found.burns[CASH].start == NOW
        short = NOW + 6 * HOUR + 3 * MINUTE - found.burns[CASH].end
        assert timedelta(0) <= short < timedelta(milliseconds=1), "no rate of whole micro-dollars uses it up exactly"
        assert found.action.own == {CASH: Burn(Money.usd(amount), NOW - 5 * HOUR, NOW + HOUR, Money.usd(9))}


def test_what_its_owner_asks_for_is_an_extension_whatever_is_held() -> None:
    found = moved(GateByMachine(), {CASH: held("80")}, at(sold()), by_owner=True)
    assert (found.action.kind, found.action.by_owner, found.money) == (ActionKind.EXTEND, True, {})


@pytest.mark.parametrize(
    ("says", "chosen", "answer"),
    [
        ({}, "a", Answer.ALLOW),
        ({"a": Answer.DENY}, "b", Answer.ALLOW),
        ({"a": Answer.ASK}, "b", Answer.ALLOW),
        ({"a": Answer.DENY, "b": Answer.ASK}, "b", Answer.ASK),
        ({"a": Answer.ASK, "b": Answer.DENY}, "a", Answer.ASK),
        ({"a": Answer.ASK, "b": Answer.ASK}, "a", Answer.ASK),
        ({"a": Answer.DENY, "b": Answer.DENY}, "a", Answer.DENY),
    ],
)
def test_where_a_move_goes(says: dict[str, Answer], chosen: str, answer: Answer) -> None:
    found = moved(GateByMachine(says), {}, at(sold("a", "3")), at(sold("b", "4")))
    assert (found.placement.offer.instance_type, found.answer) == (chosen, answer)


def test_a_move_goes_where_the_money_pays_for_a_start() -> None:
    view = life(JOB.model_copy(update={"max_cost": Money.usd(1)}))
    hourly = at(sold("hourly", "6", billing=Billing(HOUR, HOUR)))
    assert moved(GateByMachine(), {}, hourly, at(sold("box")), view=view).placement.offer.instance_type == "box"
    short = moved(GateByMachine(), {CASH: held("0.40")}, hourly, view=view)
    assert (short.short_of, short.money) == (Money.usd("6.000001"), {CASH: Money.usd("0.60")})
    assert moved(GateByMachine(), {CASH: held("7")}, hourly, view=view).may_launch, "what is held pays, too"


def test_a_plan_without_placements_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match="without placements"):
        moved(GateByMachine(), {})


# --- more money for what runs ---------------------------------------------------------------------------------------


def test_more_for_what_runs_is_judged_at_the_price_of_now() -> None:
    gate, view = GateByMachine(), life()
    gate_: Any = gate
    burn = Burn(Money.usd(40), NOW, NOW + 2 * HOUR, Money.usd(20))
    dates = Dates(NOW - HOUR, NOW + HOUR, Money.usd(12))
    (attempt,) = view.attempts
    attempt = replace(attempt, placement=at(replace(sold(), as_of=NOW - HOUR), 2))
    found = judge_continuation(
        view, attempt, MoreMoney(Money.usd(15), burn, Money.usd(20)), gate_, no_facts,
        {CASH: held("25", "50", dates), PAID: held("900", "700")}, billed=4 * HOUR, now=NOW,
    )  # fmt: skip

    assert (found.money, found.burns, found.answer) == ({CASH: Money.usd(15)}, {CASH: burn}, Answer.ALLOW)
    (action,) = gate.asked
    assert (action.kind, action.in_place, action.job, action.user) == (ActionKind.EXTEND, True, JOB, "ann")
    assert (action.hold, action.spent, action.held) == (found.money, Money.usd(50), Money.usd(25))
    assert (action.elapsed, action.job_id, action.attempts) == (4 * HOUR, "j-1", 1)
    assert (action.submitted_at, action.window) == (NOW - HOUR, (NOW, NOW + 2 * HOUR))
    assert action.own == {CASH: Burn(Money.usd(25), NOW - HOUR, NOW + HOUR, Money.usd(12))}
    assert action.placement is not None
    assert (action.placement.offer.price, action.placement.rate) == (Money.usd(10), Money.usd(20))
    assert action.placement.offer.as_of == NOW
    assert found.placement == action.placement


@pytest.mark.parametrize(("billed", "ends", "hours"), [(4, 2, 2), (9, 2, 1), (10, 2, 0), (11, 2, 0), (4, 9, 6)])
def test_what_runs_is_judged_for_the_time_that_it_has_left(billed: int, ends: int, hours: int) -> None:
    view, gate = life(), GateByMachine()
    gate_: Any = gate
    burn = Burn(Money.usd(40), NOW, NOW + ends * HOUR, Money.usd(20))
    judge_continuation(
        view, view.attempts[0], MoreMoney(Money.ZERO, burn, Money.usd(12)), gate_, no_facts, {},
        billed=billed * HOUR, now=NOW,
    )  # fmt: skip
    (action,) = gate.asked
    assert action.window == (NOW, NOW + hours * HOUR)
    assert (action.hold, action.own) == ({}, {})
