"""Policies and verdicts as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.policies import (
    Activation,
    AppliedPolicy,
    PolicyExplanation,
    PolicyInForce,
    PolicyResult,
    RuleResult,
)
from broker.cli.policy.trial_view import WORDS, facts, verdict_table
from broker.cli.render import formats
from broker.cli.render.tables import FittedTable, ValueColumn, listed
from broker.core.policy.policy import Answer
from broker.core.ports import HoldingLimits

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_ALLOWED = {
    "allow_reference_prices": "jobs may be launched at reference prices",
    "allow_stale_prices": "jobs may be launched at stale prices",
    "cpu_jobs_on_gpus": "CPU jobs may use GPU machines",
}
_TIMES = {
    "wait_for_paid": "jobs wait up to {} for paid capacity before they rent",
    "max_unattended": "rented machines stop after {} without a broker",
    "end_orphans_after": "orphans older than {} are ended",
    **{
        f"keep_{kind}": f"{kind} of ended jobs are kept for {{}}"
        for kind in ("checkpoints", "results", "logs", "snapshots")
    },
    "keep_prices": "price history is kept for {}",
    "keep_notices": "delivered notices are kept for {}",
}


def in_force(console: Console, found: PolicyInForce) -> Iterator[RenderableType]:
    """The active files if they were asked for, else the rules."""
    active = found.active
    if active is None:
        yield "No policy is active: nothing that costs real money is launched. Owned and sandbox capacity can be used."
        yield "Activate one with `gpubroker policy apply FILES`."
    elif active.files is not None:
        for name, text in active.files.items():
            yield from (Text(f"# --- {name}", style="dim"), Text(text.rstrip()))
    else:
        note = f": {active.note}" if active.note else ""
        activated = f"version {active.number}, activated {formats.moment(active.activated_at)} by {active.by}{note}"
        yield Text.assemble(("Active policy: ", "bold"), activated)
        yield from rule_table(console, active)


def rule_table(console: Console, policy: PolicyResult) -> list[RenderableType]:
    """The rules and defaults of a policy set."""
    columns: tuple[ValueColumn[RuleResult], ...] = (
        ValueColumn("rule", lambda rule: rule.name),
        ValueColumn("definition", _definition, folds=True),
        ValueColumn("scope", lambda rule: rule.scope, 1, folds=True),
        ValueColumn("condition", lambda rule: rule.when, 2, folds=True),
        ValueColumn("source", lambda rule: rule.source, 3),
    )
    [built] = listed(console, columns, policy.rules)
    if isinstance(built, FittedTable) and {"scope", "condition"} & set(built.hidden):
        # Too important to hide: shown below the definition.
        narrow = (columns[0], ValueColumn("definition", _in_lines, folds=True), columns[-1])
        [built] = listed(console, narrow, policy.rules)
    return [built if policy.rules else "No rules.", *(Text(line, style="dim") for line in _defaults(policy))]


def _defaults(policy: PolicyResult) -> Iterator[str]:
    """Each default with its source: a line of a file, or built in."""
    said, at = policy.defaults, policy.defaults_said_at
    lines = {
        "max_duration": f"a job without max_duration is stopped after {formats.length(said.max_duration)}",
        "grants_cash": "cash may be spent" if said.grants_cash else "no budget grants cash, so none is spent",
    }
    lines |= {name: line for name, line in _ALLOWED.items() if getattr(said, name)}
    lines |= {name: line.format(formats.length(time)) for name, line in _TIMES.items() if (time := getattr(said, name))}
    if (share := said.hold_quantile) is not None:
        lines["hold_quantile"] = f"the hold of a job with known work is enough for {share:g} % of its runs"
    if (bound := said.unknown_disk) is not None:
        lines["unknown_disk"] = f"a GiB of disk of unknown price counts as {formats.money(bound)} a month"
    if said.timezone is not None:
        lines["timezone"] = f"the months of reports begin in {said.timezone}"
    if (hour := said.value_of_time) is not None:
        lines["value_of_time"] = f"jobs without a deadline value an hour at {formats.money(hour)}"
    if held := _held(said.holding):
        lines["holding"] = f"may be proposed to own or reserve: {held}"
    if order := said.capacity_order:
        lines["capacity_order"] = f"capacity order: {', '.join(order)}"
    yield from (f"{line} ({at.get(default, 'built in')})" for default, line in lines.items())
    for one in policy.capacity_exceptions:
        yield f"capacity order for {one.scope}: {', '.join(one.order)} ({one.source})"


def _held(limits: HoldingLimits) -> str:
    said = []
    if limits.utilisation is not None:
        said.append(f"GPUs needed in {limits.utilisation:g}% of the hours or more")
    if limits.horizon is not None:
        said.append(f"terms up to {formats.length(limits.horizon)}")
    if limits.break_even is not None:
        said.append(f"break-even at {limits.break_even:g}% of the hours or less")
    return ", ".join(said)


def _in_lines(rule: RuleResult) -> Text:
    """The definition of a rule, then its scope and condition."""
    beside = [f"\n{word}: {said}" for word, said in (("scope", rule.scope), ("condition", rule.when)) if said]
    return Text.assemble(_definition(rule), *((line, "dim") for line in beside))


def _definition(rule: RuleResult) -> str:
    """The kind of a rule, and its definition as written: ``budget: $2,000 per month``; ``max_job_cost: $500; asks
    olga``."""
    entry = rule.says
    if rule.kind == "budget":
        period = entry.get("period")
        said = f"{entry.get('amount')} " + (
            f"{entry.get('from')} to {entry.get('to')}" if period == "fixed" else f"per {period}"
        )
        counts = entry.get("counts", "cash")
        if counts not in ("cash", ["cash"]):
            said += f" of {' and '.join(map(str, counts)) if isinstance(counts, list) else counts} money"
        said += f"; {entry['action']}s" if entry.get("action") in ("alert", "stop") else ""
    else:
        said = _in_one_line(entry.get(rule.kind))
    said += f" for each {entry['per']}" if entry.get("per") else ""
    said += "; only warns" if rule.warns else ""
    asked = f"; asks {' or '.join(rule.approvers)}" if rule.approvers and rule.kind != "approve_above" else ""
    return f"{rule.kind}: {said}{asked}"


def _in_one_line(said: object) -> str:
    """Plain data in YAML's flow style."""
    if isinstance(said, Mapping):
        return f"{{{', '.join(f'{key}: {_in_one_line(value)}' for key, value in said.items())}}}"
    if isinstance(said, list):
        return f"[{', '.join(map(_in_one_line, said))}]"
    return str(said).lower() if isinstance(said, bool) else str(said)


