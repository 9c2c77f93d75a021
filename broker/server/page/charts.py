"""Charts as SVG points, computed on the server without scripts. A table next to each chart has the same figures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from broker.app.billing.budget_documents import BudgetDetails
from broker.app.billing.month_so_far import MonthSoFar
from broker.app.jobs.documents import AttemptDetails, JobDetails
from broker.app.market.price_history import PriceHistory
from broker.core.values.money import Money

WIDTH, HEIGHT = 600.0, 120.0
MAX_POINTS = 200  # per curve, so that a page stays small


@dataclass(frozen=True, slots=True)
class SpendCurve:
    """Spending over a period, in a picture of `WIDTH` by `HEIGHT`. ``spent``: the points of the line; ``ahead``: the
    line from now to the forecast at the end; ``limit``: the height of the limit; ``most``: the amount at the upper
    edge."""

    spent: str
    ahead: str
    limit: float
    most: Money


def spend_curve(budget: BudgetDetails) -> SpendCurve:
    """A budget's spending by day with its limit and forecast."""
    start, end, spent = budget.period_start, budget.period_end, budget.days or ()
    amounts = [budget.limit, budget.forecast.expected, *(day.total for day in spent)]
    top = max(*amounts, Money(1))

    def at(time: datetime, amount: Money) -> str:
        return f"{WIDTH * ((time - start) / (end - start)):.1f},{_height(amount, top):.1f}"

    points = [at(day.until, day.total) for day in spent]
    return SpendCurve(
        spent=" ".join(points),
        ahead=f"{points[-1]} {at(end, budget.forecast.expected)}",
        limit=round(_height(budget.limit, top), 1),
        most=top,
    )


def _height(amount: Money, top: Money) -> float:
    return HEIGHT * (1 - amount.micros / top.micros)


@dataclass(frozen=True, slots=True)
class PriceCurve:
    """Prices over a period, in a picture of `WIDTH` by `HEIGHT`: one step line for each time with a price. ``most``:
    the price at the upper edge, None without any."""

    lines: tuple[str, ...]
    most: Money | None


def price_curve(history: PriceHistory) -> PriceCurve:
    start, length = history.start, history.end - history.start
    highest = max((stretch.price for stretch in history.stretches if stretch.price is not None), default=None)
    top = None if highest is None else highest.share(11, 10)  # a line at the upper edge would be invisible
    lines: list[list[str]] = []
    previous_end: datetime | None = None
    for stretch in history.stretches:
        if stretch.price is None or top is None:
            continue
        height = _height(stretch.price, max(top, Money(1)))
        if stretch.start != previous_end:
            lines.append([])
        lines[-1] += [f"{WIDTH * ((at - start) / length):.1f},{height:.1f}" for at in (stretch.start, stretch.end)]
        previous_end = stretch.end
    return PriceCurve(tuple(" ".join(points) for points in lines), top)


@dataclass(frozen=True, slots=True)
class FigureCurve:
    """The values that a program reported under one name, in a picture of `WIDTH` by `HEIGHT`: the least one at the
    lower edge, the greatest one at the upper edge."""

    name: str
    points: Sequence[tuple[datetime, float]]
    line: str
    least: float
    most: float


def figure_curves(reports: Iterable[tuple[datetime, Mapping[str, float]]]) -> list[FigureCurve]:
    """The curves of all names, in alphabetical order, each with its newest `MAX_POINTS` points. ``reports``: times
    (UTC) and values by name, oldest first."""
    series: dict[str, list[tuple[datetime, float]]] = {}
    for at, figures in reports:
        for name, value in figures.items():
            series.setdefault(name, []).append((at, value))
    return [figure_curve(name, points) for name, points in sorted(series.items())]


class Scale(NamedTuple):
    """The values at the lower and the upper edge of a picture."""

    least: float
    most: float


def figure_curve(name: str, reported: Sequence[tuple[datetime, float]], scale: Scale | None = None) -> FigureCurve:
    """The newest `MAX_POINTS`, oldest first, of at least one. ``scale``: None: from the least value to the
    greatest."""
    points = reported[-MAX_POINTS:]
    values = [value for _, value in points]
    least, greatest = scale or Scale(min(values), max(values))
    start, length = points[0][0], (points[-1][0] - points[0][0]).total_seconds()

    def place(at: datetime, value: float) -> str:
        across = WIDTH * ((at - start).total_seconds() / length) if length else 0.0
        up = (value - least) / (greatest - least) if greatest > least else 0.5
        return f"{across:.1f},{HEIGHT * (0.95 - 0.9 * up):.1f}"

    return FigureCurve(name, points, " ".join(place(at, value) for at, value in points), least, greatest)


class Span(NamedTuple):
    """The times (UTC) at the left and the right edge of a picture."""

    since: datetime
    until: datetime

    def at(self, time: datetime) -> float:
        """In percent of the width."""
        return round(100 * ((time - self.since) / (self.until - self.since)), 2)


def job_span(attempts: Sequence[AttemptDetails], job: JobDetails, now: datetime) -> Span:
    """From the first of these attempts to the end of the last, the expected end of the job or its deadline."""
    ends = [attempt.ended_at or attempt.gone_at or now for attempt in attempts]
    since = attempts[0].requested_at
    later = (None if job.state.final else job.expected_finish, job.deadline)
    return Span(since, max(*ends, *filter(None, later), since + timedelta(minutes=1)))


def expected_a_day(month: MonthSoFar) -> Money | None:
    """What is expected of a day from today on (USD)."""
    if month.expected is None:
        return None
    before = month.spent - month.days[-1].spent
    return (month.expected - before).share(1, (month.last - month.days[-1].day).days + 1)


def percent_of(amount: Money, total: Money) -> float:
    """``amount`` in percent of ``total`` (above $0), for a bar: from 0 to 100."""
    return round(min(max(100 * amount.micros / total.micros, 0), 100), 2) if total.micros > 0 else 100.0
