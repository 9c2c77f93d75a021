"""The review of a month or quarter as a document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from broker.app.billing.report_documents import target_text, use_figures
from broker.cli.render import formats
from broker.cli.render.documents import Block, Bullets, Grid, Heading, Paragraph
from broker.core.values.money import Money
from broker.core.values.units import zone
from broker.ledger.finops.advice import AdviceAnswer, AdviceVerdict, MonthAdvice
from broker.ledger.finops.change import Change, Part

if TYPE_CHECKING:
    from broker.app.billing.report_documents import ReviewedMonth, ReviewReport

_PART_TEXTS = {
    Part.NEW: "New: ran in this period only",
    Part.ENDED: "Ended: ran in the one before only",
    Part.VOLUME: "Volume: more or fewer hours, at the average price before",
    Part.MIX: "Mix: the same hours in more expensive or cheaper places",
    Part.PRICE: "Price: the same places at other prices",
    Part.WASTE: "Waste: work lost after the last checkpoint",
    Part.OTHER: "Other charges, such as transfers and corrections",
}


def review_blocks(report: ReviewReport) -> list[Block]:
    """The document: what changed and why, what to do, and the effect of last month's advice."""
    return [
        Heading(f"Review of {report.month}", 1),
        Paragraph(_headline(report)),
        Grid(("", "before", report.month, "change"), _figure_rows(report)),
        Grid(("measured", "before", report.month), _use_rows(report)),
        Heading("Why it changed"),
        Grid(
            ("part", "amount"),
            [
                *((_PART_TEXTS[part], signed_amount(amount)) for part, amount in report.parts.items()),
                ("All", signed_amount(report.change)),
            ],
        ),
        Heading("Largest causes"),
        *_cause_blocks(report),
        Heading("Teams"),
        Grid(
            ("team", "before", report.month, "change"),
            [
                (
                    team_row.team,
                    formats.money(team_row.before),
                    formats.money(team_row.spent),
                    signed_amount(team_row.spent - team_row.before),
                )
                for team_row in report.teams
            ],
        ),
        *_budget_blocks(report),
        Heading("What to do"),
        _advice_block(report),
        Heading(f"Effect of last {report.kind}'s advice"),
        *_followed_blocks(report),
        Paragraph(
            "Compared are"
            f" {_days(report.before, report.timezone)} and {_days(report.after, report.timezone)} ({report.timezone})."
            " The cost of use includes its share of advance payments; amounts are USD,"
            " rounded for reading."
        ),
    ]


def signed_amount(amount: Money) -> str:
    """``+$3.00``, ``-$3.00``, ``$0.00``"""
    return f"{'+' if amount > Money.ZERO else ''}{formats.money(amount)}"


def _headline(report: ReviewReport) -> str:
    days = "" if report.over else f" so far, compared with as many days of the {report.kind} before"
    direction = "as much as" if not report.change else "less than" if report.change < Money.ZERO else "more than"
    if not report.before.spent:
        return f"Use cost {formats.money(report.after.spent)}{days}; in the {report.kind} before nothing was spent."
    share = abs(report.change.micros) / abs(report.before.spent.micros)
    change_text = f"{formats.money(abs(report.change))} ({formats.percent(share)}) " if report.change else ""
    return f"Use cost {formats.money(report.after.spent)}{days}: {change_text}{direction} before."


def _figure_rows(report: ReviewReport) -> Sequence[Sequence[str]]:
    old, new = report.before, report.after
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
        (name, formats.money(old_amount), formats.money(new_amount), signed_amount(new_amount - old_amount))
        for name, (old_amount, new_amount) in money.items()
    ]
    rows.append(("GPU-hours", *_hours(old.gpu_hours, new.gpu_hours)))
    old_amount, new_amount = (
        month.eligible_spot_hours / month.eligible_hours if month.eligible_hours else 0.0 for month in (old, new)
    )
    rows.append(("Training GPU-hours that could run on spot", *_hours(old.eligible_hours, new.eligible_hours)))
    goal = f" ({target_text(new_amount, report.targets.spot)})" if new.eligible_hours else ""
    change = f"{new_amount - old_amount:+.0%}"
    rows.append(("of them, on spot", f"{old_amount:.0%}", f"{new_amount:.0%}{goal}", change))
    change = "unknown" if old.price is None or new.price is None else signed_amount(new.price - old.price)
    rows.append(("Price of a GPU-hour", _rate(old.price), _rate(new.price), change))
    return rows


