"""The effect of a change of policies, as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.policy_preview import AffectedJob, BudgetChangeResult, BudgetTermsResult, PolicyPreviewResult
from broker.cli.billing.budget_view import scope_words
from broker.cli.policy import trial_view
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed
from broker.ledger.budgets import is_fixed

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


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


def screen(console: Console, seen: PolicyPreviewResult) -> Iterator[RenderableType]:
    """The effect on jobs and budgets now, and on past decisions."""
    yield Text("If these files are applied now:", style="bold")
    yield from _jobs(console, seen)
    yield Text("Budgets:" if seen.budgets else "Budgets: unchanged.")
    yield from (Text(f"  {_change(change)}") for change in seen.budgets)
    began, decisions = formats.moment(seen.past.since), seen.past.decisions
    if decisions.decisions:
        yield Text(f"Decisions since {began}, judged by these files:")
        yield from trial_view.judged_again(console, decisions)
    else:
        yield Text(f"No recorded decision since {began} can be judged again.")


def _jobs(console: Console, seen: PolicyPreviewResult) -> Iterator[RenderableType]:
    open_jobs = formats.plural(seen.looked_at, "open job")
    if not seen.jobs:
        yield Text(f"Jobs: no change for {open_jobs}.")
    else:
        yield Text(f"Jobs: {len(seen.jobs):,} of {open_jobs} will change at the next reconciliation:")
        columns: tuple[ValueColumn[AffectedJob], ...] = (
            ValueColumn("job", lambda one: one.job_id),
            ValueColumn("user", lambda one: one.user, 1),
            ValueColumn("effect", lambda one: Text(*_WORDS[one.effect.value])),
            ValueColumn("rule", _why, folds=True),
        )
        yield from listed(console, columns, seen.jobs)
    if seen.left_out:
        yield Text(f"{formats.plural(seen.left_out, 'more job')} at the end of the queue not judged.", style="dim")


def _why(one: AffectedJob) -> str:
    said = [f"{rule.name or rule.kind}: {rule.message} ({rule.source})" for rule in one.rules]
    if one.at is not None:
        said.append(f"at {formats.moment(one.at)}")
    if one.approvers:
        said.append(f"asks {' or '.join(one.approvers)}")
    if one.pool:
        said.append(f"on {one.pool}")
    return "; ".join(said)


def _change(change: BudgetChangeResult) -> str:
    old, new = change.before, change.after
    if new is None:
        assert old is not None, "one of before and after is set"
        return f"{change.name} is removed: {_granted(old)}; {_stands(old)} ({old.source})"
    if old is None:
        return f"{change.name} is added: {_granted(new)}; {_stands(new)} ({new.source})"
    return f"{change.name}: {_granted(old)} → {_granted(new)}; {_stands(new)} ({new.source})"


def _granted(line: BudgetTermsResult) -> str:
    period = "period" if is_fixed(line.period) else line.period
    return f"{formats.money(line.amount)} per {period}, {scope_words(line.scope)}, {line.action}"


def _stands(line: BudgetTermsResult) -> str:
    left = (
        f"{formats.money(line.left)} left" if line.left.micros >= 0 else f"{formats.money(-line.left)} over the limit"
    )
    return f"{formats.money(line.spent)} spent, {formats.money(line.held)} held, {left}"
