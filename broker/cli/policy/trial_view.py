"""Policies on trial as text: the effect of a change, recorded decisions, and test cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.policy.replay import DecisionTotals
from broker.app.results.errors import VerdictResult
from broker.app.results.policies import SeenFacts
from broker.app.results.trials import (
    AffectedJob,
    BudgetChangeResult,
    BudgetTermsResult,
    DecisionDifference,
    JudgedDecisions,
    PolicyPreviewResult,
    PolicyTestResult,
    RecordedDecision,
    RecordedDecisions,
)
from broker.cli.billing.budget_view import scope_words
from broker.cli.jobs.job_view import by_kind
from broker.cli.policy import trial_view
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed
from broker.core.policy.policy import Answer
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


_MOST_NAMED = 8
WORDS = {Answer.ALLOW: ("allows", "green"), Answer.ASK: ("asks", "yellow"), Answer.DENY: ("denies", "red")}
_VERDICTS: tuple[ValueColumn[VerdictResult], ...] = (
    ValueColumn("verdict", lambda one: Text("warns", "yellow") if one.warns else Text(*WORDS[one.answer])),
    ValueColumn("rule", lambda one: one.name or one.rule),
    ValueColumn("message", lambda one: one.message, folds=True),
    ValueColumn("source", lambda one: one.source, 1),
)


def verdict_table(console: Console, verdicts: Sequence[VerdictResult]) -> list[RenderableType]:
    """One row per rule."""
    return listed(console, _VERDICTS, verdicts)


def facts(seen: SeenFacts) -> list[Text]:
    """The facts that the rules see, in a few lines."""
    whose = {"user": seen.user, "team": seen.team, "project": seen.project, "environment": seen.environment}
    who = [f"{word} {said}" for word, said in whose.items() if said]
    price = f"{formats.rate(seen.rate_per_hour)}/h" if seen.rate_per_hour else "free of charge"
    kind = formats.purchase_type(seen.capacity_type)
    lines = [
        f"Facts: {', '.join([*who, f'{seen.workload.value} job'])}, at {formats.moment(seen.at)}",
        f"       {seen.nodes} × {seen.machine} {kind} at {seen.location}, {price}",
    ]
    if seen.start and seen.until:
        lines.append(f"       for up to {formats.length(seen.until - seen.start)}, until {formats.moment(seen.until)}")
    running = formats.plural(seen.running_jobs, "job"), formats.plural(seen.running_gpus, "GPU")
    lines.append(f"       {running[0]} running on {running[1]}")
    lines += [
        f"       budget {one.budget} from {formats.moment(one.period_start)}: {formats.money(one.spent)} spent,"
        f" {formats.money(one.held)} held"
        for one in seen.budgets
    ]
    return [Text(line, style="dim") for line in lines]


# --- policy test ----------------------------------------------------------------------------------------------------


def tried(found: PolicyTestResult) -> list[Text]:
    """One line per case, and the difference if it failed."""
    lines: list[Text] = []
    for one in found.cases:
        mark, style = ("ok", "green") if one.passed else ("FAIL", "bold red")
        lines.append(Text.assemble((f"{mark:<5}", style), f"{one.source}  {one.name}"))
        if one.wrong:
            lines.append(Text(f"     {one.wrong}"))
    count = formats.plural(len(found.cases), "case")
    said = f"{found.failed} of {count} failed." if found.failed else f"{count} passed."
    return [*lines, Text(said, style="bold red" if found.failed else "green")]


# --- recorded decisions ---------------------------------------------------------------------------------------------


def recorded(console: Console, found: RecordedDecisions) -> Iterator[RenderableType]:
    """Every recorded decision about a job."""
    for one in found.decisions:
        yield Text.assemble(
            (f"{formats.moment(one.at)}  ", "bold"),
            f"{one.action.value} on {one.pool or 'no pool'}: the policy ",
            WORDS[one.answer],
        )
        yield from verdict_table(console, one.verdicts) if one.verdicts else ()


def _rules(decision: RecordedDecision) -> str:
    strict = [one for one in decision.verdicts if one.answer is decision.answer and one.answer is not Answer.ALLOW]
    return "; ".join(f"{one.name}: {one.message}" for one in strict)


_DECIDED: tuple[ValueColumn[RecordedDecision], ...] = (
    ValueColumn("time", lambda one: formats.moment(one.at), 1),
    ValueColumn("user", lambda one: one.user),
    ValueColumn("team", lambda one: one.team or "", 3),
    ValueColumn("job", lambda one: one.job_id or one.job_name),
    ValueColumn("action", lambda one: one.action.value.replace("_", " "), 4),
    ValueColumn("would hold", lambda one: by_kind(one.money) if one.money else formats.NOTHING, align="right"),
    ValueColumn("answer", lambda one: Text(*WORDS[one.answer])),
    ValueColumn("why", _rules, folds=True),
)


def decided(console: Console, found: RecordedDecisions) -> Iterator[RenderableType]:
    """A row for each decision."""
    if found.decisions:
        yield from listed(console, _DECIDED, found.decisions)
    else:
        yield "No such decision is on record for this time."


# --- past decisions, judged again -----------------------------------------------------------------------------------


_DIFFERENCES: tuple[ValueColumn[DecisionDifference], ...] = (
    ValueColumn("time", lambda one: formats.moment(one.at)),
    ValueColumn("job", lambda one: one.job_id or one.job_name),
    ValueColumn("user", lambda one: one.user, 3),
    ValueColumn("recorded", lambda one: one.before.value),
    ValueColumn("new", lambda one: one.after.value if one.after else "not judged"),
    ValueColumn("cost", lambda one: _cost(one), 1, "right"),
    ValueColumn("reason", lambda one: _reason(one), 2, folds=True),
)
_TOTALS: tuple[ValueColumn[tuple[str, DecisionTotals]], ...] = (
    ValueColumn("", lambda row: row[0]),
    ValueColumn("allowed", lambda row: str(row[1].allowed), align="right"),
    ValueColumn("asked", lambda row: str(row[1].asked), align="right"),
    ValueColumn("denied", lambda row: str(row[1].denied), align="right"),
    ValueColumn("cost", lambda row: _sums(row[1]), align="right"),
)


def judged_again(console: Console, found: JudgedDecisions) -> Iterator[RenderableType]:
    """The decisions that differ, and the totals."""
    if found.differences:
        yield from listed(console, _DIFFERENCES, found.differences)
    yield from listed(console, _TOTALS, [("recorded", found.before), ("with these files", found.after)])
    same = f"{found.same} unchanged" if found.differences else "all unchanged"
    yield f"{formats.plural(found.decisions, 'decision')} judged again, {same}."
    if found.warned:
        yield Text(_warned(found.warned), style="yellow")
    if any(one.cost_after.micros for one in found.differences):
        yield Text("The new cost of a job that was refused or elsewhere is what its plan expected.", style="dim")
    if found.unknown:
        unknown = formats.plural(found.unknown, "decision")
        yield Text(f"{unknown} cannot be judged again: facts not recorded.", style="yellow")


def _warned(decisions: Sequence[DecisionDifference]) -> str:
    """The decisions that rules with `action: warn` would have refused."""
    rules = sorted({f"{v.name} ({v.source})" for one in decisions for v in one.objections if v.warns})
    jobs = sorted({one.job_id or one.job_name for one in decisions})
    more = f" and {len(jobs) - _MOST_NAMED} more" if len(jobs) > _MOST_NAMED else ""
    against = f"{formats.plural(len(decisions), 'decision')}: {', '.join(jobs[:_MOST_NAMED])}{more}"
    return f"Only warned by {', '.join(rules)}, which would not allow {against}."


def _reason(one: DecisionDifference) -> str:
    if one.after is None:
        return "its job was denied earlier"
    moved = f"{one.pool_before} → {one.pool_after}" if one.pool_after and one.pool_after != one.pool_before else ""
    return "; ".join(f"{v.message} ({v.source})" for v in one.objections if v.answer is not Answer.ALLOW) or moved


def _cost(one: DecisionDifference) -> str:
    if one.cost_before == one.cost_after:
        return ""
    kind = f" {one.money_after.value}" if one.money_after is not one.money else ""
    return f"{formats.money(one.cost_before)} → {formats.money(one.cost_after)}{kind}"


def _sums(totals: DecisionTotals) -> str:
    sums = [f"{formats.money(amount)} {kind.value}" for kind, amount in totals.cost.items()]
    return ", ".join(sums) or formats.money(None)
