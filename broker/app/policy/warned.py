"""Jobs that warn-only rules would have stopped or refused, from recorded decisions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from broker.app.wiring import Broker
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import ActionKind, Verdict


@dataclass(frozen=True, slots=True)
class WarnedRule:
    """One rule that only warns. ``stopped``: running jobs that it would have stopped; ``refused``: jobs that it would
    have refused a start or money; by id, or by name if the job was not submitted. ``first`` and ``last``: of its
    warnings (UTC). ``newest``: its newest verdict."""

    name: str
    newest: Verdict
    stopped: tuple[str, ...]
    refused: tuple[str, ...]
    first: datetime
    last: datetime


def warned(broker: Broker, since: datetime) -> list[WarnedRule]:
    """The rules that have warned since ``since`` (UTC), by name."""
    with broker.store.reading() as look:
        decisions = look.decisions(since=since)
    return of_decisions(decisions)


def of_decisions(decisions: Sequence[Decision]) -> list[WarnedRule]:
    """As `warned`, from decisions in any order. Pure."""
    found: dict[str, list[tuple[Decision, Verdict]]] = defaultdict(list)
    for one in sorted(decisions, key=lambda decision: decision.at):
        for verdict in one.verdicts:
            if verdict.warns:
                found[verdict.name].append((one, verdict))
    return [
        WarnedRule(
            name=name,
            newest=said[-1][1],
            stopped=_jobs(one for one, _ in said if one.action is ActionKind.CONTINUE),
            refused=_jobs(one for one, _ in said if one.action is not ActionKind.CONTINUE),
            first=said[0][0].at,
            last=said[-1][0].at,
        )
        for name, said in sorted(found.items())
    ]


def _jobs(decisions: Iterable[Decision]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.job_id or one.job_name for one in decisions))
