"""What the provider lists against what was bought, by hand, and how people are told of a difference."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from broker.core.market.capacity import Reservation
from broker.core.notices import Notice, Severity
from broker.core.purchases.purchases import PurchaseState
from broker.procurement.comparing import DifferenceKind, differences, unseen
from tests.core.purchases.test_purchase_steps import FAILED, NOW, PATHS, QUOTE, bought

LISTED = Reservation(
    id="cr-1", provider="aws", region="us-east-1", zone=None, kind="capacity_block", instance_type="p5", machines=2,
    starts=QUOTE.starts, ends=QUOTE.ends, mark="purchase-1",
)  # fmt: skip


def test_what_is_paid_is_unseen_where_its_order_is_not_listed() -> None:
    held = bought(*PATHS[PurchaseState.HELD])
    assert unseen([held], [], NOW) == [held]
    assert unseen([held], [LISTED], NOW) == []
    assert unseen([held], [replace(LISTED, id="cr-2")], NOW) == [held]
    assert unseen([held], [], QUOTE.ends) == []
    assert unseen([bought(*PATHS[PurchaseState.ORDERED])], [], NOW) == []


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
        "not_recorded", "other_store", "not_listed", "not_as_bought", "twice",
    ]  # fmt: skip
