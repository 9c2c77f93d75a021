"""What the provider lists against what was bought, by hand, and how people are told of a difference."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from broker.core.market.capacity import Charge, Reservation
from broker.core.notices import Notice, Severity
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.values.money import Money
from broker.procurement.comparison import DifferenceKind, charge_differences, differences, unlisted_purchases
from tests.core.purchases.test_purchase_steps import FAILED, NOW, PATHS, QUOTE, bought

LISTED = Reservation(
    id="cr-1", provider="aws", region="us-east-1", zone=None, kind="capacity_block", instance_type="p5", machines=2,
    starts=QUOTE.starts, ends=QUOTE.ends, mark="purchase-1",
)  # fmt: skip


def test_what_is_paid_is_unseen_where_its_order_is_not_listed() -> None:
    held = bought(*PATHS[PurchaseState.HELD])
    assert unlisted_purchases([held], [], NOW) == [held]
    assert unlisted_purchases([held], [LISTED], NOW) == []
    assert unlisted_purchases([held], [replace(LISTED, id="cr-2", mark="")], NOW) == [held]
    assert unlisted_purchases([held], [replace(LISTED, id="us-east-1/cr-1")], NOW) == [], "it is known by its mark"
    assert unlisted_purchases([held], [], QUOTE.ends) == []
    assert unlisted_purchases([bought(*PATHS[PurchaseState.ORDERED])], [], NOW) == []


def test_an_order_that_ended_as_not_bought_and_is_listed_is_told_with_its_place() -> None:
    failed = bought(*PATHS[PurchaseState.ORDERED], FAILED)
    [found] = differences([failed], [], [replace(LISTED, ends=QUOTE.ends + timedelta(hours=1))], [])
    assert (found.kind, found.order, found.purchase) == (DifferenceKind.NOT_AS_BOUGHT, "cr-1", "purchase-1")
    assert "not bought" in found.told
    assert "ends 2026-11-26 13:00 UTC" in found.told
    assert found.notice == Notice(
        "capacity/not_as_bought/aws/cr-1", "aws/us-east-1: cr-1", found.told, Severity.WARNING
    )


def test_the_kinds_keep_their_names_for_a_notice_is_sent_once_by_them() -> None:
    assert [str(kind) for kind in DifferenceKind] == [
        "not_recorded", "other_store", "not_listed", "not_as_bought", "twice", "charged_otherwise", "charge_unknown",
    ]  # fmt: skip


def charge(amount: str, key: str = "purchase-1", **more: Any) -> Charge:
    return Charge("aws", NOW, NOW + timedelta(days=1), Money.usd(amount), key, **{"estimated": False, **more})


HELD = bought(*PATHS[PurchaseState.HELD])  # $3,800 was paid
LATE = NOW + timedelta(days=4)


def charged(*charges: Charge, of: Purchase = HELD, at: datetime = LATE) -> list[tuple[str, str]]:
    return [(one.kind, one.told) for one in charge_differences([of], charges, at)]


def test_charges_that_are_as_booked_are_no_difference() -> None:
    assert charged(charge("3800")) == []
    assert charged(charge("1800"), charge("2000")) == []
    assert charged(charge("3800.01")) == [], "it is rounded"
    assert charged() == []


def test_another_charge_than_was_booked() -> None:
    [(kind, told)] = charged(charge("3800.02"))
    assert (kind, told) == (
        DifferenceKind.CHARGED_OTHERWISE,
        "$3,800.02 was charged, and $3,800.00 was booked; check the invoice",
    )
    assert charged(charge("900"), at=NOW + timedelta(days=3)) == [], "more may come"
    assert charged(charge("900", estimated=True)) == []


def test_a_charge_for_what_is_not_known_or_was_not_bought() -> None:
    [(kind, told)] = charged(charge("5", key="purchase-of-others"))
    assert (kind, "this store does not know it" in told) == (DifferenceKind.CHARGE_UNKNOWN, True)
    [(kind, told)] = charged(charge("5"), of=bought(*PATHS[PurchaseState.NOT_BOUGHT]))
    assert (kind, "recorded here as not bought" in told) == (DifferenceKind.CHARGE_UNKNOWN, True)
    assert charged(charge("5", key="train-1")) == [], "a job's attempt"
