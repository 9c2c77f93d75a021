"""Policies and verdicts as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from broker.cli.policy.trial_view import ANSWER_TEXTS, fact_lines, verdict_table
from broker.cli.render import formats
from broker.cli.render.tables import FittedTable, ValueColumn, table_parts
from broker.core.policy.policy import Answer
from broker.core.ports import HoldingLimits

if TYPE_CHECKING:
    from broker.app.policy.documents import (
        Activation,
        AppliedPolicy,
        PolicyExplanation,
        PolicyInForce,
        PolicyResult,
        RuleResult,
    )

_ALLOWED = {
    "allow_reference_prices": "jobs may be launched at reference prices",
    "allow_stale_prices": "jobs may be launched at stale prices",
    "cpu_jobs_on_gpus": "CPU jobs may use GPU machines",
    "overlap": "jobs with deadline, work and checkpoints may pay for on-demand until their spot machine is ready",
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


def active_policy_lines(console: Console, policy: PolicyInForce) -> Iterator[RenderableType]:
    """The active files if they were asked for, else the rules."""
    active = policy.active
    if active is None:
        yield "No policy is active: nothing that costs real money is launched. Owned and sandbox capacity can be used."
        yield "Activate one with `gpubroker policy apply FILES`."
    elif active.files is not None:
        for name, text in active.files.items():
            yield from (Text(f"# --- {name}", style="dim"), Text(text.rstrip()))
    else:
        note = f": {active.note}" if active.note else ""
        activation_text = (
            f"version {active.number}, activated {formats.moment(active.activated_at)} by {active.by}{note}"
        )
        yield Text.assemble(("Active policy: ", "bold"), activation_text)
        yield from rule_table(console, active)


def rule_table(console: Console, policy: PolicyResult) -> list[RenderableType]:
    """The rules and defaults of a policy set."""
    columns: tuple[ValueColumn[RuleResult], ...] = (
        ValueColumn("rule", lambda row: row.name),
        ValueColumn("definition", _definition, folds=True),
        ValueColumn("scope", lambda row: row.scope, 1, folds=True),
        ValueColumn("condition", lambda row: row.when, 2, folds=True),
        ValueColumn("source", lambda row: row.source, 3),
    )
    [table] = table_parts(console, columns, policy.rules)
    if isinstance(table, FittedTable) and {"scope", "condition"} & set(table.hidden):
        # Too important to hide: shown below the definition.
        narrow = (columns[0], ValueColumn("definition", _definition_lines, folds=True), columns[-1])
        [table] = table_parts(console, narrow, policy.rules)
    return [table if policy.rules else "No rules.", *(Text(line, style="dim") for line in _defaults(policy))]


def _defaults(policy: PolicyResult) -> Iterator[str]:
    """Each default with its source: a line of a file, or built in."""
    defaults, at = policy.defaults, policy.defaults_said_at
    texts_by_name = {
        "max_duration": f"a job without max_duration is stopped after {formats.length(defaults.max_duration)}",
        "grants_cash": "cash may be spent" if defaults.grants_cash else "no budget grants cash, so none is spent",
    }
    texts_by_name |= {name: line for name, line in _ALLOWED.items() if getattr(defaults, name)}
    texts_by_name |= {
        name: line.format(formats.length(time)) for name, line in _TIMES.items() if (time := getattr(defaults, name))
    }
    if (share := defaults.hold_quantile) is not None:
        texts_by_name["hold_quantile"] = f"the hold of a job with known work is enough for {share:g} % of its runs"
    if (bound := defaults.unknown_disk) is not None:
        texts_by_name["unknown_disk"] = f"a GiB of disk of unknown price counts as {formats.money(bound)} a month"
    if defaults.timezone is not None:
        texts_by_name["timezone"] = f"the months of reports begin in {defaults.timezone}"
    if (hour := defaults.value_of_time) is not None:
        texts_by_name["value_of_time"] = f"jobs without a deadline value an hour at {formats.money(hour)}"
    if limits_text := _holding_limits_text(defaults.holding):
        texts_by_name["holding"] = f"may be proposed to own or reserve: {limits_text}"
    if rights := [
        f"{right.priority.value} (of each job after {formats.length(right.min_runtime)}, {right.per_day} times a day)"
        for right in defaults.preempts
    ]:
        texts_by_name["preempts"] = f"jobs may take the places of lower priorities: {', '.join(rights)}"
    if order := defaults.capacity_order:
        texts_by_name["capacity_order"] = f"capacity order: {', '.join(order)}"
    yield from (f"{line} ({at.get(default, 'built in')})" for default, line in texts_by_name.items())
    for exception in policy.capacity_exceptions:
        yield f"capacity order for {exception.scope}: {', '.join(exception.order)} ({exception.source})"


def _holding_limits_text(limits: HoldingLimits) -> str:
    limit_texts = []
    if limits.utilisation is not None:
        limit_texts.append(f"GPUs needed in {limits.utilisation:g}% of the hours or more")
    if limits.horizon is not None:
        limit_texts.append(f"terms up to {formats.length(limits.horizon)}")
    if limits.break_even is not None:
        limit_texts.append(f"break-even at {limits.break_even:g}% of the hours or less")
    return ", ".join(limit_texts)


def _definition_lines(rule: RuleResult) -> Text:
    """The definition of a rule, then its scope and condition."""
    detail_lines = [
        f"\n{label}: {value}" for label, value in (("scope", rule.scope), ("condition", rule.when)) if value
    ]
    return Text.assemble(_definition(rule), *((line, "dim") for line in detail_lines))


def _definition(rule: RuleResult) -> str:
    """The kind of a rule, and its definition as written: ``budget: $2,000 per month``; ``max_job_cost: $500; asks
    olga``."""
    entry = rule.says
    if rule.kind == "budget":
        period = entry.get("period")
        definition = f"{entry.get('amount')} " + (
            f"{entry.get('from')} to {entry.get('to')}" if period == "fixed" else f"per {period}"
        )
        counts = entry.get("counts", "cash")
        if counts not in ("cash", ["cash"]):
            definition += f" of {' and '.join(map(str, counts)) if isinstance(counts, list) else counts} money"
        definition += f"; {entry['action']}s" if entry.get("action") in ("alert", "stop") else ""
    else:
        definition = _flow_text(entry.get(rule.kind))
    definition += f" for each {entry['per']}" if entry.get("per") else ""
    definition += "; only warns" if rule.warns else ""
    approvers_text = f"; asks {' or '.join(rule.approvers)}" if rule.approvers and rule.kind != "approve_above" else ""
    return f"{rule.kind}: {definition}{approvers_text}"


def _flow_text(data: object) -> str:
    """Plain data in YAML's flow style."""
    if isinstance(data, Mapping):
        return f"{{{', '.join(f'{key}: {_flow_text(value)}' for key, value in data.items())}}}"
    if isinstance(data, list):
        return f"[{', '.join(map(_flow_text, data))}]"
    return str(data).lower() if isinstance(data, bool) else str(data)


