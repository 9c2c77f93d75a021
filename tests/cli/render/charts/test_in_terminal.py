"""Charts in the terminal."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from broker.cli.render.charts.chart import Bars, Chart, Line
from broker.cli.render.charts.terminal import render_chart

START = datetime(2026, 10, 22, tzinfo=UTC)
DAYS = [START + timedelta(days=n) for n in range(31)]


def prices(*names: str) -> Chart:
    lines = [Line(name, DAYS, [2.0 + i + 0.1 * (n % 7) for n in range(31)], step=True) for i, name in enumerate(names)]
    return Chart("H100:8, the last 30 days", "time", "USD per GPU-hour", lines, note="Source: this store.")


@pytest.mark.parametrize("width", [40, 80, 140])
@pytest.mark.parametrize("colour", [False, True])
def test_it_says_what_it_shows_within_the_width(width: int, colour: bool) -> None:
    shown = Text.from_ansi(render_chart(prices("aws us-east-1", "gcp"), width=width, color=colour)).plain.split("\n")
    assert shown[0] == "H100:8, the last 30 days"
    assert shown[1] == "USD per GPU-hour"
    assert shown[-1] == "Source: this store."
    assert any("aws us-east-1" in line and ("gcp" in line or width < 60) for line in shown[-4:])
    assert "Nov " in "\n".join(shown)
    assert max(len(line) for line in shown) <= width
    assert len(shown) <= 26


def test_without_colours_each_line_has_its_sign() -> None:
    shown = render_chart(prices("aws", "gcp"), width=80)
    assert "\x1b" not in shown
    assert shown.count("•") > 20
    assert shown.count("×") > 20
    assert "\x1b[36m━" in render_chart(prices("aws", "gcp"), width=80, color=True)


def test_a_sign_means_one_name_in_all_charts_shown_together() -> None:
    names = ["on demand", "owned", "waiting", "on demand", "owned"]
    waiting = render_chart(prices("waiting"), width=80, names=names)
    assert ("+ waiting" in waiting, "•" in waiting) == (True, False)
    assert "× owned" in render_chart(prices("owned"), width=80, names=names)
    many = [*names, *map(str, range(9))]
    assert "• waiting" in render_chart(prices("waiting"), width=80, names=many), "there are not enough signs"


def test_the_greatest_is_above_the_least() -> None:
    lines = render_chart(Chart("", "GPUs", "", [Line("x", [0, 1], [10.0, 20.0])]), width=60).split("\n")
    columns = {line.index("•"): n for n, line in enumerate(lines[:-2]) if "•" in line}
    assert columns[min(columns)] > columns[max(columns)]


def test_bars_show_their_values_and_the_unknown() -> None:
    bars = Bars("cash", ["nlp", "a team with a long name", "new"], [1203.5, 601.75, None])
    lines = render_chart(Chart("Spend", "team", "USD", bars=[bars]), width=80).split("\n")
    nlp, long_name, new = (next(line for line in lines if line.startswith(label)) for label in bars.labels)
    assert (nlp.endswith(" 1,203.5"), long_name.endswith(" 601.75"), new.endswith("│–")) == (True, True, True)
    assert nlp.count("█") == pytest.approx(2 * long_name.count("█"), abs=1)
    assert "• cash" in lines[-1]
    assert max(len(line) for line in lines) <= 80


@pytest.mark.parametrize("width", [30, 80, 140])
def test_a_radar_reaches_the_tips_and_is_open_where_a_value_is_not_known(width: int) -> None:
    axes = ["cost", "performance", "energy", "maturity"]
    bars = [Bars("best", axes, [1.0, 1.0, 1.0, 1.0]), Bars("half", axes, [0.5, 0.5, None, 0.5])]
    lines = render_chart(Chart("Cards", "", "share", bars=bars, radar=True), width=width).splitlines()
    assert max(len(line) for line in lines) <= width
    top, bottom = (next(n for n, line in enumerate(lines) if name in line) for name in ("cost", "energy"))
    middle = lines[(top + bottom) // 2]
    assert re.fullmatch(r" *maturity •.*•.* perform.*", middle), "both tips"
    assert "•" in lines[top + 1]
    assert "•" in lines[bottom - 1]
    inner = middle.split("maturity ")[1].split(" perform")[0]
    quarter = (len(inner) - 1) // 4
    assert {inner[quarter], inner[-1 - quarter]} == {"×"}, "half of the way"
    below = "".join(lines[(top + bottom) // 2 + 1 : bottom])
    assert "×" not in below, "its third value is not known"


@pytest.mark.parametrize(
    "chart",
    [
        Chart("t", "x", "y"),
        Chart("t", "x", "y", [Line("a", [], [])]),
        Chart("t", "x", "y", [Line("a", [1, 2], [None, float("nan")])]),
        Chart("t", "x", "y", bars=[Bars("a", [], [])]),
        Chart("t", "x", "y", bars=[Bars("a", ["b"], [None])]),
        Chart("t", "x", "y", radar=True),
    ],
)
def test_nothing_to_draw_is_said(chart: Chart) -> None:
    assert "nothing to draw" in render_chart(chart, width=80)


def test_names_cannot_steer_the_terminal() -> None:
    chart = Chart("a\x1b[31mb", "x", "y", [Line("c\x07\x1b]0;d", [1, 2], [1, 2])], note="e\x9bf")
    assert not {"\x1b", "\x07", "\x9b"} & set(render_chart(chart, width=80))


FINITE = st.floats(-1e9, 1e9)


@given(st.lists(st.tuples(FINITE, st.one_of(st.none(), FINITE)), max_size=20), st.integers(1, 150))
def test_whatever_the_values_it_fits(points: list[tuple[float, float | None]], width: int) -> None:
    points = sorted(points, key=lambda point: point[0])
    line = Line("p5", [x for x, _ in points], [y for _, y in points], step=True)
    shown = render_chart(Chart("title", "x", "y", [line]), width=width)
    assert max(len(text) for text in shown.split("\n")) <= max(width, 30)
