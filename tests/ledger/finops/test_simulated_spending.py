"""How well the end of a month is forecast, and how many forgotten jobs are found, on simulated spending: the figures of
`broker/ledger/finops/README.md`, loosely. `pytest -s -m system` prints them.
"""

from statistics import fmean

import pytest

from broker.ledger.finops.anomalies import incidents, scores
from broker.ledger.finops.expectation import expect
from tests.ledger.finops.simulated_spending import EPISODE, simulated_spending

pytestmark = pytest.mark.system
PERIOD = 30
SEED = 11


@pytest.mark.parametrize("day", [10, 15, 20])
def test_forecasts_miss_by_less_than_the_run_rate_and_four_of_five_lie_in_the_interval(day: int) -> None:
    errors, run_rate_errors, covered = [], [], []
    for series in simulated_spending(SEED):
        for start in range(0, len(series.plain) - PERIOD + 1, 3):
            total, spent = (sum(series.plain[start : start + length]) for length in (PERIOD, day))
            ahead = expect(tuple(series.plain[: start + day]), PERIOD - day)
            if total > 0 and ahead is not None:
                errors.append(abs(spent + ahead.amount - total) / total)
                run_rate_errors.append(abs(spent * PERIOD / day - total) / total)
                covered.append(ahead.low <= total - spent <= ahead.high)
    print(
        f"day {day}: {fmean(errors):.1%} (run rate {fmean(run_rate_errors):.1%}), {fmean(covered):.0%} in the interval"
    )
    assert fmean(errors) < fmean(run_rate_errors)
    assert 0.72 <= fmean(covered) <= 0.88


def test_three_of_four_doubled_days_are_found_with_less_than_an_alarm_a_month() -> None:
    found, false_alarms, judged_days = list[int | None](), 0, 0
    for series in simulated_spending(SEED):
        scored = scores(tuple(series.raised))
        spans = [range(first, first + EPISODE) for first in series.episodes]
        marked = {day for span in spans for day in span}
        for span in spans:
            delays = [delay for delay, day in enumerate(span) if (score := scored[day]) and score.is_anomalous]
            found.append(delays[0] if delays else None)
        alarms = incidents(scored)
        false_alarms += sum(marked.isdisjoint(range(alarm.first, alarm.last + 1)) for alarm in alarms)
        judged_days += sum(score is not None and day not in marked for day, score in enumerate(scored))
    after = [delay for delay in found if delay is not None]
    often = false_alarms * 30 / judged_days
    print(f"{len(after) / len(found):.0%} found after {fmean(after):.1f} days, {often:.2f} false alarms in 30 days")
    assert len(after) >= 0.7 * len(found)
    assert fmean(after) <= 1
    assert often <= 1
