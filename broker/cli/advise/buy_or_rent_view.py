"""Buy or rent as text, and as a chart of both costs over the hours in use per day."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.cost_advice import BuyOrRentAdvice, BuyOrRentSensitivity
from broker.cli.advise import view
from broker.cli.render.charts.chart import Chart, Line
from broker.cli.render.tables import ValueColumn, listed
from broker.economics.claims import RuleCheck

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def screen(console: Console, found: BuyOrRentAdvice) -> Iterator[RenderableType]:
    """The verdict, both costs, their break-even, and the effect of falling rents."""
    own = f"{view.estimate(found.own_npv_usd)} present value, {view.estimate(found.own_total_usd)}"
    rent = f"{view.estimate(found.rent_npv_usd)} present value, {view.estimate(found.rent_total_usd)}"
    months, payback = found.payback_months, "not within the period"
    running, paid = view.estimate(found.running_usd_per_month), view.estimate(found.rent_usd_per_month)
    rows = [
        ("owning", f"{own} in total for {found.hours:,.0f} h"),
        ("renting", f"{rent} in total"),
        ("average month", f"{running} running cost when owned, {paid} rent"),
        ("break-even use", _break_even(found)),
        ("break-even rent", f"{view.estimate(found.break_even_rent_usd_per_hour)}/h at these hours"),
        ("payback", payback if months is None else f"{months:.1f} months"),
    ]
    if found.waiting_usd:
        rows.append(("rent until delivery", f"{view.estimate(found.waiting_usd)}, included in owning"))
    yield Text.assemble((found.verdict.value.capitalize(), "bold green"), f": {found.why}.")
    yield view.figures(rows)
    yield view.heading("If rents fall")

    def use(one: BuyOrRentSensitivity) -> str:
        share = one.break_even_utilisation
        return "" if found.inputs.take_or_pay else "never" if share is None else view.share(share)

    columns: tuple[ValueColumn[BuyOrRentSensitivity], ...] = (
        ValueColumn("  per year", lambda one: f"{one.price_decline:.0%}", align="right"),
        ValueColumn("owning", lambda one: view.estimate(one.own_npv_usd), align="right"),
        ValueColumn("renting", lambda one: view.estimate(one.rent_npv_usd), align="right"),
        ValueColumn("break-even use", use, 2, "right"),
        ValueColumn("verdict", lambda one: one.verdict.value),
    )
    yield from listed(console, columns, found.sensitivity)
    said = f"the arithmetic says {found.verdict}"
    opinions = (RuleCheck(f"{one.rule}: {one.says}", said, one.holds) for one in found.opinions)
    yield from view.rules((*found.rules_of_thumb, *opinions))
    yield from view.assumptions(found.assumptions)


def _break_even(found: BuyOrRentAdvice) -> str:
    share, hours = found.break_even_utilisation, found.break_even_hours_per_day
    if found.inputs.take_or_pay:
        return "none: the commitment costs the same at any use"
    if share is None or hours is None:
        return "never: an hour costs more to run owned than to rent"
    return f"never at this rent: it needs {hours:.1f} hours per day" if share > 1 else f"{share:.1%}, {hours:.1f} h/day"


def costs_by_hours(found: BuyOrRentAdvice) -> Chart:
    """Both present values over the hours in use per day."""
    case, points = found.inputs, found.by_hours
    hours = [one.hours_per_day for one in points]
    priced = f"purchase ${case.purchase_usd:,.0f}, rent ${case.rent_usd_per_hour:g}/h"
    return Chart(
        title=f"Owning and renting for {case.years:g} years",
        x_label="hours in use per day",
        y_label="USD, present value",
        lines=(
            Line("owning", hours, [one.own_npv_usd for one in points]),
            Line("renting", hours, [one.rent_npv_usd for one in points]),
        ),
        note=f"{priced}; break-even {_break_even(found)}",
    )
