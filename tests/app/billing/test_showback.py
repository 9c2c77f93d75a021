"""Showback and chargeback over a ledger: statements stay, corrections follow, all of them together are the ledger."""

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.app.access import people
from broker.app.billing.showback import chargeback_statement, make_statement, showback_report, statements
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, NotAllowed
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.ledger.entries import Account, Movement
from broker.ledger.finops.change import NOBODY
from broker.ledger.finops.focus.months import BillingMonth
from broker.ledger.finops.showback import IDLE, SharingRule, SharingRules
from broker.settings import Settings
from broker.store.jobs.journal import StoreWriter
from cli import registries
from tests.actors import ANN, EVERYBODYS, OLGA, with_clock
from tests.empty_store import empty_store
from tests.focus_ledger import HOUR, OCTOBER, RUN, SEPTEMBER, post_two_months, spent

DAY = timedelta(days=1)
APART = SharingRules()


def test_each_team_has_its_use_and_what_was_bought_is_charged_to_nobody(broker: Broker) -> None:
    post_two_months(broker.store)
    found = showback_report(broker, "2026-09", APART)
    assert [(row.team, row.cash, row.amortised) for row in found.rows] == [
        ("nlp", Money.usd("29"), Money.ZERO),
        ("web", Money.ZERO, Money.usd("7.25")),
    ]
    assert found.bought_in_advance == Money.usd("700")
    assert found.over
    assert found.held == {}


def test_idle_capacity_follows_its_rule(broker: Broker) -> None:
    post_two_months(broker.store)
    paid = Money.usd("3600")
    owned = Holding(HoldingKind.OWNED, "H100", 8, "basement", "here", SEPTEMBER, SEPTEMBER + 30 * DAY, upfront=paid)
    broker.store.add_holding(owned, by="ann")
    assert {row.team: row.idle for row in showback_report(broker, "2026-09", APART).rows if row.idle} == {IDLE: paid}
    by_use = showback_report(broker, "2026-09", SharingRules(SharingRule.PROPORTIONAL))
    assert {row.team: row.idle for row in by_use.rows if row.idle} == {"web": paid}
    evenly = showback_report(broker, "2026-09", SharingRules(SharingRule.EVEN))
    assert {row.team: row.idle for row in evenly.rows if row.idle} == dict.fromkeys(("nlp", "web"), Money.usd("1800"))


def test_statements_stay_in_one_time_zone_and_leave_no_hour_out(broker: Broker) -> None:
    """Also where the policy names another one later."""

    def policy(zone: str) -> None:
        broker.store.activate_policy({"p.yaml": f"version: 1\ndefaults: {{timezone: {zone}}}\n"}, by="test")

    policy("America/Los_Angeles")
    with broker.store.writing() as tx:
        for at in range(-12, 13):  # an hour each, around the end of September
            begins = OCTOBER + at * HOUR
            tx.post(spent(at + 100, "1", begins, begins + HOUR, begins + HOUR))
    assert showback_report(broker, "2026-09", APART).total.cash == Money.usd(19)
    assert showback_report(broker, "2026-09", APART, "Asia/Kolkata").total.cash == Money.usd("6.5")
    first = make_statement(broker, "2026-09", APART, by=ANN)
    assert (first.timezone, first.charged) == ("America/Los_Angeles", Money.usd(19))
    policy("Asia/Kolkata")
    second = make_statement(broker, "2026-10", APART, by=ANN)
    assert (second.timezone, second.charged) == ("America/Los_Angeles", Money.usd(6))
    assert [one.timezone for one in statements(broker).statements] == ["America/Los_Angeles"] * 2


