"""Policies and verdicts as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from broker.cli.policy.trial_view import WORDS, word_of
from broker.cli.render import formats
from broker.cli.render.tables import Column, fitting
from broker.core.policy.policy import Answer
from broker.core.ports import HoldingLimits, LendingTerms, PolicyDefaults, PolicySet, Rule

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType

    from broker.app.policy.policies import Explained
    from broker.reconciler.admission.admission import Admission
    from broker.store import PolicyVersion


def heading(version: PolicyVersion) -> Text:
    """The active version, and the time and user of its activation."""
    note = f": {version.note}" if version.note else ""
    return Text.assemble(
        ("Active policy: ", "bold"),
        f"version {version.number}, activated {formats.moment(version.activated_at)} by {version.by}{note}",
    )


def rule_table(console: Console, policy: PolicySet) -> list[RenderableType]:
    """The rules and defaults of a policy set."""
    columns = (
        Column("rule"),
        Column("definition", folds=True),
        Column("scope", 1, folds=True),
        Column("condition", 2, folds=True),
        Column("source", 3),
    )
    cells = [
        [rule.name, f"{rule.kind}: {_told(policy, rule)}", str(getattr(rule, "scope", "")), policy.when(rule.name),
         str(rule.source)]
        for rule in policy.rules
    ]  # fmt: skip
    built = fitting(console, columns, cells)
    if {"scope", "condition"} & set(built.hidden):  # too important to hide: shown below the definition
        narrow: list[list[str | Text]] = [[name, _in_lines(*said), where] for name, *said, where in cells]
        built = fitting(console, (*columns[:2], columns[-1]), narrow)
    parts: list[RenderableType] = [built] if cells else [Text("No rules.")]
    return [*parts, *(Text(line, style="dim") for line in _defaults(policy))]


def _defaults(policy: PolicySet) -> Iterator[str]:
    """Each default with its source: a line of a file, or built in."""
    said, at = policy.defaults, policy.said_at
    lines = {
        "max_duration": f"a job without max_duration is stopped after {formats.length(said.max_duration)}",
        "grants_cash": "cash may be spent" if said.grants_cash else "no budget grants cash, so none is spent",
    }
    if said.allow_reference_prices:
        lines["allow_reference_prices"] = "jobs may be launched at reference prices"
    if said.allow_stale_prices:
        lines["allow_stale_prices"] = "jobs may be launched at stale prices"
    if said.cpu_jobs_on_gpus:
        lines["cpu_jobs_on_gpus"] = "CPU jobs may use GPU machines"
    if wait := said.wait_for_paid:
        lines["wait_for_paid"] = f"jobs wait up to {formats.length(wait)} for paid capacity before they rent"
    if old := said.end_orphans_after:
        lines["end_orphans_after"] = f"orphans older than {formats.length(old)} are ended"
    lines |= _kept_files(said) | _held_at_once(said)
    if alone := said.max_unattended:
        lines["max_unattended"] = f"rented machines stop after {formats.length(alone)} without a broker"
    if (hour := said.value_of_time) is not None:
        lines["value_of_time"] = f"jobs without a deadline value an hour at {formats.money(hour)}"
    if said.holding != HoldingLimits():
        lines["holding"] = f"may be proposed to own or reserve: {_held(said.holding)}"
    if said.lending:
        lines["lending"] = "; ".join(map(_lent, said.lending))
    if order := said.capacity_order:
        lines["capacity_order"] = f"capacity order: {', '.join(order)}"
    yield from (f"{line} ({at.get(default, 'built in')})" for default, line in lines.items())
    for scope, order, source in policy.order_exceptions:
        yield f"capacity order for {scope}: {', '.join(order)} ({source})"


def _lent(terms: LendingTerms) -> str:
    hour = terms.price_per_gpu_hour
    price = f"{formats.money(hour)} a GPU-hour" if hour is not None else f"{terms.share:g}% of what they cost"
    whom = "other teams" if terms.to == ("*",) else ", ".join(terms.to)
    return f"machines that {terms.team} bought are lent to {whom} at {price}"


def _held(limits: HoldingLimits) -> str:
    said = []
    if limits.utilisation is not None:
        said.append(f"GPUs needed in {limits.utilisation:g}% of the hours or more")
    if limits.horizon is not None:
        said.append(f"terms up to {formats.length(limits.horizon)}")
    if limits.break_even is not None:
        said.append(f"what pays from {limits.break_even:g}% of the hours or less")
    return ", ".join(said)


def _held_at_once(said: PolicyDefaults) -> dict[str, str]:
    if (share := said.hold_quantile) is None:
        return {}
    return {"hold_quantile": f"the hold of a job with known work is enough for {share:g} % of its runs"}


def _kept_files(said: PolicyDefaults) -> dict[str, str]:
    times = {
        "checkpoints": said.keep_checkpoints,
        "results": said.keep_results,
        "logs": said.keep_logs,
        "snapshots": said.keep_snapshots,
    }
    kept = {
        f"keep_{kind}": f"{kind} of ended jobs are kept for {formats.length(time)}"
        for kind, time in times.items()
        if time is not None
    }
    if said.keep_events is not None:
        kept["keep_events"] = f"events move to the archive {formats.length(said.keep_events)} after the job's end"
    if said.keep_prices is not None:
        kept["keep_prices"] = f"price history moves to the archive after {formats.length(said.keep_prices)}"
    if said.keep_notices is not None:
        kept["keep_notices"] = f"delivered notices are kept for {formats.length(said.keep_notices)}"
    return kept


def _in_lines(says: str, whom: str, when: str) -> Text:
    """The definition of a rule, then its scope and condition."""
    beside = [f"\n{word}: {said}" for word, said in (("scope", whom), ("condition", when)) if said]
    return Text.assemble(says, *((line, "dim") for line in beside))


def _told(policy: PolicySet, rule: Rule) -> str:
    """The definition of a rule as written: ``$2,000 per month``; ``{H100: $4, default: $3}``; ``$500; asks olga``."""
    entry = policy.written(rule.name)
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
    said += "; only warns" if policy.warns(rule.name) else ""
    asked = policy.approvers(rule.name)
    return f"{said}; asks {' or '.join(asked)}" if asked and rule.kind != "approve_above" else said


def _in_one_line(said: object) -> str:
    """Plain data in YAML's flow style."""
    if isinstance(said, Mapping):
        return f"{{{', '.join(f'{key}: {_in_one_line(value)}' for key, value in said.items())}}}"
    if isinstance(said, list):
        return f"[{', '.join(map(_in_one_line, said))}]"
    return str(said).lower() if isinstance(said, bool) else str(said)


