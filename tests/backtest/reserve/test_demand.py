"""Columns of a demand file: which one is demand, and which one only numbers the hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.backtest.reserve.demand import read_demand
from broker.core.errors import InvalidInput


def test_a_column_that_numbers_the_hours_is_no_demand(tmp_path: Path) -> None:
    path = tmp_path / "demand.csv"
    path.write_text("hour,H100\n0,5\n1,7\n")
    (found,) = read_demand([path])
    assert (found.column, found.hours) == ("H100", (5, 7))
    path.write_text("hour,H100\n0,5\n2,7\n")
    with pytest.raises(InvalidInput, match="has '2' where 1 was expected"):
        read_demand([path])
