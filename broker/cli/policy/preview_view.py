"""What a change of policies would do, as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from broker.cli.billing.budget_view import scope_words
from broker.cli.policy import trial_view
from broker.cli.render import formats
from broker.cli.render.tables import Column, fitting
from broker.ledger.budgets import is_fixed

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.billing.budgets import BudgetLine
    from broker.app.policy.preview import BudgetChange, Past, PolicyPreview
    from broker.app.policy.rehearsal import JobOutcome

_WORDS = {
    "stops": ("stops", "bold red"),
    "stops_later": ("stops later", "bold red"),
    "moves": ("moves", "yellow"),
    "gives_up_launch": ("launch given up", "yellow"),
    "refused": ("refused", "red"),
    "cannot_be_approved": ("cannot be approved", "red"),
    "asks": ("asks", "yellow"),
    "waits": ("waits", "yellow"),
    "granted": ("needs no approval", "green"),
    "starts": ("starts", "green"),
    "goes_on": ("goes on", "green"),
    "warns": ("runs on, warned", "yellow"),
    "let_go": ("is not stopped", "green"),
}


def screen(console: Console, seen: PolicyPreview) -> list[RenderableType]:
    """What happens now to jobs and budgets, and what would have been decided before."""
    parts: list[RenderableType] = [Text("If these files are applied now:", style="bold")]
    parts += _jobs(console, seen)
    parts += [Text(line) for line in _budgets(seen)]
    if seen.past is not None:
        parts += _past(console, seen.past)
    return parts


def _jobs(console: Console, seen: PolicyPreview) -> Iterator[RenderableType]:
    open_jobs = formats.plural(seen.looked_at, "open job")
    if not seen.jobs:
        yield Text(f"Jobs: nothing happens to any of {open_jobs}.")
    else:
        count = formats.plural(len(seen.jobs), "job")
        yield Text(f"Jobs: {count} of {open_jobs}, at the next look:")
        columns = (Column("job"), Column("user", 1), Column("what happens"), Column("by which rule", folds=True))
        cells: list[list[str | Text]] = [
            [one.job_id, one.user, Text(*_WORDS[one.effect.value]), _why(one)] for one in seen.jobs
        ]
        yield fitting(console, columns, cells)[0]
    if seen.left_out:
        yield Text(f"{formats.plural(seen.left_out, 'more job')} at the end of the queue: not looked at.", style="dim")


def _why(one: JobOutcome) -> str:
    said = [f"{rule.name or rule.rule}: {rule.message} ({rule.source})" for rule in one.rules]
    if one.at is not None:
        said.append(f"at {formats.moment(one.at)}")
    if one.asks:
        said.append(f"asks {' or '.join(one.asks)}")
    if one.where:
        said.append(f"on {one.where}")
    return "; ".join(said)


def _budgets(seen: PolicyPreview) -> Iterator[str]:
    if not seen.budgets:
        yield "Budgets: unchanged."
        return
    yield "Budgets:"
    for change in seen.budgets:
        yield f"  {_change(change)}"


def _change(change: BudgetChange) -> str:
    old, new = change.before, change.after
    if new is None:
        assert old is not None, "a change is of a budget before or after"
        return f"{change.name} is gone: {_granted(old)}; {_stands(old)} ({old.source})"
    if old is None:
        return f"{change.name} is new: {_granted(new)}; {_stands(new)} ({new.source})"
    return f"{change.name}: {_granted(old)} → {_granted(new)}; {_stands(new)} ({new.source})"


def _granted(line: BudgetLine) -> str:
    period = "period" if is_fixed(line.spec.period) else line.spec.period
    return f"{formats.money(line.limit)} per {period}, {scope_words(line.spec)}, {line.action}"


def _stands(line: BudgetLine) -> str:
    left = f"{formats.money(line.left)} is left" if line.left.micros >= 0 else f"{formats.money(-line.left)} too much"
    return f"{formats.money(line.use.spent)} spent, {formats.money(line.use.held)} held, {left}"


def _past(console: Console, past: Past) -> Iterator[RenderableType]:
    began = formats.moment(past.since)
    if not past.found.outcomes:
        yield Text(f"Since {began}: no decision is on record that could be judged again.")
        return
    yield Text(f"What was decided since {began}, judged by these files:")
    yield from trial_view.backtested(console, past.found)
