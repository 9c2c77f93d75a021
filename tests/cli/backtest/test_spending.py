"""`gpubroker backtest forecast` and `gpubroker backtest anomalies` as people run them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.cli.conftest import Gpubroker

Write = Callable[[str, str], Path]
FIRST = date(2026, 1, 1)


def spending(*dear: int) -> str:
    rows = (f"{FIRST + timedelta(days=day)},{100 + day % 7 + 150 * (day in dear)},{40 + day % 3}" for day in range(70))
    return "day,nlp,vision\n" + "\n".join(rows) + "\n"


def test_the_forecast_document(gpubroker: Gpubroker, write: Write) -> None:
    found = gpubroker("backtest", "forecast", write("s.csv", spending()), "--json").json
    assert [one["day"] for one in found["days"]] == [10, 15, 20]
    assert all(one["windows"] == 28 and one["error"] < 0.02 and one["coverage"] is not None for one in found["days"])
    assert [one["series"] for one in found["series"]] == ["nlp", "vision"]


def test_the_anomaly_document_with_labels(gpubroker: Gpubroker, write: Write) -> None:
    labels = write("l.csv", "series,first_day,last_day\nnlp,2026-02-10,2026-02-11\n")
    found = gpubroker("backtest", "anomalies", write("s.csv", spending(40, 55)), "--labels", labels, "--json").json
    assert (found["recall"], found["delay_days"], found["alarms"]) == (1.0, 0.0, 1)
    incidents = next(one["incidents"] for one in found["series"] if one["series"] == "nlp")
    assert [one["first_day"] for one in incidents] == ["2026-02-10", "2026-02-25"]


def test_tables_for_people(gpubroker: Gpubroker, write: Write) -> None:
    series = write("s.csv", spending(40))
    assert "in interval" in gpubroker("backtest", "forecast", series).out
    shown = gpubroker("backtest", "anomalies", series).out
    assert "planted, +100%" in shown
    assert "nlp: 2026-02-10" in shown


def test_a_series_that_is_too_short_to_judge_is_named(gpubroker: Gpubroker, write: Write) -> None:
    short = "day,a\n" + "".join(f"{FIRST + timedelta(days=day)},10\n" for day in range(9))
    shown = gpubroker("backtest", "anomalies", write("s.csv", short)).out
    assert "a: 9 days, and the first 14 are not judged" in " ".join(shown.split())


@pytest.mark.parametrize("command", ["forecast", "anomalies"])
def test_a_file_that_cannot_be_read_ends_with_its_place(gpubroker: Gpubroker, write: Write, command: str) -> None:
    done = gpubroker("backtest", command, write("s.csv", "day,a\n2026-01-01,x\n"))
    assert done.code == 2
    assert "s.csv" in done.err
