"""Buy or rent as text, and as a chart of both costs over the hours in use per day."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rich.text import Text

from broker.cli.advise import view
from broker.cli.render.charts.chart import Chart, Line
from broker.cli.render.tables import Column, fitted
from broker.economics.buy_or_rent import buy_or_rent, monthly_usd
from broker.economics.rules import RuleCheck

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.economics.buy_or_rent import BuyOrRentInputs, BuyOrRentTotals


def screen(
    console: Console, case: BuyOrRentInputs, found: BuyOrRentTotals, opinions: list[RuleCheck], notes: list[str]
) -> list[RenderableType]:
    """The verdict, both costs, their break-even, and the effect of falling rents."""
    running, rent = monthly_usd(case)
    parts: list[RenderableType] = [
        Text.assemble((found.verdict.value.capitalize(), "bold green"), f": {found.why}."),
        view.figures(
            [
                ("owning", f"{view.estimate(found.own_npv_usd)} present value, {view.estimate(found.own_total_usd)} "
                 f"in total for {found.hours:,.0f} h"),
                ("renting", f"{view.estimate(found.rent_npv_usd)} present value, "
                 f"{view.estimate(found.rent_total_usd)} in total"),
                ("average month", f"{view.estimate(running)} running cost when owned, {view.estimate(rent)} rent"),
                ("break-even use", _break_even(case, found)),
                ("break-even rent", f"{view.estimate(found.break_even_rent_usd_per_hour)}/h at these hours"),
                ("payback", "not within the period" if found.payback_months is None
                 else f"{found.payback_months:.1f} months"),
                *([("rent until delivery", f"{view.estimate(found.waiting_usd)}, included in owning")]
                  if found.waiting_usd else []),
            ]
        ),
        view.heading("If rents fall"),
    ]  # fmt: skip
    columns = (
        Column("  per year", align="right"), Column("owning", align="right"), Column("renting", align="right"),
        Column("break-even use", 2, align="right"), Column("verdict"),
    )  # fmt: skip
    rows = [
        (
            f"{one.price_decline:.0%}", view.estimate(one.own_npv_usd), view.estimate(one.rent_npv_usd),
            "" if case.take_or_pay else _share(one.break_even_utilisation),
            one.verdict.value,
        )
        for one in found.sensitivity
    ]  # fmt: skip
    parts += fitted(console, columns, rows)
    said = [RuleCheck(f"{one.rule}: {one.says}", f"the arithmetic says {found.verdict}", one.holds) for one in opinions]
    parts += view.rules((*found.rules_of_thumb, *said))
    parts += view.assumptions((*notes, *found.assumptions))
    return parts


def _share(break_even: float | None) -> str:
    return "never" if break_even is None else view.share(break_even)


def _break_even(case: BuyOrRentInputs, found: BuyOrRentTotals) -> str:
    if case.take_or_pay:
        return "none: the commitment costs the same at any use"
    if found.break_even_utilisation is None or found.break_even_hours_per_day is None:
        return "never: an hour costs more to run owned than to rent"
    if found.break_even_utilisation > 1:
        return f"never at this rent: it needs {found.break_even_hours_per_day:.1f} hours per day"
    return f"{found.break_even_utilisation:.1%}, {found.break_even_hours_per_day:.1f} h/day"


def costs_by_hours(case: BuyOrRentInputs, found: BuyOrRentTotals) -> Chart:
    """Both present values over the hours in use per day."""
    hours = [1.0, *range(2, 25)]
    answers = [buy_or_rent(replace(case, utilisation=hour / 24)) for hour in hours]
    priced = f"purchase ${case.purchase_usd:,.0f}, rent ${case.rent_usd_per_hour:g}/h"
    return Chart(
        title=f"Owning and renting for {case.years:g} years",
        x_label="hours in use per day",
        y_label="USD, present value",
        lines=(
            Line("owning", hours, [one.own_npv_usd for one in answers]),
            Line("renting", hours, [one.rent_npv_usd for one in answers]),
        ),
        note=f"{priced}; break-even {_break_even(case, found)}",
    )