def test_a_statement_stays_and_what_comes_later_is_a_correction(broker: Broker) -> None:
    post_two_months(broker.store)
    made = make_statement(broker, "2026-09", APART, by=ANN)
    assert (made.charged, made.frozen_by) == (Money.usd("36.25"), ANN.identity)
    with broker.store.writing() as tx:
        tx.post(spent(8, "5", SEPTEMBER, SEPTEMBER + HOUR, OCTOBER + 9 * DAY, movement=Movement.ADJUST))
    (correction,) = make_statement(broker, "2026-10", APART, by=ANN).corrections
    assert (correction.month, correction.team, correction.amount) == ("2026-09", "nlp", Money.usd("5"))
    with broker.store.writing() as tx:
        late = replace(RUN, job_id="late", team=None)
        tx.post(spent(9, "-1", SEPTEMBER, SEPTEMBER + HOUR, OCTOBER + 40 * DAY, movement=Movement.ADJUST, tags=late))
    again = chargeback_statement(broker, "2026-09")
    assert again.model_copy(update={"corrected_since": []}) == made
    assert [(one.billed_in, one.team, str(one.amount)) for one in again.corrected_since] == [
        ("2026-10", "nlp", "$5.00"),
        (None, NOBODY, "-$1.00"),
    ]
    with pytest.raises(InvalidInput, match=f"frozen at .* by {ANN.identity}"):
        make_statement(broker, "2026-09", SharingRules(SharingRule.EVEN), by=OLGA)
    assert [one.month for one in statements(broker).statements] == ["2026-10", "2026-09"]


def test_what_is_recorded_after_the_freeze_with_a_time_before_the_close_is_a_correction(broker: Broker) -> None:
    make_statement(broker, "2026-09", APART, by=ANN)
    just_before = BillingMonth.of(SEPTEMBER).closes - timedelta(seconds=1)
    with broker.store.writing() as tx:
        tx.post(spent(1, "7", SEPTEMBER, SEPTEMBER + HOUR, just_before))
    assert [(one.billed_in, one.amount) for one in chargeback_statement(broker, "2026-09").corrected_since] == [
        (None, Money.usd("7"))
    ]
    assert make_statement(broker, "2026-10", APART, by=ANN).charged == Money.usd("7")


def test_capacity_bought_in_advance_is_charged_to_nobody_however_late_it_is_recorded(broker: Broker) -> None:
    make_statement(broker, "2026-09", APART, by=ANN)
    bought = replace(RUN, attempt=None, capacity_type=CapacityType.RESERVED)
    with broker.store.writing() as tx:
        tx.post(spent(1, "700", SEPTEMBER, SEPTEMBER, OCTOBER + 9 * DAY, tags=bought))
    later = make_statement(broker, "2026-10", APART, by=ANN)
    assert (later.charged, later.bought_in_advance) == (Money.ZERO, Money.usd("700"))


