"""Results of trying out policies: the facts that rules see, test cases, recorded decisions and their replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from broker.cli.render import formats
from broker.cli.render.tables import Column, fitted, fitting
from broker.core.policy.policy import Action, Answer, Facts, Verdict

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.policy.backtest import Backtest, ReplayedDecision, Totals
    from broker.app.policy.policies import Tried
    from broker.core.policy.decisions import Decision

_MOST_NAMED = 8
WORDS = {Answer.ALLOW: ("allows", "green"), Answer.ASK: ("asks", "yellow"), Answer.DENY: ("denies", "red")}


def word_of(verdict: Verdict) -> Text:
    """The verdict in one word."""
    return Text("warns", "yellow") if verdict.warns else Text(*WORDS[verdict.answer])


# --- what rules see -------------------------------------------------------------------------------------------------


def inputs(action: Action, facts: Facts) -> list[Text]:
    """The facts that the rules see, in a few lines."""
    job, placement = action.job, action.placement
    who = [f"user {action.user}"]
    for word in ("team", "project", "environment"):
        if said := getattr(job, word):
            who.append(f"{word} {said}")
    lines = [f"Facts: {', '.join([*who, f'{job.workload.value} job'])}, at {formats.moment(facts.now)}"]
    if placement is not None:
        offer = placement.offer
        price = f"{formats.rate(placement.rate)}/h" if placement.rate else "free of charge"
        kind = formats.purchase_type(offer.capacity_type)
        lines.append(f"       {placement.nodes} × {offer.machine} {kind} at {offer.location}, {price}")
    if action.window:
        begins, ends = action.window
        lines.append(f"       for up to {formats.length(ends - begins)}, until {formats.moment(ends)}")
    running = {one.job_id for one in facts.live}
    gpus = sum(one.gpus for one in facts.live)
    lines.append(f"       {formats.plural(len(running), 'job')} running on {formats.plural(gpus, 'GPU')}")
    for name, uses in facts.budgets.items():
        for use in uses:
            state = f"{formats.money(use.spent)} spent, {formats.money(use.held)} held"
            lines.append(f"       budget {name} from {formats.moment(use.period_start)}: {state}")
    return [Text(line, style="dim") for line in lines]


# --- policy test ----------------------------------------------------------------------------------------------------


def tried(files: Sequence[Tried]) -> list[Text]:
    """One line per case, and the difference if it failed."""
    lines: list[Text] = []
    for one in files:
        for result in one.results:
            mark, style = ("FAIL", "bold red") if result.wrong else ("ok", "green")
            lines.append(Text.assemble((f"{mark:<5}", style), f"{result.source}  {result.name}"))
            if result.wrong:
                lines.append(Text(f"     {result.wrong}"))
    failed = sum(bool(result.wrong) for one in files for result in one.results)
    count = sum(len(one.results) for one in files)
    said = (
        f"{failed} of {formats.plural(count, 'case')} failed." if failed else f"{formats.plural(count, 'case')} passed."
    )
    return [*lines, Text(said, style="bold red" if failed else "green")]


# --- recorded decisions ---------------------------------------------------------------------------------------------


def recorded(console: Console, decisions: Sequence[Decision]) -> list[RenderableType]:
    """Every recorded decision about a job."""
    columns = (Column("verdict"), Column("rule"), Column("message", folds=True), Column("source", 1))
    parts: list[RenderableType] = []
    for one in decisions:
        word, style = WORDS[one.answer]
        heading = Text.assemble(
            (f"{formats.moment(one.at)}  ", "bold"),
            f"{one.action.value} on {one.pool or 'no pool'}: the policy ",
            (word, style),
        )
        cells: list[list[str | Text]] = [[word_of(v), v.name or v.rule, v.message, str(v.source)] for v in one.verdicts]
        parts += [heading, *([fitting(console, columns, cells)] if cells else [])]
    return parts


# --- policy backtest ------------------------------------------------------------------------------------------------


# How the new costs were computed: footnotes of the table.
HOW = {
    "metered_time": "Cost on another placement: its rate for the metered time.",
    "converted_time": "If the job states its work: the other placement's rate for the metered time, multiplied by the"
    " throughput of the machine that it ran on over the throughput of the other one.",
    "plan": "Cost of jobs that never ran, or ran free of charge: the plan's expected cost; if the work is unknown, the"
    " cost of the longest time that the job may take.",
}


def backtested(console: Console, found: Backtest) -> list[RenderableType]:
    """The decisions that differ, and the totals."""
    columns = (
        Column("time"),
        Column("job"),
        Column("user", 3),
        Column("recorded"),
        Column("new"),
        Column("cost", 1, align="right"),
        Column("reason", 2, folds=True),
    )
    cells = [_difference(one) for one in found.differences]
    parts: list[RenderableType] = fitted(console, columns, cells) if cells else []
    totals = (Column(""), *(Column(word, align="right") for word in ("allowed", "asked", "denied", "late", "cost")))
    rows = [_totals("recorded", found.before), _totals("with these files", found.after)]
    parts.append(fitting(console, totals, rows))
    count = formats.plural(len(found.outcomes), "decision")
    same = len(found.outcomes) - len(found.differences)
    parts.append(Text(f"{count} judged again, {same} unchanged." if cells else f"{count} judged again, all unchanged."))
    parts += _warned(found)
    ways = {one.basis for one in found.differences if one.cost_before != one.cost_after}
    parts += [Text(how, style="dim") for basis, how in HOW.items() if basis in ways]
    if found.not_placed:
        jobs = formats.plural(found.not_placed, "submission")
        parts.append(Text(f"{jobs} judged by the recorded alternatives alone, not placed again.", style="yellow"))
    if found.unknown:
        parts.append(
            Text(
                f"{formats.plural(found.unknown, 'decision')} cannot be judged again: facts not recorded.",
                style="yellow",
            )
        )
    return parts


def _warned(found: Backtest) -> list[Text]:
    """The decisions that rules with `action: warn` would have refused."""
    if not found.warned:
        return []
    rules = sorted({f"{v.name} ({v.source})" for one in found.warned for v in one.verdicts if v.warns})
    jobs = sorted({one.decision.job_id or one.decision.job_name for one in found.warned})
    more = f" and {len(jobs) - _MOST_NAMED} more" if len(jobs) > _MOST_NAMED else ""
    against = f"{formats.plural(len(found.warned), 'decision')}: {', '.join(jobs[:_MOST_NAMED])}{more}"
    return [Text(f"Only warned by {', '.join(rules)}, which would not allow {against}.", style="yellow")]


def _difference(one: ReplayedDecision) -> list[str | Text]:
    objections = [v for v in one.verdicts if v.answer is not Answer.ALLOW]
    moved = f"{one.decision.pool} → {one.pool}" if one.pool != one.decision.pool and one.pool else ""
    if one.answer is None:
        why = "its job was denied earlier"
    else:
        why = "; ".join(f"{v.message} ({v.source})" for v in objections) or moved
    cost = ""
    if one.cost_before != one.cost_after:
        kind = f" {one.money_after.value}" if one.money_after is not one.money else ""
        cost = f"{formats.money(one.cost_before)} → {formats.money(one.cost_after)}{kind}"
    return [
        formats.moment(one.decision.at),
        one.decision.job_id or one.decision.job_name,
        one.decision.user,
        one.decision.answer.value,
        one.answer.value if one.answer else "not judged",
        cost,
        why,
    ]


def _totals(name: str, totals: Totals) -> list[str | Text]:
    cost = ", ".join(f"{formats.money(amount)} {kind.value}" for kind, amount in totals.cost.items()) or formats.money(
        None
    )
    return [name, str(totals.allowed), str(totals.asked), str(totals.denied), str(totals.late), cost]
