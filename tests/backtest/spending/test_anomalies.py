"""How many anomalies are found, and how many alarms are false."""

from __future__ import annotations

import random

import pytest

from broker.backtest.spending.anomalies import SIZES, run_anomaly_backtest
from broker.backtest.spending.series import DailySpending, MarkedEpisode
from broker.finops.anomalies import AlarmThreshold


def ordinary(name: str = "a", length: int = 60) -> list[float]:
    chance = random.Random(name)
    return [100 + chance.uniform(-5, 5) for _ in range(length)]


def measured(days: list[float], labels: list[MarkedEpisode] | None) -> tuple[float | None, int, int, float | None]:
    found = run_anomaly_backtest([DailySpending("a", 0, tuple(days), dated=False)], labels, AlarmThreshold(), seed=1)
    assert found.marked is not None
    return found.marked.recall, found.false_alarms, found.judged_days, found.marked.mean_delay


def test_a_labelled_episode_is_found_and_is_no_false_alarm() -> None:
    days = ordinary()
    days[41] += 100  # the second day of the label
    days[50] += 100  # in no label
    labels = [MarkedEpisode("a", 40, 42), MarkedEpisode("a", 55, 56)]
    assert measured(days, labels) == (0.5, 1, 60 - 14 - 3 - 2, 1.0)


def test_what_stopping_would_have_cost_is_what_false_alarms_were_above_the_usual() -> None:
    days = ordinary()
    usual = days[50]
    days[50] += 100
    found = run_anomaly_backtest([DailySpending("a", 0, tuple(days), dated=False)], [], AlarmThreshold(), seed=1)
    assert found.held_back is not None
    assert found.held_back * sum(days[14:]) == pytest.approx(100, abs=abs(usual - 100) + 10)


def test_a_label_in_the_warm_up_counts_apart() -> None:
    found = run_anomaly_backtest(
        [DailySpending("a", 0, tuple(ordinary()), dated=False)], [MarkedEpisode("a", 2, 4)], AlarmThreshold(), seed=1
    )
    assert found.unjudged == 1
    assert found.marked is not None
    assert found.marked.recall is None


def test_without_labels_episodes_are_planted_and_larger_ones_are_found_more_often() -> None:
    series = [DailySpending(name, 0, tuple(ordinary(name)), dated=False) for name in "abc"]
    found = run_anomaly_backtest(series, None, AlarmThreshold(), seed=1)
    assert [one.size for one in found.planted] == list(SIZES)
    assert all(one.episodes == 90 for one in found.planted)
    assert [one.recall for one in found.planted] == [1, 1, 1], "of quiet series everything is found"
    assert found.alarms_per_30 == 0
    deaf = run_anomaly_backtest(series, None, AlarmThreshold(ratio=2.5), seed=1)
    assert [one.recall for one in deaf.planted] == [0, 0, 1]


def test_the_same_seed_plants_the_same() -> None:
    series = [DailySpending("a", 0, tuple(ordinary()), dated=False)]
    first, again = (run_anomaly_backtest(series, None, AlarmThreshold(ratio=1.9), seed=3) for _ in range(2))
    assert first == again


def test_series_too_short_to_judge_say_nothing() -> None:
    found = run_anomaly_backtest([DailySpending("a", 0, (5.0,) * 10, dated=False)], None, AlarmThreshold(), seed=1)
    assert found.alarms_per_30 is None
    assert found.planted[0].recall is None
