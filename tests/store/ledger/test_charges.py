"""What providers charged, as they said it last."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from broker.core.market.capacity import Charge
from broker.core.values.money import Money
from broker.store import Store
from broker.store.ledger.charges import ChargeScope, RecordedCharges

DAY = timedelta(days=1)
MIDNIGHT = datetime(2026, 11, 1, tzinfo=UTC)
AT = MIDNIGHT + 5 * DAY


def charge(key: str, micros: int, day: int = 0, **more: Any) -> Charge:
    values: dict[str, Any] = {"provider": "aws", "estimated": False, "about": {"source": "api"}} | more
    starts = MIDNIGHT + day * DAY
    return Charge(starts=starts, ends=starts + DAY, amount=Money(micros), key=key, **values)


def test_they_come_back_as_they_were(store: Store) -> None:
    told = [
        charge("a-1", 12_345_678, estimated=True),
        charge("", -5, about={"source": "api", "line": "credit"}),
        charge("a-1", 1, 1, provider="vast"),
    ]
    assert store.charges.record(told, source="api", at=AT) == RecordedCharges({"aws": 2, "vast": 1}, {})
    assert sorted(store.charges.all(), key=repr) == sorted(told, key=repr)
    assert store.charges.all("vast") == told[2:]
    assert store.charges.sources("aws") == {"api"}
    assert store.charges.sources("gcp") == set()


def test_what_is_said_again_changes_nothing_and_what_is_said_otherwise_replaces_it(store: Store) -> None:
    one = charge("a-1", 5, estimated=True)
    for said, changed in ((one, 1), (one, 0), (replace(one, estimated=False), 1), (replace(one, amount=Money(6)), 1)):
        assert store.charges.record([said], source="api", at=AT).changed == ({"aws": 1} if changed else {})
        assert store.charges.all() == [said]


def test_several_for_one_time_are_told_apart_whatever_their_order(store: Store) -> None:
    told = [charge("a-1", 5), charge("a-1", 5), charge("a-1", 7)]
    assert store.charges.record(told, source="bill.csv", at=AT).changed == {"aws": 3}
    assert store.charges.record(told[::-1], source="bill.csv", at=AT).changed == {}
    assert sum(one.amount.micros for one in store.charges.all()) == 17


def test_what_a_provider_no_longer_tells_is_gone_from_the_time_asked_about_on(store: Store) -> None:
    told = [charge("a-1", 1, day) for day in range(3)] + [charge("a-1", 1, 2, provider="vast")]
    store.charges.record(told, source="api", at=AT)
    done = store.charges.record([told[1]], source="api", at=AT, whole=[ChargeScope("aws", MIDNIGHT + DAY)])
    assert done == RecordedCharges({"aws": 1}, {"aws": 1})
    assert store.charges.all("aws") == told[:2]
    assert store.charges.all("vast") == told[3:]
    assert store.charges.record([], source="api", at=AT, whole=[ChargeScope("aws", MIDNIGHT)]).replaced == {"aws": 2}
