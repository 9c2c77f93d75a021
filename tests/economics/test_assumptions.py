"""The table of assumptions: every value in force is in its own range, any may be replaced, a slip is told."""

from dataclasses import fields
from typing import Any

import pytest

from broker.core.errors import InvalidInput, UnknownName
from broker.economics.assumptions import DEFAULTS, Assumptions, non_defaults, override, table
from broker.economics.buy_or_rent import compare


def test_every_default_is_in_its_range_and_has_a_source() -> None:
    for name, row in table().items():
        default = getattr(DEFAULTS, name)
        assert row.source, name
        assert default is None or row.range.read(default) == default, name
    rest = {field.name for field in fields(Assumptions)} - table().keys()
    assert all(not getattr(DEFAULTS, name) for name in rest), "only what runs measured is not in the table"


def test_replaced_values_are_told_and_the_rest_stays() -> None:
    own = override({"memory_headroom": 0.15, "gpus_per_node": 4, "grid_of_days": [0.8, 1.5]})
    assert (own.memory_headroom, own.gpus_per_node, own.grid_of_days) == (0.15, 4, (0.8, 1.5))
    assert non_defaults(own) == {"memory_headroom": 0.15, "gpus_per_node": 4, "grid_of_days": (0.8, 1.5)}
    assert override({}) == DEFAULTS


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("purchase_usd", "$12,000", 12_000),
        ("utilization", "70%", 0.7),
        ("tokens", "1.4T", 1.4e12),
        ("nvlink", "no", False),
        ("precision", "INT4", "int4"),
        ("grid_of_days", "0.8,1.5", (0.8, 1.5)),
        ("location", "aws/us-east-1", "aws/us-east-1"),
    ],
)
def test_values_are_read_as_people_write_them(name: str, text: str, value: Any) -> None:
    assert getattr(override({name: text}), name) == value


def test_a_replaced_rule_is_what_the_arithmetic_is_held_against() -> None:
    case = override(
        {"purchase_usd": 12_000, "rent_usd_per_hour": 5.12, "resale_share": 0, "lead_time_weeks": 0}
    )  # pays above 2.1 h/day
    own_case = override({"rent_below_hours_per_day": 2}, base=case)
    usual, own = ({check.rule: check.holds for check in compare(one).rules_of_thumb} for one in (case, own_case))
    assert usual["under 4 h/day: rent"] is False
    assert own["under 2 h/day: rent"] is True


def test_an_unknown_name_is_told_with_what_was_meant() -> None:
    with pytest.raises(UnknownName, match="did you mean 'memory_headroom'"):
        override({"memory_hedroom": 0.1})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("memory_headroom", -0.1, "a number, 0 to 0.9"),
        ("memory_headroom", True, "a number, 0 to 0.9"),
        ("mfu", float("nan"), "a number above 0, up to 1"),
        ("mfu", "", "a number above 0"),
        ("mfu", "0", "a number above 0"),
        ("gpus_per_node", 7.5, "a whole number, 1 to 1,024"),
        ("grid_of_days", 0.3, "2 numbers, above 0"),
        ("grid_of_days", [0.3, "half"], "2 numbers"),
        ("precision", "int3", "fp32, bf16"),
        ("offload", "perhaps", "yes, no"),
    ],
)
def test_what_is_out_of_range_is_refused(name: str, value: Any, expected: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name}: expected {expected}"):
        override({name: value})
