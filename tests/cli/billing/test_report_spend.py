"""`gpubroker report spend` by several dimensions, for named periods and into files."""

from pathlib import Path
from typing import Any

import pytest

from broker.core.values.clock import SystemClock
from broker.store import open_store
from tests.contracts.sweeping import record_jobs
from tests.past import HOUR, finished


@pytest.fixture
def ran(home: Path) -> None:
    store = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=SystemClock())
    with store.writing() as tx:
        record_jobs(tx, provider="pricebook")
    store.close()


@pytest.mark.usefixtures("ran")
def test_a_column_for_each_dimension(gpubroker: Any) -> None:
    found = gpubroker("report", "spend", "--by", "provider,capacity-type", "--json").json
    assert found["by"] == "provider,capacity_type"
    assert found["rows"]
    assert {len(row["values"]) for row in found["rows"]} == {2}
    assert {row["group"] for row in found["rows"]} == {", ".join(row["values"]) for row in found["rows"]}
    shown = gpubroker("report", "spend", "--by", "provider,capacity-type").out
    assert "provider" in shown
    assert "capacity_type" in shown


@pytest.mark.parametrize(
    "report", [("spend", "--period", "2026-11"), ("units", "--period", "2026-11"), ("forecasts", "--period", "2026-11"),
               ("billed", "--period", "2026-11"), ("review", "--month", "2026-11"), ("showback", "--month", "2026-11")],
)  # fmt: skip
def test_every_report_of_a_month_is_in_the_zone_of_the_policy_and_says_it(
    gpubroker: Any, home: Path, tmp_path: Path, report: tuple[str, ...]
) -> None:
    policy = tmp_path / "p.yaml"
    berlin = "{name: b, amount: $900, period: month, timezone: Europe/Berlin}"
    policy.write_text(f"version: 1\nbudgets: [{berlin}, {{name: without-a-zone, amount: $100, period: day}}]\n")
    assert gpubroker("policy", "apply", policy, "--yes").code == 0

    def begins(found: dict[str, Any]) -> str:
        return str((found.get("after") or found).get("since") or found["from"])

    for more, zone, start in (
        ((), "Europe/Berlin", "2026-10-31T23:00:00Z"),
        (("--timezone", "Asia/Tokyo"), "Asia/Tokyo", "2026-10-31T15:00:00Z"),
        (("--timezone", "UTC"), "UTC", "2026-11-01T00:00:00Z"),
    ):
        found = gpubroker("report", *report, *more, "--json").json
        assert (found["timezone"], begins(found)) == (zone, start)
        assert zone in gpubroker("report", *report, *more).out
    refused = gpubroker("report", *report, "--timezone", "Berlin")
    assert (refused.code, "'Berlin' is not a time zone" in refused.err) == (2, True)


@pytest.mark.usefixtures("ran")
def test_by_month_begins_a_year_ago_and_a_file_has_the_rows(gpubroker: Any, tmp_path: Path) -> None:
    out = tmp_path / "spend.csv"
    found = gpubroker("report", "spend", "--by", "month,provider", "--out", out, "--json").json
    assert found["since"].endswith("-01T00:00:00Z")
    header, *lines = out.read_text().splitlines()
    assert header.startswith("month,provider,cash,")
    assert len(lines) == len(found["rows"])
    page = tmp_path / "spend.html"
    assert "written to" in gpubroker("report", "spend", "--by", "provider", "--out", page).err
    assert page.read_text().count("<tr>") == 1 + len(
        gpubroker("report", "spend", "--by", "provider", "--json").json["rows"]
    )
    assert "the file exists already" in gpubroker("report", "spend", "--out", page).err
    assert "hint: make it: mkdir -p " in gpubroker("report", "spend", "--out", page.parent / "a b" / "x.csv").err


def test_simulated_money_is_a_column_of_its_own_report_and_named_in_the_other(
    gpubroker: Any, home: Path, tmp_path: Path
) -> None:
    store = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=SystemClock())
    finished(store, 1, SystemClock().now() - 3 * HOUR)
    with store._database.writing() as connection:
        for table in ("machine_time", "movement_sum"):
            connection.exec_driver_sql(f"UPDATE {table} SET money = 'sandbox'")
    store.close()

    real, simulated = tmp_path / "real.csv", tmp_path / "simulated.csv"
    shown = gpubroker("report", "spend", "--out", real).out
    assert "nothing was spent in this period" in shown
    assert "not counted: $18.33 simulated; add --sandbox to see it" in shown
    assert "not counted" not in gpubroker("report", "spend", "--sandbox", "--out", simulated).out
    assert "sandbox" not in real.read_text()
    assert simulated.read_text().splitlines()[0].startswith("team,sandbox,held,bought,rented,gpu_hours")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--by", "team,colour"),
        ("--by", "team,team"),
        ("--period", "fortnight"),
        ("--period", "month", "--since", "7d"),
        ("--out", "spend.xlsx"),
    ],
)
def test_what_makes_no_sense_is_refused(gpubroker: Any, arguments: tuple[str, ...]) -> None:
    assert gpubroker("report", "spend", *arguments).code == 2


def test_a_time_before_the_first_year_is_a_usage_error(gpubroker: Any) -> None:
    done = gpubroker("report", "spend", "--since", "0001-01-01T00:00+14:00")
    assert (done.code, "--since: time out of range" in done.err) == (2, True)
