"""The routes that try out policies without changing anything: check files, explain a verdict, judge past decisions
again."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from fastapi.responses import Response
from pydantic import AwareDatetime, Field

from broker.app.jobs.received import received
from broker.app.policy import answers
from broker.app.results.trials import RecordedDecisions
from broker.core.access.permissions import Permission
from broker.core.documents import MAX_BYTES
from broker.server import shown_money
from broker.server.looking import By, answer
from broker.server.policy_changes import check_names
from broker.server.policy_routes import PolicyBody
from broker.server.submitting import PlanBody, permitted

_LONGEST_REPLAY = 60.0  # the most seconds (wall clock) for placing past submissions again


class ExplainBody(PlanBody):
    """``files``: judge by these instead of the active policy, which needs the right to change policies."""

    files: dict[str, Annotated[str, Field(max_length=MAX_BYTES)]] | None = None


class BacktestBody(PolicyBody):
    """The decisions from ``since`` to ``until`` (exclusive; null: now) are judged again."""

    since: AwareDatetime
    until: AwareDatetime | None = None


def check_policy(by: By, body: PolicyBody) -> Response:
    """Whether the files are valid, with likely mistakes. Changes nothing."""
    check_names(body.files)
    return answer(answers.check(by.broker, body.files))


def explain_policy(by: By, body: ExplainBody) -> Response:
    """Every rule's verdict on a job; for those who see all teams, also the facts that the rules see."""
    job = permitted(by, received(by.broker, body.job_file))
    if body.files is not None:
        by.require(Permission.CHANGE_POLICIES, None)
        check_names(body.files)
    found = answers.explain(by.broker, job, body.files, by=by.actor)
    return answer(found if _sees_all(by) else found.model_copy(update={"facts": None, "inputs": {}}))


def job_decisions(by: By, id: str) -> Response:
    """The recorded decisions about a job, oldest first; for those who see all teams, with what the rules saw."""
    found = answers.decisions_about(by.broker, by.job(id).id)
    if not _sees_all(by):
        found = RecordedDecisions(decisions=[one.model_copy(update={"seen": {}}) for one in found.decisions])
    return answer(found)


def backtest_policy(by: By, body: BacktestBody) -> Response:
    """Recorded decisions judged by these files: which would be others, and the difference in cost. Changes nothing."""
    check_names(body.files)
    until = body.until or by.broker.clock.now()
    return answer(answers.judged_again(by.broker, body.files, body.since, until, _LONGEST_REPLAY))


def policy_findings(
    by: By,
    since: Annotated[AwareDatetime | None, Query(description="Start of the period; default: 90 days ago.")] = None,
) -> Response:
    """Recorded use against owned, reserved and rented capacity, and what rules that only warn would have stopped."""
    return answer(shown_money.capacity_use(by, since))


def _sees_all(by: By) -> bool:
    return by.access.teams(Permission.SEE_ALL_TEAMS) is None