def warnings(warning_texts: Sequence[str]) -> list[Text]:
    """Likely mistakes, such as unknown names."""
    return [Text(f"warning: {warning}", style="yellow") for warning in warning_texts]


def ignored_cases_note(files: Sequence[str]) -> list[Text]:
    """A note on case files that were given as policy files: they contain no rules."""
    note = (
        f"note: ignored files of test cases: {', '.join(files)}; to run them: gpubroker policy test {' '.join(files)}"
    )
    return [Text(note, style="dim")] if files else []


def diff_lines(text: str) -> list[Text]:
    """A unified diff in colors."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    return [Text(line, style=styles.get(line[:1], "")) for line in text.splitlines()]


def unchanged_text(version: int) -> str:
    """The sentence that these files are active already, as that version."""
    return f"Nothing changed: version {version} with these files is already active."


def applied_lines(console: Console, policy: AppliedPolicy) -> Iterator[RenderableType]:
    """The rules and defaults that apply now, and how many of them changed: ``2 rules added, 1 changed, 1 removed``."""
    if not policy.changed:
        yield unchanged_text(policy.number)
        return
    yield from rule_table(console, policy)
    new = policy.rules_changed
    counts = {"added": new.added, "changed": new.changed, "removed": new.removed}
    count_texts = [f"{len(names)} {change_kind}" for change_kind, names in counts.items() if names]
    count_texts += ["defaults changed"] if new.defaults else []
    yield f"Rules: {', '.join(count_texts)}." if count_texts else "The rules are unchanged."
    yield f"Version {policy.number} is active."


def history_table(console: Console, versions: Sequence[Activation]) -> list[RenderableType]:
    """One row per version, newest first."""
    columns: tuple[ValueColumn[Activation], ...] = (
        ValueColumn("version", lambda row: str(row.number), align="right"),
        ValueColumn("activated", lambda row: formats.moment(row.activated_at)),
        ValueColumn("by", lambda row: row.by),
        ValueColumn("files", lambda row: ", ".join(row.file_names), 1, folds=True),
        ValueColumn("why", lambda row: row.note, 2, folds=True),
    )
    if not versions:
        return ["No policy was ever applied. Apply one with `gpubroker policy apply FILES`."]
    return table_parts(console, columns, versions)


def explanation_lines(console: Console, explanation: PolicyExplanation) -> Iterator[RenderableType]:
    """The facts that the rules see, every verdict, and the overall verdict."""
    yield from fact_lines(explanation.facts) if explanation.facts is not None else ()
    money = " and ".join(f"{formats.money(amount)} {kind}" for kind, amount in explanation.hold.items()) or "no money"
    yield Text.assemble("Judged placement: ", (explanation.pool, "bold"), f"; to be held: {money}")
    yield from verdict_table(console, explanation.verdicts)
    (word, style), target = (
        ANSWER_TEXTS[explanation.placement_answer],
        _target_text(explanation) if explanation.planned else "this placement",
    )
    yield Text.assemble("The policy ", (word, f"bold {style}"), f" {target}.")
    if not explanation.planned:
        yield "The plan has no placement left; `gpubroker plan JOB --explain` shows why."


def _target_text(explanation: PolicyExplanation) -> str:
    """``it``; ``ann or bob first`` if an approval is needed."""
    approvers = sorted({name for v in explanation.verdicts if v.answer is Answer.ASK for name in v.approvers})
    return f"{' or '.join(approvers)} first" if explanation.answer is Answer.ASK and approvers else "it"
