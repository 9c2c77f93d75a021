"""Reading daily spending and labels."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.backtest.spending.series import MarkedEpisode, read_labels, read_series
from broker.core.errors import InvalidInput, UnknownName


def write(folder: Path, text: str, name: str = "s.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_series_may_begin_later_and_end_earlier(tmp_path: Path) -> None:
    found, notes = read_series(
        write(tmp_path, "day,a,b\n2026-02-27,1,\n2026-02-28,2.5,7\n2026-03-01,-3,8\n2026-03-02,,9\n")
    )
    assert [(one.name, one.days) for one in found] == [("a", (1, 2.5, -3)), ("b", (7, 8, 9))]
    assert found[1].day_name(0) == "2026-02-28"
    assert not notes


def test_a_day_without_a_row_had_no_spending(tmp_path: Path) -> None:
    found, notes = read_series(write(tmp_path, "day,a\n1,5\n4,6\n"))
    assert found[0].days == (5, 0, 0, 6)
    assert notes == ["2 days without a row: taken as days without spending"]
    assert found[0].day_name(3) == "4"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("day,a\n", "no day"),
        ("2026-01-01,4\n", "s.csv:1: expected a header"),
        ("day,a,a\n1,2,3\n", "s.csv:1: each series"),
        ("day,a\n2026-01-01,1\n2026-01-01,2\n", "s.csv:3: expected a day after"),
        ("day,a\n2026-01-01,1\nMonday,2\n", "s.csv:3: expected a day such as"),
        ("day,a\n1,1\n2,\n3,1\n", "s.csv:3: expected what a spent"),
        ("day,a\n1,1\n2,nan\n3,1\n", "s.csv:3"),
        ("day,a\n1,1,1\n", "s.csv:2: expected 2 fields"),
        ("day,a,b\n1,1,\n", "the series b has no day"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_series(write(tmp_path, text))
    assert says in str(caught.value)


def test_labels_are_cut_to_their_series(tmp_path: Path) -> None:
    series, _ = read_series(write(tmp_path, "day,a\n2026-01-01,1\n2026-01-02,2\n2026-01-03,2\n"))
    labels = write(tmp_path, "series,first_day,last_day\na,2026-01-02,2026-01-09\n", "l.csv")
    assert read_labels(labels, series) == [MarkedEpisode("a", 1, 2)]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("series,first,last\nb,2026-01-01,2026-01-01\n", UnknownName),
        ("series,first,last\na,2026-01-02,2026-01-01\n", InvalidInput),
        ("series,first,last\na,2025-01-02,2025-01-03\n", InvalidInput),
        ("series,first,last\na,2026-01-02\n", InvalidInput),
    ],
)
def test_labels_that_make_no_sense_are_refused(tmp_path: Path, text: str, error: type[Exception]) -> None:
    series, _ = read_series(write(tmp_path, "day,a\n2026-01-01,1\n2026-01-02,2\n"))
    with pytest.raises(error):
        read_labels(write(tmp_path, text, "l.csv"), series)
