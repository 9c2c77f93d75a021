"""Jobs that warn-only rules would have stopped or refused, from recorded decisions."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from broker.app.capacity.plan_documents import WarnedRuleResult
from broker.app.wiring import Broker
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import ActionKind, Verdict


def warned_rules(broker: Broker, since: datetime) -> list[WarnedRuleResult]:
    """The rules that have warned since ``since`` (UTC), by name."""
    with broker.store.reading() as reader:
        decisions = reader.decisions(since=since)
    return warned_rules_in(decisions)


def warned_rules_in(decisions: Sequence[Decision]) -> list[WarnedRuleResult]:
    """As `warned_rules`, from decisions in any order. Pure."""
    warnings_by_rule: dict[str, list[tuple[Decision, Verdict]]] = defaultdict(list)
    for source_decision in sorted(decisions, key=lambda decision: decision.at):
        for verdict in source_decision.verdicts:
            if verdict.warns:
                warnings_by_rule[verdict.name].append((source_decision, verdict))
    return [
        WarnedRuleResult(
            name=name,
            kind=rule_warnings[-1][1].rule,
            message=rule_warnings[-1][1].message,
            source=str(rule_warnings[-1][1].source),
            stopped=_jobs(
                source_decision for source_decision, _ in rule_warnings if source_decision.action is ActionKind.CONTINUE
            ),
            refused=_jobs(
                source_decision
                for source_decision, _ in rule_warnings
                if source_decision.action is not ActionKind.CONTINUE
            ),
            first=rule_warnings[0][0].at,
            last=rule_warnings[-1][0].at,
        )
        for name, rule_warnings in sorted(warnings_by_rule.items())
    ]


def _jobs(decisions: Iterable[Decision]) -> list[str]:
    return list(dict.fromkeys(decision.job_id or decision.job_name for decision in decisions))
