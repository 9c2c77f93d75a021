"""Charts as points, computed without a page."""

from datetime import UTC, datetime, timedelta

from broker.server.page.charts import HEIGHT, MAX_POINTS, WIDTH, figure_curves
from broker.server.page.render import figure

START = datetime(2026, 11, 1, tzinfo=UTC)


def points(line: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in line.split())]


def test_reports_become_a_curve_for_each_name() -> None:
    reports = [(START + timedelta(minutes=n), {"loss": 4.0 - n} | ({"tokens": 10.0} if n else {})) for n in range(3)]
    loss, tokens = figure_curves(reports)
    assert (loss.name, loss.least, loss.most) == ("loss", 2.0, 4.0)
    (x0, y0), (x1, y1), (x2, y2) = points(loss.line)
    assert (x0, x1, x2) == (0.0, WIDTH / 2, WIDTH)
    assert 0 < y0 < y1 < y2 < HEIGHT, "a smaller value lies lower, and none at an edge"
    assert tokens.name == "tokens"
    assert [y for _, y in points(tokens.line)] == [HEIGHT / 2] * 2, "what never changes lies in the middle"


def test_a_single_report_is_a_point() -> None:
    (one,) = figure_curves([(START, {"loss": 4.0})])
    assert points(one.line) == [(0.0, HEIGHT / 2)]


def test_a_long_run_shows_its_newest_reports() -> None:
    (one,) = figure_curves([(START + timedelta(minutes=n), {"loss": float(n)}) for n in range(1_000)])
    assert len(one.points) == MAX_POINTS
    assert (one.least, one.most) == (800.0, 999.0)


def test_without_reports_there_is_none() -> None:
    assert figure_curves([]) == []


def test_a_figure_is_never_rounded_to_a_power() -> None:
    shown = [figure(value) for value in (0.868541, 999_999.4, 999_999.7, 127_795_200.0, -1e6)]
    assert shown == ["0.868541", "999999", "1,000,000", "127,795,200", "-1,000,000"]
