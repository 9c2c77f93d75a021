"""Files of hourly demand: what is read, and where a file is wrong."""

from pathlib import Path

import pytest

from broker.app.capacity.demand_files import read_demand
from broker.core.errors import InvalidInput


def file(folder: Path, text: str) -> Path:
    path = folder / "demand.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_column_that_numbers_the_hours_is_no_demand(tmp_path: Path) -> None:
    path = tmp_path / "demand.csv"
    path.write_text("hour,H100\n0,5\n1,7\n")
    (found,) = read_demand([path])
    assert (found.column, found.hours) == ("H100", (5, 7))
    path.write_text("hour,H100\n0,5\n2,7\n")
    with pytest.raises(InvalidInput, match="has '2' where 1 was expected"):
        read_demand([path])


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("", "demand.csv", "empty"),
        ("\n\n", "demand.csv", "empty"),
        ("demand\n", "demand.csv", "header but no rows"),
        ("1\n\n3\n", "demand.csv:2", "gap"),
        ("1\n-2\n3\n", "demand.csv:2", "0 or more"),
        ("1\nmany\n3\n", "demand.csv:2", "'many'"),
        ("1\nnan\n", "demand.csv:2", "'nan'"),
        ("nan\n1\n", "demand.csv:1", "'nan'"),
        ("1\ninf\n", "demand.csv:2", "'inf'"),
        ("1\n1e18\n", "demand.csv:2", "more than"),
        ("1\n2,3\n", "demand.csv:2", "expected 1 field, got 2"),
        ("1,2\n3,4\n", "demand.csv:1", "needs a header"),
        ("time,H100\n2026-03-01T00:00Z,1\n2026-03-01T00:00Z,2\n", "demand.csv:3", "next hour"),
        ("time,H100\n2026-03-01T00:00Z,1\n2026-03-01T00:30Z,2\n", "demand.csv:3", "next hour"),
        ("time,H100\n2026-03-01T00:00Z,1\n2026-03-04T00:00Z,2\n", "demand.csv:3", "hole of 71 h"),
        ("time,H100\n2026-03-01T00:00Z,1\nnoon,2\n", "demand.csv:3", "ISO 8601"),
        ("time,H100\n2026-03-01T00:00Z,1\n2026-03-01T01:00,2\n", "demand.csv", "time zone"),
        ("H100,L4\n1,2\n3,\n", "demand.csv:3", "gap"),
        ("H100,H100\n1,2\n", "demand.csv:1", "duplicate column"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, text: str, where: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as problem:
        read_demand([file(tmp_path, text)])
    assert problem.value.where.endswith(where)


def test_a_column_for_each_series_and_short_holes_filled(tmp_path: Path) -> None:
    text = "time,H100,L4\n2026-03-01T00:00Z,5,1\n2026-03-01T01:00Z,6,0\n2026-03-01T04:00Z,7,2.5\n"
    assert read_demand([file(tmp_path, text.replace(",", ";"))]) == read_demand([file(tmp_path, text)])
    h100, l4 = read_demand([file(tmp_path, text)])
    assert (h100.name, h100.hours) == ("H100", (5, 6, 6, 6, 7))
    assert (l4.name, l4.hours) == ("L4", (1, 0, 0, 0, 3))
    assert h100.notes == ("2 h missing in 1 hole(s): taken as the hour before each",)
    assert "rounded" in l4.notes[1]


def test_files_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    paths = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        paths.append(file(tmp_path / folder, "demand\n1\n2\n"))
    assert len({series.name for series in read_demand(paths)}) == 2
