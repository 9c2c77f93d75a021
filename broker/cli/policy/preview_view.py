"""The effect of a change of policies, as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from broker.cli.billing.budget_view import scope_words
from broker.cli.policy import trial_view
from broker.cli.render import formats
from broker.cli.render.tables import Column, fitted
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
    "gives_up_launch": ("launch is cancelled", "yellow"),
    "refused": ("refused", "red"),
    "cannot_be_approved": ("cannot be approved", "red"),
    "asks": ("asks for approval", "yellow"),
    "waits": ("waits", "yellow"),
    "granted": ("needs no approval", "green"),
    "starts": ("starts", "green"),
    "goes_on": ("resumes", "green"),
    "warns": ("continues with a warning", "yellow"),
    "let_go": ("is not stopped", "green"),
}


def screen(console: Console, seen: PolicyPreview) -> list[RenderableType]:
    """The effect on jobs and budgets now, and on past decisions."""
    parts: list[RenderableType] = [Text("If these files are applied now:", style="bold")]
    parts += _jobs(console, seen)
    parts += [Text(line) for line in _budgets(seen)]
    if seen.past is not None:
        parts += _past(console, seen.past)
    return parts


def _jobs(console: Console, seen: PolicyPreview) -> Iterator[RenderableType]:
    open_jobs = formats.plural(seen.looked_at, "open job")
    if not seen.jobs:
        yield Text(f"Jobs: no change for {open_jobs}.")
    else:
        yield Text(f"Jobs: {len(seen.jobs):,} of {open_jobs} will change at the next reconciliation:")
        columns = (Column("job"), Column("user", 1), Column("effect"), Column("rule", folds=True))
        cells: list[list[str | Text]] = [
            [one.job_id, one.user, Text(*_WORDS[one.effect.value]), _why(one)] for one in seen.jobs
        ]
        yield from fitted(console, columns, cells)
    if seen.left_out:
        yield Text(f"{formats.plural(seen.left_out, 'more job')} at the end of the queue not judged.", style="dim")


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
        assert old is not None, "one of before and after is set"
        return f"{change.name} is removed: {_granted(old)}; {_stands(old)} ({old.source})"
    if old is None:
        return f"{change.name} is added: {_granted(new)}; {_stands(new)} ({new.source})"
    return f"{change.name}: {_granted(old)} → {_granted(new)}; {_stands(new)} ({new.source})"


def _granted(line: BudgetLine) -> str:
    period = "period" if is_fixed(line.spec.period) else line.spec.period
    return f"{formats.money(line.limit)} per {period}, {scope_words(line.spec)}, {line.action}"


def _stands(line: BudgetLine) -> str:
    left = (
        f"{formats.money(line.left)} left" if line.left.micros >= 0 else f"{formats.money(-line.left)} over the limit"
    )
    return f"{formats.money(line.use.spent)} spent, {formats.money(line.use.held)} held, {left}"


def _past(console: Console, past: Past) -> Iterator[RenderableType]:
    began = formats.moment(past.since)
    if not past.found.outcomes:
        yield Text(f"No recorded decision since {began} can be judged again.")
        return
    yield Text(f"Decisions since {began}, judged by these files:")
    yield from trial_view.backtested(console, past.found)
