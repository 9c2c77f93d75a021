"""What of a standing grant is used: by jobs that are open, and by those that are closed, which is kept as one sum."""

from datetime import UTC, datetime, timedelta

from broker.core.market.offers import MoneyKind
from broker.core.policy.approvals import StandingGrant
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags, move
from broker.store import Store
from tests.past import HOUR, finished, started
from tests.store.work import statements_work

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
RUNNING, CLOSED = "open-04-tmplt", "past-00-tmplt"


def grant(store: Store, until: datetime = NOW + 100 * HOUR) -> int:
    with store.writing() as tx:
        given = StandingGrant(0, "bob", NOW - 9 * HOUR, until, Money.usd("900"), ("dear",), ("user-*",))
        return tx.give_standing(given).number


def used(store: Store, at: datetime | None = None) -> list[Money]:
    with store.reading() as look:
        return [one.used for one in look.standing_grants(at)]


def charge(store: Store, job_id: str, amount: str, kind: MoneyKind = MoneyKind.CASH) -> None:
    entries = move(
        Movement.ADJUST, Money.usd(amount), movement_id=f"{job_id}/late/{amount}/{kind}", money=kind,
        at=NOW, covers=(NOW - HOUR, NOW), tags=Tags(job_id, "ann", attempt=1),
    )  # fmt: skip
    with store.writing() as tx:
        tx.post(entries)


def lived(store: Store) -> None:
    """One job that runs and one that is closed under the first grant, and charges for each that came later."""
    grant(store)
    started(store, 4, NOW - HOUR)
    charge(store, RUNNING, "1")
    finished(store, 0, NOW - 5 * HOUR)
    charge(store, CLOSED, "2")
    charge(store, CLOSED, "-0.50")
    charge(store, CLOSED, "7", MoneyKind.AMORTISED)


def wanted(store: Store) -> Money:
    """What both jobs hold and have spent, added up from their balances."""
    with store.reading() as look:
        balances = [look.balance(job_id)[MoneyKind.CASH] for job_id in (RUNNING, CLOSED)]
    assert balances[0].held + balances[0].spent == Money.usd("41")
    assert balances[1].held == Money.ZERO
    return sum((one.held + one.spent for one in balances), Money.ZERO)


def test_open_and_closed_jobs_count_and_later_charges_too(store: Store) -> None:
    lived(store)
    assert used(store) == [wanted(store)]


def test_made_anew_it_is_the_same(store: Store) -> None:
    lived(store)
    before = used(store)
    store.rebuild()
    assert used(store) == before


def test_only_grants_that_are_good_then_are_asked_for(store: Store) -> None:
    grant(store, until=NOW)
    grant(store)
    assert len(used(store)) == 2
    assert len(used(store, NOW - timedelta(seconds=1))) == 2
    assert len(used(store, NOW)) == 1


def test_closed_jobs_cost_nothing_to_count(store: Store) -> None:
    grant(store)
    for number in (0, 4):
        finished(store, number, NOW - 5 * HOUR)
    with statements_work(store) as few:
        used(store)
    for number in range(8, 40, 4):
        finished(store, number, NOW - 5 * HOUR)
    with statements_work(store) as many:
        found = used(store)
    assert many.done == few.done
    with store.reading() as look:
        balances = [look.balance(f"past-{number:02d}-tmplt")[MoneyKind.CASH].spent for number in range(0, 40, 4)]
    assert found == [sum(balances, Money.ZERO)]