def warnings(doubtful: Sequence[str]) -> list[Text]:
    """Likely mistakes: unknown names, lists that together allow nothing."""
    return [Text(f"warning: {one}", style="yellow") for one in doubtful]


def left_out_cases(files: Sequence[Path | str]) -> list[Text]:
    """A note on case files that were given as policy files: they contain no rules."""
    names = [str(file) for file in files]
    told = (
        f"note: ignored files of test cases: {', '.join(names)}; to run them: gpubroker policy test {' '.join(names)}"
    )
    return [Text(told, style="dim")] if names else []


def difference(text: str) -> list[Text]:
    """A unified diff in colours."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    return [Text(line, style=styles.get(line[:1], "")) for line in text.splitlines()]


def changes(before: PolicySet | None, after: PolicySet) -> str:
    """``2 rules added, 1 changed, 1 removed``."""
    old, new = ({r.name: _says(one, r) for r in one.rules} if one else {} for one in (before, after))
    counts = {
        "added": len(new.keys() - old.keys()),
        "changed": sum(old[name] != new[name] for name in old.keys() & new.keys()),
        "removed": len(old.keys() - new.keys()),
    }
    said = [f"{count} {what}" for what, count in counts.items() if count]
    if before is not None and before.defaults != after.defaults:
        said.append("defaults changed")
    return f"Rules: {', '.join(said)}." if said else "The rules are unchanged."


def _says(policy: PolicySet, rule: Rule) -> tuple[str, str, str, str]:
    """The content of a rule, independent of its file and line."""
    config, asked = (repr(said) for said in (getattr(rule, "config", None), policy.approvers(rule.name)))
    config += str(policy.warns(rule.name))
    return rule.kind, config + asked, repr(getattr(rule, "scope", None)), policy.when(rule.name)


def files(version: PolicyVersion) -> list[Text]:
    """The text of every active file with its name."""
    return [
        part
        for name, text in version.files.items()
        for part in (Text(f"# --- {name}", style="dim"), Text(text.rstrip()))
    ]


def history_table(console: Console, versions: Sequence[PolicyVersion]) -> RenderableType:
    """One row per version, newest first."""
    columns = (
        Column("version", align="right"),
        Column("activated"),
        Column("by"),
        Column("files", 1, folds=True),
        Column("why", 2, folds=True),
    )
    cells = [[str(v.number), formats.moment(v.activated_at), v.by, ", ".join(v.files), v.note] for v in versions]
    return fitting(console, columns, cells)


def explained(console: Console, said: Explained) -> list[RenderableType]:
    """Every verdict, and the overall verdict."""
    found = said.admission
    columns = (Column("verdict"), Column("rule"), Column("message", folds=True), Column("source", 1))
    cells: list[list[str | Text]] = [
        [word_of(verdict), verdict.name or verdict.rule, verdict.message, str(verdict.source)]
        for verdict in found.verdicts
    ]
    word, style = WORDS[found.answer]
    whom = _whom(found) if said.planned else "this placement"
    money = " and ".join(f"{formats.money(amount)} {kind}" for kind, amount in found.money.items()) or "no money"
    return [
        Text.assemble("Judged placement: ", (found.placement.offer.pool, "bold"), f"; to be held: {money}"),
        fitting(console, columns, cells),
        Text.assemble("The policy ", (word, f"bold {style}"), f" {whom}."),
        *([] if said.planned else [Text("The plan has no placement left; `gpubroker plan JOB --explain` shows why.")]),
    ]


def _whom(found: Admission) -> str:
    """``it``; ``ann or bob first`` if an approval is needed."""
    asked = sorted({name for v in found.verdicts if v.answer is Answer.ASK for name in v.approvers})
    return f"{' or '.join(asked)} first" if found.answer is Answer.ASK and asked else "it"
