"""Why a month cost more than the one before: the parts are all of the change, and each is what its name says."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.values.money import Money
from broker.ledger.finops.advice import AdviceKind, advice
from broker.ledger.finops.change import Cell, CellUse, Change, Part, changes, divide_by_weights, total, whole_parts

HOUR = 3_600_000
SPOT = Cell("nlp", "llm", "aws", "r1", "H100", "spot")
DEMAND = Cell("nlp", "llm", "aws", "r1", "H100", "on_demand")
WEB = Cell("web", None, "gcp", "r2", "L4", "spot")
CPU = Cell("nlp", "llm", "aws", "r1", None, "spot")
NOWHERE = Cell("nlp", "llm", None, None, None, None)

names = st.sampled_from([None, "a", "b"])
cells = st.builds(
    Cell, names, names, st.sampled_from([None, "aws", "gcp"]), names, st.sampled_from([None, "H100", "L4"]), names
)
micros = st.integers(-(10**13), 10**13)


@st.composite
def used(draw: st.DrawFn) -> CellUse:
    """Money of any sign, and times of which no more is wasted than there is."""
    time = draw(st.integers(0, 10**12))
    return CellUse(Money(draw(micros)), time, Money(draw(micros)), draw(st.integers(0, time)))


months = st.dictionaries(cells, used(), max_size=5)


def of(*rows: tuple[Cell, str, float], wasted: str = "0", wasted_hours: float = 0) -> dict[Cell, CellUse]:
    return {
        cell: CellUse(Money.usd(spent), round(hours * HOUR), Money.usd(wasted), round(wasted_hours * HOUR))
        for cell, spent, hours in rows
    }


def told(found: list[Change]) -> list[tuple[Part, str, str, str]]:
    return [(one.part, one.owner, one.place, str(one.amount)) for one in found]


@given(months, months)
def test_the_parts_are_all_of_the_change(before: dict[Cell, CellUse], after: dict[Cell, CellUse]) -> None:
    found = changes(before, after)
    assert sum((one.amount for one in found), Money.ZERO) == total(after) - total(before)
    assert all(one.amount for one in found)
    assert [abs(one.amount) for one in found] == sorted((abs(one.amount) for one in found), reverse=True)


def test_owners_that_read_alike_are_apart() -> None:
    one, other = (Cell(team, project, "aws", "r1", "H100", "spot") for team, project in (("a / b", None), ("a", "b")))
    assert (one.owner, other.owner) == ('"a / b"', "a / b")
    assert {found.part for found in changes(of((one, "10", 1)), of((other, "10", 1)))} == {Part.NEW, Part.ENDED}
    lost = of((one, "10", 1), (other, "30", 1), wasted="5", wasted_hours=0.5)
    assert [said.cost for said in advice(lost, ()) if said.kind is AdviceKind.WASTE] == [Money.usd(5), Money.usd(5)]


def test_a_place_that_was_not_used_before_is_mix_at_its_own_price() -> None:
    found = changes(of((SPOT, "20", 10)), of((DEMAND, "40", 10)))
    assert told(found) == [(Part.MIX, "nlp / llm", "", "$20.00")]


def test_all_three_at_once_add_up() -> None:
    found = changes(of((SPOT, "20", 10), (DEMAND, "40", 10)), of((SPOT, "66", 22), (DEMAND, "10", 2)))
    # 4 hours more at $3; 22 * 2 + 2 * 4 = 52 against 24 * 3 = 72; 22 * (3 - 2) + 2 * (5 - 4)
    assert told(found) == [
        (Part.PRICE, "nlp / llm", "aws r1 H100 spot", "$22.00"),
        (Part.MIX, "nlp / llm", "", "-$20.00"),
        (Part.VOLUME, "nlp / llm", "", "$12.00"),
        (Part.PRICE, "nlp / llm", "aws r1 H100 on_demand", "$2.00"),
    ]


def test_lost_work_is_waste_and_neither_volume_nor_price() -> None:
    found = changes(of((SPOT, "20", 10)), of((SPOT, "26", 13), wasted="6", wasted_hours=3))
    assert told(found) == [(Part.WASTE, "nlp / llm", "", "$6.00")]


def test_who_begins_is_new_and_who_stops_has_ended() -> None:
    assert told(changes(of((SPOT, "20", 10)), of((WEB, "3", 6)))) == [
        (Part.ENDED, "nlp / llm", "", "-$20.00"),
        (Part.NEW, "web", "", "$3.00"),
    ]


def test_machines_without_accelerators_are_compared_apart() -> None:
    found = changes(of((SPOT, "20", 10)), of((SPOT, "20", 10), (CPU, "1", 100)))
    assert told(found) == [(Part.NEW, "nlp / llm", "", "$1.00")]


def test_what_has_no_hours_is_another_charge() -> None:
    found = changes(of((SPOT, "20", 10), (NOWHERE, "2", 0)), of((SPOT, "20", 10), (NOWHERE, "7", 0)))
    assert told(found) == [(Part.OTHER, "nlp / llm", "", "$5.00")]


@given(st.lists(st.fractions(-1000, 1000), max_size=8))
def test_whole_parts_lose_nothing_and_stay_close(parts: list[Fraction]) -> None:
    parts.append(-sum(parts, Fraction(0)) + 7)
    found = whole_parts(parts)
    assert sum(found) == 7
    assert all(abs(number - exact) < 1 for number, exact in zip(found, parts, strict=True))


def test_the_largest_remainder_is_rounded_up_and_of_equal_ones_the_first() -> None:
    assert divide_by_weights(100, [1, 1, 1]) == [34, 33, 33]
    assert divide_by_weights(-100, [1, 1, 1]) == [-33, -33, -34]
    assert divide_by_weights(10, [0, 5, 1]) == [0, 8, 2]
    for weights in ([], [0, 0], [2, -1]):
        with pytest.raises(ValueError, match="weights"):
            divide_by_weights(1, weights)
    with pytest.raises(ValueError, match="not whole"):
        whole_parts([Fraction(1, 2)])
