"""Policies on trial as text: the effect of a change, recorded decisions, and test cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from broker.cli.billing.budget_view import scope_text
from broker.cli.jobs.job_view import amounts_text
from broker.cli.policy import trial_view
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, table_parts
from broker.core.policy.policy import Answer
from broker.core.values.figures import join_names
from broker.ledger.budgets import is_fixed

if TYPE_CHECKING:
    from broker.app.documents import VerdictResult
    from broker.app.policy.documents import SeenFacts
    from broker.app.policy.rehearsal import AffectedJob
    from broker.app.policy.replay import DecisionTotals
    from broker.app.policy.trial_documents import (
        BudgetChangeResult,
        BudgetTermsResult,
        DecisionDifference,
        JudgedDecisions,
        PolicyPreviewResult,
        PolicyTestResult,
        RecordedDecision,
        RecordedDecisions,
    )


_EFFECT_TEXTS = {
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


def preview_lines(console: Console, preview: PolicyPreviewResult) -> Iterator[RenderableType]:
    """The effect on jobs and budgets now, and on past decisions."""
    yield Text("If these files are applied now:", style="bold")
    yield from _jobs(console, preview)
    yield Text("Budgets:" if preview.budgets else "Budgets: unchanged.")
    yield from (Text(f"  {_change(change)}") for change in preview.budgets)
    began, decisions = formats.moment(preview.past.since), preview.past.decisions
    if decisions.decisions:
        yield Text(f"Decisions since {began}, judged by these files:")
        yield from trial_view.replay_lines(console, decisions)
    else:
        yield Text(f"No recorded decision since {began} can be judged again.")


def _jobs(console: Console, preview: PolicyPreviewResult) -> Iterator[RenderableType]:
    open_jobs = formats.plural(preview.looked_at, "open job")
    if not preview.jobs:
        yield Text(f"Jobs: no change for {open_jobs}.")
    else:
        yield Text(f"Jobs: {len(preview.jobs):,} of {open_jobs} will change at the next reconciliation:")
        columns: tuple[ValueColumn[AffectedJob], ...] = (
            ValueColumn("job", lambda row: row.job_id),
            ValueColumn("user", lambda row: row.user, 1),
            ValueColumn("effect", lambda row: Text(*_EFFECT_TEXTS[row.effect.value])),
            ValueColumn("rule", _effect_text, folds=True),
        )
        yield from table_parts(console, columns, preview.jobs)
    if preview.left_out:
        yield Text(f"{formats.plural(preview.left_out, 'more job')} at the end of the queue not judged.", style="dim")


def _effect_text(affected_job: AffectedJob) -> str:
    texts = [f"{rule.name or rule.kind}: {rule.message} ({rule.source})" for rule in affected_job.rules]
    if affected_job.at is not None:
        texts.append(f"at {formats.moment(affected_job.at)}")
    if affected_job.approvers:
        texts.append(f"asks {' or '.join(affected_job.approvers)}")
    if affected_job.pool:
        texts.append(f"on {affected_job.pool}")
    return "; ".join(texts)


def _change(change: BudgetChangeResult) -> str:
    old, new = change.before, change.after
    if new is None:
        assert old is not None, "one of before and after is set"
        return f"{change.name} is removed: {_terms_text(old)}; {_state_text(old)} ({old.source})"
    if old is None:
        return f"{change.name} is added: {_terms_text(new)}; {_state_text(new)} ({new.source})"
    return f"{change.name}: {_terms_text(old)} → {_terms_text(new)}; {_state_text(new)} ({new.source})"


def _terms_text(line: BudgetTermsResult) -> str:
    period = "period" if is_fixed(line.period) else line.period
    return f"{formats.money(line.amount)} per {period}, {scope_text(line.scope)}, {line.action}"


def _state_text(line: BudgetTermsResult) -> str:
    remaining_text = (
        f"{formats.money(line.left)} left" if line.left.micros >= 0 else f"{formats.money(-line.left)} over the limit"
    )
    return f"{formats.money(line.spent)} spent, {formats.money(line.held)} held, {remaining_text}"


_MAX_NAMED = 8
ANSWER_TEXTS = {Answer.ALLOW: ("allows", "green"), Answer.ASK: ("asks", "yellow"), Answer.DENY: ("denies", "red")}
_VERDICTS: tuple[ValueColumn[VerdictResult], ...] = (
    ValueColumn("answer", lambda row: Text("warns", "yellow") if row.warns else Text(*ANSWER_TEXTS[row.answer])),
    ValueColumn("rule", lambda row: row.name or row.rule),
    ValueColumn("message", lambda row: row.message, folds=True),
    ValueColumn("source", lambda row: row.source, 1),
)


def verdict_table(console: Console, verdicts: Sequence[VerdictResult]) -> list[RenderableType]:
    """One row per rule."""
    return table_parts(console, _VERDICTS, verdicts)


def fact_lines(seen_facts: SeenFacts) -> list[Text]:
    """The facts that the rules see, in a few lines."""
    names_by_kind = {
        "user": seen_facts.user,
        "team": seen_facts.team,
        "project": seen_facts.project,
        "environment": seen_facts.environment,
    }
    named_parties = [f"{kind_name} {name}" for kind_name, name in names_by_kind.items() if name]
    price = f"{formats.rate(seen_facts.rate_per_hour)}/h" if seen_facts.rate_per_hour else "free of charge"
    kind = formats.purchase_type(seen_facts.capacity_type)
    lines = [
        f"Facts: {', '.join([*named_parties, f'{seen_facts.workload.value} job'])}, at {formats.moment(seen_facts.at)}",
        f"       {seen_facts.nodes} × {seen_facts.machine} {kind} at {seen_facts.location}, {price}",
    ]
    if seen_facts.start and seen_facts.until:
        lines.append(
            f"       for up to {formats.length(seen_facts.until - seen_facts.start)}, until "
            f"{formats.moment(seen_facts.until)}"
        )
    running = formats.plural(seen_facts.running_jobs, "job"), formats.plural(seen_facts.running_gpus, "GPU")
    lines.append(f"       {running[0]} running on {running[1]}")
    lines += [
        f"       budget {budget.budget} from {formats.moment(budget.period_start)}: {formats.money(budget.spent)} "
        "spent,"
        f" {formats.money(budget.held)} held"
        for budget in seen_facts.budgets
    ]
    return [Text(line, style="dim") for line in lines]


# --- policy test ----------------------------------------------------------------------------------------------------


def case_lines(result: PolicyTestResult) -> list[Text]:
    """One line per case, and the difference if it failed."""
    lines: list[Text] = []
    for case in result.cases:
        mark, style = ("ok", "green") if case.passed else ("FAIL", "bold red")
        lines.append(Text.assemble((f"{mark:<5}", style), f"{case.source}  {case.name}"))
        if case.wrong:
            lines.append(Text(f"     {case.wrong}"))
    count = formats.plural(len(result.cases), "case")
    summary = f"{result.failed} of {count} failed." if result.failed else f"{count} passed."
    return [*lines, Text(summary, style="bold red" if result.failed else "green")]


# --- recorded decisions ---------------------------------------------------------------------------------------------


def recorded_lines(console: Console, decision_list: RecordedDecisions) -> Iterator[RenderableType]:
    """Every recorded decision about a job."""
    for decision in decision_list.decisions:
        yield Text.assemble(
            (f"{formats.moment(decision.at)}  ", "bold"),
            f"{decision.action.value} on {decision.pool or 'no pool'}: the policy ",
            ANSWER_TEXTS[decision.answer],
        )
        yield from verdict_table(console, decision.verdicts) if decision.verdicts else ()


def _rules(decision: RecordedDecision) -> str:
    strict = [
        verdict
        for verdict in decision.verdicts
        if verdict.answer is decision.answer and verdict.answer is not Answer.ALLOW
    ]
    return "; ".join(f"{verdict.name}: {verdict.message}" for verdict in strict)


_DECIDED: tuple[ValueColumn[RecordedDecision], ...] = (
    ValueColumn("time", lambda row: formats.moment(row.at), 1),
    ValueColumn("user", lambda row: row.user),
    ValueColumn("team", lambda row: row.team or "", 3),
    ValueColumn("job", lambda row: row.job_id or row.job_name),
    ValueColumn("action", lambda row: row.action.value.replace("_", " "), 4),
    ValueColumn("would hold", lambda row: amounts_text(row.money) if row.money else formats.NO_VALUE, align="right"),
    ValueColumn("answer", lambda row: Text(*ANSWER_TEXTS[row.answer])),
    ValueColumn("why", _rules, folds=True),
)


def decision_rows(console: Console, recorded: RecordedDecisions) -> Iterator[RenderableType]:
    """A row for each decision."""
    if recorded.decisions:
        yield from table_parts(console, _DECIDED, recorded.decisions)
    else:
        yield "No such decision is on record for this time."


# --- past decisions, judged again -----------------------------------------------------------------------------------


_DIFFERENCES: tuple[ValueColumn[DecisionDifference], ...] = (
    ValueColumn("time", lambda row: formats.moment(row.at)),
    ValueColumn("job", lambda row: row.job_id or row.job_name),
    ValueColumn("user", lambda row: row.user, 3),
    ValueColumn("recorded", lambda row: row.before.value),
    ValueColumn("new", lambda row: row.after.value if row.after else "not judged"),
    ValueColumn("cost", lambda row: _cost_text(row), 1, "right"),
    ValueColumn("reason", lambda row: _reason_text(row), 2, folds=True),
)
_TOTALS: tuple[ValueColumn[tuple[str, DecisionTotals]], ...] = (
    ValueColumn("", lambda row: row[0]),
    ValueColumn("allowed", lambda row: str(row[1].allowed), align="right"),
    ValueColumn("asked", lambda row: str(row[1].asked), align="right"),
    ValueColumn("denied", lambda row: str(row[1].denied), align="right"),
    ValueColumn("cost", lambda row: _cost_totals_text(row[1]), align="right"),
)


def replay_lines(console: Console, result: JudgedDecisions) -> Iterator[RenderableType]:
    """The decisions that differ, and the totals."""
    if result.differences:
        yield from table_parts(console, _DIFFERENCES, result.differences)
    yield from table_parts(console, _TOTALS, [("recorded", result.before), ("with these files", result.after)])
    unchanged_text = f"{result.same} unchanged" if result.differences else "all unchanged"
    yield f"{formats.plural(result.decisions, 'decision')} judged again, {unchanged_text}."
    if result.warned:
        yield Text(_warned_text(result.warned), style="yellow")
    if any(difference.cost_after.micros for difference in result.differences):
        yield Text("The new cost of a job that was refused or elsewhere is what its plan expected.", style="dim")
    if result.unknown:
        unknown = formats.plural(result.unknown, "decision")
        yield Text(f"{unknown} cannot be judged again: facts not recorded.", style="yellow")


def _warned_text(decisions: Sequence[DecisionDifference]) -> str:
    """The decisions that rules with `action: warn` would have refused."""
    rules = sorted({f"{v.name} ({v.source})" for decision in decisions for v in decision.objections if v.warns})
    jobs = sorted({decision.job_id or decision.job_name for decision in decisions})
    decisions_text = f"{formats.plural(len(decisions), 'decision')}: {join_names(jobs, _MAX_NAMED)}"
    return f"Only warned by {', '.join(rules)}, which would not allow {decisions_text}."


def _reason_text(difference: DecisionDifference) -> str:
    if difference.after is None:
        return "its job was denied earlier"
    move_text = (
        f"{difference.pool_before} → {difference.pool_after}"
        if difference.pool_after and difference.pool_after != difference.pool_before
        else ""
    )
    return (
        "; ".join(f"{v.message} ({v.source})" for v in difference.objections if v.answer is not Answer.ALLOW)
        or move_text
    )


def _cost_text(difference: DecisionDifference) -> str:
    if difference.cost_before == difference.cost_after:
        return ""
    kind = f" {difference.money_after.value}" if difference.money_after is not difference.money else ""
    return f"{formats.money(difference.cost_before)} → {formats.money(difference.cost_after)}{kind}"


def _cost_totals_text(totals: DecisionTotals) -> str:
    sums = [f"{formats.money(amount)} {kind.value}" for kind, amount in totals.cost.items()]
    return ", ".join(sums) or formats.money(None)