def test_of_two_months_frozen_at_once_one_has_the_corrections(
    new_broker: Callable[[], Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, other = new_broker(), new_broker()
    make_statement(broker, "2026-08", APART, by=ANN)
    with broker.store.writing() as tx:
        august = SEPTEMBER - DAY
        tx.post(spent(1, "3", august, august + HOUR, august + HOUR))
    writing = broker.store.writing

    def after_the_other() -> AbstractContextManager[StoreWriter]:
        monkeypatch.setattr(broker.store, "writing", writing)
        make_statement(other, "2026-10", APART, by=OLGA)
        return writing()

    monkeypatch.setattr(broker.store, "writing", after_the_other)
    make_statement(broker, "2026-09", APART, by=ANN)
    assert {one.month: one.charged for one in statements(broker).statements} == {
        "2026-10": Money.usd("3"),
        "2026-09": Money.ZERO,
        "2026-08": Money.ZERO,
    }


def test_an_open_month_has_no_statement(broker: Broker) -> None:
    now = datetime.now(UTC)
    for month in {f"{now:%Y-%m}", f"{now + 31 * DAY:%Y-%m}"}:
        with pytest.raises(InvalidInput, match="open until"):
            make_statement(broker, month, APART, by=ANN)
    with pytest.raises(InvalidInput, match="no statement of 2026-01"):
        chargeback_statement(broker, "2026-01")
    with pytest.raises(InvalidInput, match="2026-09 is open until 2026-10-04"):
        make_statement(with_clock(broker, ManualClock(OCTOBER + 2 * DAY)), "2026-09", APART, by=ANN)
    assert not showback_report(broker, f"{now:%Y-%m}", APART).over


@pytest.mark.parametrize(
    "rules",
    [
        SharingRules(SharingRule.FIXED),
        SharingRules(SharingRule.FIXED, weights={"nlp": 0}),
        SharingRules(SharingRule.FIXED, weights={"nlp": 2, "web": -1}),
        SharingRules(SharingRule.FIXED, weights={"nlp": 1, NOBODY: 1}),
        SharingRules(shared=SharingRule.EVEN),
        SharingRules(SharingRule.FIXED, SharingRule.EVEN, ("nlp",), {"nlp": 1}),
    ],
)
def test_rules_that_say_nothing_are_refused(broker: Broker, rules: SharingRules) -> None:
    with pytest.raises(InvalidInput):
        showback_report(broker, "2026-09", rules)


@dataclass(frozen=True)
class LatePosting:
    """An entry: ``hour`` after May began, for ``hours``, posted ``late`` days after its end. ``ahead``: for capacity
    bought in advance."""

    team: str | None
    kind: CapacityType
    money: MoneyKind
    micros: int
    hour: int
    hours: int
    late: int
    ahead: bool


posted = st.builds(
    LatePosting,
    st.sampled_from(["nlp", "web", None]),
    st.sampled_from(list(CapacityType)),
    st.sampled_from([MoneyKind.CASH, MoneyKind.AMORTISED]),
    st.integers(-(10**9), 10**9),
    st.integers(0, 40 * 24),
    st.integers(0, 900),
    st.integers(-60, 60),
    st.booleans(),
)
MAY = datetime(2026, 5, 1, tzinfo=UTC)
MONTHS, LAST = ["2026-05", "2026-06", "2026-07"], "2026-08"


@given(steps=st.lists(st.one_of(posted, st.sampled_from(MONTHS)), max_size=14))
@settings(max_examples=15, deadline=None)
def test_all_statements_together_are_the_ledger(
    tmp_path_factory: pytest.TempPathFactory, steps: list[LatePosting | str]
) -> None:
    """Whatever is recorded when, and in whatever order months are frozen."""
    home = tmp_path_factory.mktemp("statements")
    found = Settings(home=home, store=empty_store(home / "store.db"), runs=(home / "runs").as_uri())
    with closing(Broker(found, registries(), EVERYBODYS)) as broker:
        for number, step in enumerate([*steps, *MONTHS, LAST]):
            if isinstance(step, LatePosting):
                since = MAY + step.hour * HOUR
                until = since + step.hours * HOUR
                run = replace(RUN, job_id=f"job-{number}", team=step.team, capacity_type=step.kind)
                tags = replace(run, attempt=None) if step.ahead else run
                at = until + step.late * DAY
                with broker.store.writing() as tx:
                    amount = str(Money(step.micros).dollars)
                    adjust = Movement.ADJUST
                    tx.post(spent(number, amount, since, until, at, movement=adjust, money=step.money, tags=tags))
            elif step not in {one.month for one in statements(broker).statements}:
                make_statement(broker, step, APART, by=ANN)
        with broker.store.reading() as look:
            paid = sum((one.amount for one in look.all_entries() if one.account == Account.SPENT), Money.ZERO)
            in_all = look.statements()
        assert sum((one.total + one.bought_in_advance for one in in_all), Money.ZERO) == paid
        for one in in_all:
            now, since_then = (
                showback_report(broker, one.month, APART),
                chargeback_statement(broker, one.month).corrected_since,
            )
            then = sum((row.total for row in one.rows), Money.ZERO)
            assert then + sum((late.amount for late in since_then), Money.ZERO) == now.total.total


def test_where_there_are_people_administrators_alone_freeze(broker: Broker) -> None:
    post_two_months(broker.store)
    people.add(broker, "ann", by=ANN, administrator=True)
    people.add(broker, "olga", by=ANN)
    with pytest.raises(NotAllowed, match="only an administrator"):
        make_statement(broker, "2026-09", APART, by=OLGA)
    assert make_statement(broker, "2026-09", APART, by=ANN).frozen_by == "ann"


def test_capacity_recorded_after_a_freeze_is_charged_with_the_next_statement_once(broker: Broker) -> None:
    post_two_months(broker.store)
    make_statement(broker, "2026-09", APART, by=ANN)
    paid = Money.usd("3600")
    owned = Holding(HoldingKind.OWNED, "H100", 8, "basement", "here", SEPTEMBER, SEPTEMBER + 30 * DAY, upfront=paid)
    broker.store.add_holding(owned, by="ann")
    (seen,) = chargeback_statement(broker, "2026-09").corrected_since
    assert (seen.team, seen.amount, seen.billed_in) == (IDLE, paid, None)
    corrections = make_statement(broker, "2026-10", APART, by=ANN).corrections
    assert [(one.month, one.team, one.amount) for one in corrections if one.team == IDLE] == [("2026-09", IDLE, paid)]
    (seen,) = chargeback_statement(broker, "2026-09").corrected_since
    assert seen.billed_in == "2026-10"
