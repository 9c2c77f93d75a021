"""The median stopping rule: worked by hand, and what holds of any figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.job.stop_when import (
    FallenBehind,
    MetricGoal,
    ReportedValue,
    StopWhen,
    fallen_behind,
    in_steps,
    running_average,
)

RULE = StopWhen(metric="loss", goal=MetricGoal.MINIMIZE, min_tasks=3)
FIGURES = st.floats(-1e6, 1e6).map(lambda figure: round(figure, 3))


def at(*figures: float, every: int = 10) -> list[ReportedValue]:
    """A report every ten steps, from step 10 on."""
    return [ReportedValue(every * number, figure) for number, figure in enumerate(figures, 1)]


CURVES = st.lists(FIGURES, min_size=1, max_size=8).map(lambda figures: at(*figures))

# By step 20 they average 2.5, 3.5 and 5; by step 30 they average 2, 3 and 4.
DONE = [running_average(at(*figures)) for figures in ((3, 2, 1), (4, 3, 2), (6, 4, 2))]


@pytest.mark.parametrize(
    ("figures", "behind"),
    [
        ((9, 3.6), FallenBehind(step=20, best=3.6, median=3.5, tasks=3)),
        ((9, 3.5), None),  # as good as the median
        ((3.4, 9), None),  # the best counts, not the last
        ((9, 9, 3.1), FallenBehind(step=30, best=3.1, median=3.0, tasks=3)),
        ((9, 9, 3), None),
        ((9, 9, 9, 9), FallenBehind(step=40, best=9, median=3.0, tasks=3)),  # past the last step of the others
        ((), None),
    ],
)
def test_by_hand(figures: tuple[float, ...], behind: FallenBehind | None) -> None:
    assert fallen_behind(RULE, at(*figures), DONE) == behind


def test_more_is_better_where_the_goal_says_so() -> None:
    rule = StopWhen(metric="accuracy", goal=MetricGoal.MAXIMIZE, min_tasks=3)
    assert fallen_behind(rule, at(1, 3.4), DONE) == FallenBehind(step=20, best=3.4, median=3.5, tasks=3)
    assert fallen_behind(rule, at(1, 3.6), DONE) is None


def test_of_an_even_number_the_median_lies_between_the_two_in_the_middle() -> None:
    done = [*DONE, running_average(at(9, 9))]  # by step 20: 2.5, 3.5, 5, 9
    assert fallen_behind(RULE, at(9, 4.3), done) == FallenBehind(step=20, best=4.3, median=4.25, tasks=4)
    assert fallen_behind(RULE, at(9, 4.2), done) is None


def test_nobody_is_judged_early_or_by_too_few() -> None:
    bad = at(99, 99)
    assert fallen_behind(RULE.model_copy(update={"from_step": 21}), bad, DONE) is None
    assert fallen_behind(RULE.model_copy(update={"from_step": 20}), bad, DONE) is not None
    assert fallen_behind(RULE, bad, DONE[:2]) is None
    late = running_average([ReportedValue(21, 1.0)])
    assert fallen_behind(RULE, bad, [*DONE[:2], late]) is None, "it had reported nothing by step 20"


def test_what_is_done_again_after_a_checkpoint_replaces_what_was_lost() -> None:
    told = [*at(5, 4, 1), ReportedValue(15, 4.5), ReportedValue(25, 3.8)]
    assert [(one.step, one.value) for one in in_steps(told)] == [(10, 5), (15, 4.5), (25, 3.8)]
    assert fallen_behind(RULE, told, DONE) == FallenBehind(step=25, best=3.8, median=3.5, tasks=3)


@given(CURVES, st.lists(CURVES, max_size=9), st.integers(1, 9), st.integers(0, 60))
def test_what_holds_of_any_figures(
    mine: list[ReportedValue], done: list[list[ReportedValue]], least: int, since: int
) -> None:
    rule = StopWhen(metric="loss", goal=MetricGoal.MINIMIZE, min_tasks=least, from_step=since)
    others = [running_average(one) for one in done]
    behind = fallen_behind(rule, mine, others)
    mirrored = fallen_behind(
        rule.model_copy(update={"goal": MetricGoal.MAXIMIZE}),
        [ReportedValue(one.step, -one.value) for one in mine],
        [running_average([ReportedValue(one.step, -one.value) for one in told]) for told in done],
    )
    assert (behind is None) == (mirrored is None), "the two goals are mirror images"
    if behind is None:
        return
    assert len(others) >= behind.tasks >= least
    assert behind.step == mine[-1].step >= since
    assert behind.best == min(one.value for one in mine) > behind.median
    better = sum((average.by(behind.step) or 0.0) < behind.best for average in others)
    assert 2 * better >= behind.tasks, "at least half of the others were better on average"
    assert fallen_behind(rule, [*mine, ReportedValue(behind.step + 1, -2e6)], others) is None, "the best of all goes on"


@pytest.mark.parametrize("figure", [1.7e308, -1.7e308])
def test_nobody_is_judged_by_figures_too_large_to_be_added(figure: float) -> None:
    huge = [running_average(at(figure, figure, figure)) for _ in range(4)]
    assert fallen_behind(RULE, at(1.0, 1.0), huge) is None