def warnings(doubtful: Sequence[str]) -> list[Text]:
    """Likely mistakes, such as unknown names."""
    return [Text(f"warning: {one}", style="yellow") for one in doubtful]


def left_out_cases(files: Sequence[str]) -> list[Text]:
    """A note on case files that were given as policy files: they contain no rules."""
    told = (
        f"note: ignored files of test cases: {', '.join(files)}; to run them: gpubroker policy test {' '.join(files)}"
    )
    return [Text(told, style="dim")] if files else []


def difference(text: str) -> list[Text]:
    """A unified diff in colors."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    return [Text(line, style=styles.get(line[:1], "")) for line in text.splitlines()]


def unchanged(version: int) -> str:
    """That these files are active already, as that version."""
    return f"Nothing changed: version {version} with these files is already active."


def applied(console: Console, done: AppliedPolicy) -> Iterator[RenderableType]:
    """The rules and defaults that apply now, and how many of them changed: ``2 rules added, 1 changed, 1 removed``."""
    if not done.changed:
        yield unchanged(done.number)
        return
    yield from rule_table(console, done)
    new = done.rules_changed
    counts = {"added": new.added, "changed": new.changed, "removed": new.removed}
    said = [f"{len(names)} {what}" for what, names in counts.items() if names]
    said += ["defaults changed"] if new.defaults else []
    yield f"Rules: {', '.join(said)}." if said else "The rules are unchanged."
    yield f"Version {done.number} is active."


def history_table(console: Console, versions: Sequence[Activation]) -> list[RenderableType]:
    """One row per version, newest first."""
    columns: tuple[ValueColumn[Activation], ...] = (
        ValueColumn("version", lambda one: str(one.number), align="right"),
        ValueColumn("activated", lambda one: formats.moment(one.activated_at)),
        ValueColumn("by", lambda one: one.by),
        ValueColumn("files", lambda one: ", ".join(one.file_names), 1, folds=True),
        ValueColumn("why", lambda one: one.note, 2, folds=True),
    )
    if not versions:
        return ["No policy was ever applied. Apply one with `gpubroker policy apply FILES`."]
    return listed(console, columns, versions)


def explained(console: Console, said: PolicyExplanation) -> Iterator[RenderableType]:
    """The facts that the rules see, every verdict, and the overall verdict."""
    yield from facts(said.facts) if said.facts is not None else ()
    money = " and ".join(f"{formats.money(amount)} {kind}" for kind, amount in said.hold.items()) or "no money"
    yield Text.assemble("Judged placement: ", (said.pool, "bold"), f"; to be held: {money}")
    yield from verdict_table(console, said.verdicts)
    (word, style), whom = WORDS[said.placement_answer], _whom(said) if said.planned else "this placement"
    yield Text.assemble("The policy ", (word, f"bold {style}"), f" {whom}.")
    if not said.planned:
        yield "The plan has no placement left; `gpubroker plan JOB --explain` shows why."


def _whom(said: PolicyExplanation) -> str:
    """``it``; ``ann or bob first`` if an approval is needed."""
    asked = sorted({name for v in said.verdicts if v.answer is Answer.ASK for name in v.approvers})
    return f"{' or '.join(asked)} first" if said.answer is Answer.ASK and asked else "it"
