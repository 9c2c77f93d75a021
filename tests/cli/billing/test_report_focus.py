"""`gpubroker report focus` as people run it."""

from datetime import UTC, datetime
from pathlib import Path

from tests.cli.conftest import Gpubroker


def test_a_month_without_charges_is_a_header_and_says_until_when_it_is_open(
    gpubroker: Gpubroker, tmp_path: Path
) -> None:
    out, month = tmp_path / "now.csv", f"{datetime.now(UTC):%Y-%m}"
    done = gpubroker("report", "focus", "--month", month, "--out", out)
    assert done.code == 0
    assert f"0 charges of {month}" in done.out
    assert "open until" in done.out
    (header,) = out.read_text().splitlines()
    assert "BilledCost" in header.split(",")


def test_a_month_to_come_is_a_mistake(gpubroker: Gpubroker, tmp_path: Path) -> None:
    out = tmp_path / "later.csv"
    done = gpubroker("report", "focus", "--month", "2099-01", "--out", out)
    assert done.code == 2
    assert "2099-01 has not begun" in done.err
    assert not out.exists()


def test_a_file_that_exists_is_not_written_over_without_force(gpubroker: Gpubroker, tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    out.write_text("mine")
    done = gpubroker("report", "focus", "--month", "2026-01", "--out", out)
    assert done.code == 2
    assert out.read_text() == "mine"
    assert gpubroker("report", "focus", "--month", "2026-01", "--out", out, "--force", "--json").json["rows"] == 0


def test_an_unknown_version_names_one_that_there_is(gpubroker: Gpubroker, tmp_path: Path) -> None:
    done = gpubroker("report", "focus", "--version", "1.0", "--month", "2026-01", "--out", tmp_path / "a.csv")
    assert done.code == 2
    assert "did you mean '1.4'" in done.err
