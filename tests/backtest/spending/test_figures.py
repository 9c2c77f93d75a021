"""The figures of `broker/finops/README.md`, loosely: on processes that chose nothing, with a seed of its own;
and how well the end of a period is foretold.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.backtest.spending.anomalies import run_anomaly_backtest
from broker.backtest.spending.forecasts import run_forecast_backtest
from broker.backtest.spending.series import DailySpending, read_labels, read_series
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


def series(*days: float, name: str = "a") -> DailySpending:
    return DailySpending(name, 0, days, dated=False)


def test_steady_spending_is_foretold_almost_without_error() -> None:
    found = run_forecast_backtest([series(*[50.0] * 36)])
    assert [(one.day, one.windows) for one in found.days] == [(10, 3), (15, 3), (20, 3)]
    for one in found.days:
        assert one.error == pytest.approx(0, abs=2e-3)
        assert one.coverage == 1


def test_a_step_is_an_error_worked_out_by_hand() -> None:
    """20 days of 10, then 10 of 40: on day 20 everything says 300, and it comes to 600."""
    (_, _, last) = run_forecast_backtest([series(*[10.0] * 20, *[40.0] * 10)]).days
    assert last.error == pytest.approx(0.5, rel=0.01)
    assert last.run_rate_error == pytest.approx(0.5)
    assert last.coverage == 0


def test_what_cannot_be_measured_is_noted() -> None:
    found = run_forecast_backtest([series(*[1.0] * 29), series(*[0.0] * 40, name="b")])
    assert found.notes == ("a: shorter than 30 days, not measured", "b: no window with spending, not measured")
    assert found.days[0].error is None


def test_only_the_past_is_seen() -> None:
    """What comes after day 20 changes the error, and no interval or estimate: the same width in USD."""
    quiet, loud = (run_forecast_backtest([series(*[10.0, 12.0] * 10, *[end] * 10)]).days[2] for end in (11.0, 50.0))
    assert quiet.width is not None
    assert loud.width is not None
    assert quiet.width * 330 == pytest.approx(loud.width * 720)