def _use_rows(report: ReviewReport) -> Sequence[Sequence[str]]:
    """What was measured in one of the months."""
    before, after = (dict(use_figures(month.use, None)) for month in (report.before, report.after))
    goals = use_figures(report.after.use, report.targets)
    rows = [(name, before[name], text) for name, text in goals if {before[name], after[name]} != {"unknown"}]
    return rows or [("no samples of accelerators", "", "")]


def _days(month: ReviewedMonth, timezone: str) -> str:
    start, end = (at.astimezone(zone(timezone)) for at in (month.since, month.until))
    return f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}"


def _rate(price: Money | None) -> str:
    return "unknown" if price is None else formats.rate(price)


def _hours(before: float, after: float) -> tuple[str, str, str]:
    return f"{before:,.1f}", f"{after:,.1f}", f"{after - before:+,.1f}"


def _cause_blocks(report: ReviewReport) -> Iterable[Block]:
    if not report.causes:
        yield Paragraph("Nothing changed.")
        return
    rows = [(cause.owner, _cause_text(cause), signed_amount(cause.amount)) for cause in report.causes]
    yield Grid(("whose", "why", "amount"), [*rows, ("all others", "", signed_amount(report.other_causes))], figures=2)


def _cause_text(cause: Change) -> str:
    return f"{cause.part.value}, {cause.place}" if cause.place else cause.part.value


def _budget_blocks(report: ReviewReport) -> Iterable[Block]:
    if report.budgets:
        yield Heading("Monthly budgets")
        yield Grid(
            ("budget", "limit", "spent", "left"),
            [
                (
                    budget.name,
                    formats.money(budget.limit),
                    formats.money(budget.spent),
                    formats.money(budget.limit - budget.spent),
                )
                for budget in report.budgets
            ],
        )


def _advice_block(report: ReviewReport) -> Block:
    sentences = [
        f"{item.about}: {item.because}; {formats.money(item.cost)}. To lower it: {item.do}. "
        f"[{item.id}{_answer_text(item.answer)}]"
        for item in sorted(report.advice, key=_is_dismissed)
    ]
    sentences += [
        f"{item.sentence} {item.because}"
        + ("" if item.saves_usd_per_month is None else f" Saves ${item.saves_usd_per_month:,.2f} a month.")
        for item in report.capacity
    ]
    return Bullets(sentences) if sentences else Paragraph("Nothing in the figures calls for action.")


def _is_dismissed(advice: MonthAdvice) -> bool:
    return advice.answer is not None and advice.answer.verdict is AdviceVerdict.DISMISSED


def _answer_text(answer: AdviceAnswer | None) -> str:
    if answer is None:
        return ""
    return f", {answer.verdict.value} by {answer.by}" + (f": {answer.reason}" if answer.reason else "")


def _followed_blocks(report: ReviewReport) -> Iterable[Block]:
    if not report.followed:
        yield Paragraph("There was none.")
        return
    rows = [
        (
            f"{advice.kind.value.replace('_', ' ')}, {advice.about}{_answer_text(advice.answer)}",
            formats.money(advice.then),
            formats.money(advice.now),
            signed_amount(advice.now - advice.then),
            "" if advice.job_then is None else formats.money(advice.job_then),
            "" if advice.job_now is None else formats.money(advice.job_now),
        )
        for advice in report.followed
    ]
    yield Grid(("about", "cost then", "cost now", "change", "a job then", "a job now"), rows)
