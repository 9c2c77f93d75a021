"""The figures of `broker/finops/README.md`, loosely: on processes that chose nothing, with a seed of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.backtest.spending.anomalies import run_anomaly_backtest
from broker.backtest.spending.forecasts import run_forecast_backtest
from broker.backtest.spending.series import read_labels, read_series
from broker.finops.anomalies import AlarmThreshold
from tests.backtest.spending.simulated_demand import write

pytestmark = pytest.mark.system
SEED = 11


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("untouched")
    write("untouched", SEED, folder)
    return folder


def test_forecasts_miss_by_less_than_the_run_rate_and_four_of_five_lie_in_the_interval(simulated: Path) -> None:
    series, _ = read_series(simulated / "plain.csv")
    for one in run_forecast_backtest(series).days:
        assert one.error is not None
        assert one.run_rate_error is not None
        assert one.coverage is not None
        assert one.error < one.run_rate_error
        assert 0.72 <= one.coverage <= 0.88


def test_three_of_four_doubled_days_are_found_with_less_than_an_alarm_a_month(simulated: Path) -> None:
    series, _ = read_series(simulated / "spending.csv")
    labels = read_labels(simulated / "labels.csv", series)
    found = run_anomaly_backtest(series, labels, AlarmThreshold(), seed=1)
    assert found.marked is not None
    assert found.marked.recall is not None
    assert found.alarms_per_30 is not None
    assert found.marked.mean_delay is not None
    assert found.marked.recall >= 0.7
    assert found.alarms_per_30 <= 1
    assert found.marked.mean_delay <= 1
