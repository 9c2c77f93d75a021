"""The monthly review as a document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.app.results.reports import ReviewedMonth, ReviewReport
from broker.cli.render import formats
from broker.cli.render.written import Block, Bullets, Grid, Heading, Paragraph
from broker.core.values.money import Money
from broker.core.values.units import zone
from broker.finops.change import Change, Part

_PARTS = {
    Part.NEW: "New: ran in this month only",
    Part.ENDED: "Ended: ran in the month before only",
    Part.VOLUME: "Volume: more or fewer hours, at the average price of the month before",
    Part.MIX: "Mix: the same hours in more expensive or cheaper places",
    Part.PRICE: "Price: the same places at other prices",
    Part.WASTE: "Waste: work lost after the last checkpoint",
    Part.OTHER: "Other charges, such as transfers and corrections",
}


def blocks(found: ReviewReport) -> list[Block]:
    """The document: what changed and why, what to do, and the effect of last month's advice."""
    return [
        Heading(f"Review of {found.month}", 1),
        Paragraph(_headline(found)),
        Grid(("", "before", found.month, "change"), _figures(found)),
        Heading("Why it changed"),
        Grid(
            ("part", "amount"),
            [*((_PARTS[part], signed(amount)) for part, amount in found.parts.items()), ("All", signed(found.change))],
        ),
        Heading("Largest causes"),
        *_causes(found),
        Heading("Teams"),
        Grid(
            ("team", "before", found.month, "change"),
            [
                (one.team, formats.money(one.before), formats.money(one.spent), signed(one.spent - one.before))
                for one in found.teams
            ],
        ),
        *_budgets(found),
        Heading("What to do"),
        _advice(found),
        Heading("Effect of last month's advice"),
        *_followed(found),
        Paragraph(
            "Compared are"
            f" {_days(found.before, found.timezone)} and {_days(found.after, found.timezone)} ({found.timezone})."
            " The cost of use includes its share of advance payments; amounts are USD,"
            " rounded for reading."
        ),
    ]


def signed(amount: Money) -> str:
    """``+$3.00``, ``-$3.00``, ``$0.00``"""
    return f"{'+' if amount > Money.ZERO else ''}{formats.money(amount)}"


def _headline(found: ReviewReport) -> str:
    days = "" if found.over else " so far, compared with as many days of the month before"
    direction = "as much as" if not found.change else "less than" if found.change < Money.ZERO else "more than"
    if not found.before.spent:
        return f"Use cost {formats.money(found.after.spent)}{days}; in the month before nothing was spent."
    share = abs(found.change.micros) / abs(found.before.spent.micros)
    by = f"{formats.money(abs(found.change))} ({formats.percent(share)}) " if found.change else ""
    return f"Use cost {formats.money(found.after.spent)}{days}: {by}{direction} before."


def _figures(found: ReviewReport) -> Sequence[Sequence[str]]:
    old, new = found.before, found.after
    money = {
        "Cost of use": (old.spent, new.spent),
        "of that, on owned and reserved machines": (old.on_own, new.on_own),
        "of that, rented": (old.rented, new.rented),
        "To be paid in cash": (old.cash, new.cash),
        "of that, bought in advance": (old.bought_in_advance, new.bought_in_advance),
        "Use of what was paid before": (old.amortised, new.amortised),
        "Lost work": (old.wasted, new.wasted),
        "Without a team": (old.untagged, new.untagged),
    }
    rows = [
        (name, formats.money(before), formats.money(after), signed(after - before))
        for name, (before, after) in money.items()
    ]
    rows.append(("GPU-hours", *_hours(old.gpu_hours, new.gpu_hours)))
    before, after = (one.eligible_spot_hours / one.eligible_hours if one.eligible_hours else 0.0 for one in (old, new))
    rows.append(("GPU-hours that could run on spot", *_hours(old.eligible_hours, new.eligible_hours)))
    rows.append(("of them, on spot", f"{before:.0%}", f"{after:.0%}", f"{after - before:+.0%}"))
    change = "unknown" if old.price is None or new.price is None else signed(new.price - old.price)
    rows.append(("Price of a GPU-hour", _rate(old.price), _rate(new.price), change))
    return rows


def _days(month: ReviewedMonth, timezone: str) -> str:
    since, until = (at.astimezone(zone(timezone)) for at in (month.since, month.until))
    return f"{since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M}"


def _rate(price: Money | None) -> str:
    return "unknown" if price is None else formats.rate(price)


def _hours(before: float, after: float) -> tuple[str, str, str]:
    return f"{before:,.1f}", f"{after:,.1f}", f"{after - before:+,.1f}"


def _causes(found: ReviewReport) -> Iterable[Block]:
    if not found.causes:
        yield Paragraph("Nothing changed.")
        return
    rows = [(one.owner, _why(one), signed(one.amount)) for one in found.causes]
    yield Grid(("whose", "why", "amount"), [*rows, ("all others", "", signed(found.other_causes))], figures=2)


def _why(cause: Change) -> str:
    return f"{cause.part.value}, {cause.place}" if cause.place else cause.part.value


def _budgets(found: ReviewReport) -> Iterable[Block]:
    if found.budgets:
        yield Heading("Monthly budgets")
        yield Grid(
            ("budget", "limit", "spent", "left"),
            [
                (one.name, formats.money(one.limit), formats.money(one.spent), formats.money(one.limit - one.spent))
                for one in found.budgets
            ],
        )


def _advice(found: ReviewReport) -> Block:
    said = [f"{one.about}: {one.because}. To lower it: {one.do}." for one in found.advice]
    said += [
        f"{one.sentence} {one.because}"
        + ("" if one.saves_usd_per_month is None else f" Saves ${one.saves_usd_per_month:,.2f} a month.")
        for one in found.capacity
    ]
    return Bullets(said) if said else Paragraph("Nothing in the figures calls for action.")


def _followed(found: ReviewReport) -> Iterable[Block]:
    if not found.followed:
        yield Paragraph("There was none.")
        return
    rows = [
        (f"{one.kind.value}, {one.about}", formats.money(one.then), formats.money(one.now), signed(one.now - one.then))
        for one in found.followed
    ]
    yield Grid(("about", "cost then", "cost now", "change"), rows)
