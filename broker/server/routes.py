"""The table of all routes, each with the permission that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal, get_type_hints

from fastapi import Query, Request
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from broker.app.access.audit import audit_log
from broker.app.access.idempotency import ChangeAnswer, run_once
from broker.app.access.people import people
from broker.app.access.tokens import tokens
from broker.app.billing.focus import export
from broker.app.billing.showback import make_statement, sharing_rules
from broker.app.jobs.preview import NoFeasibleCapacity
from broker.app.outside import launches
from broker.app.outside.overdue import overdue_launches, report_end
from broker.app.outside.skypilot_requests import answer_request
from broker.app.outside.slurm_requests import SlurmRequest, admit_submission, begin_task
from broker.app.results.access import AuditLog, PeopleList, TokenList
from broker.app.results.approvals import StandingGrantResult
from broker.app.results.capacity import RecordedCapacity
from broker.app.results.jobs import JobDetails
from broker.app.results.outside import OutsideEnd, OutsideLaunchList, SlurmAdmission
from broker.app.results.policies import (
    AppliedPolicy,
)
from broker.app.results.purchases import (
    PurchaseResult,
)
from broker.app.results.reports import ChargebackStatement, FocusExportResult
from broker.core.access.permissions import Permission
from broker.core.errors import ApprovalNeeded, InvalidInput, NotAllowed
from broker.server import (
    changes,
    contents,
    routes_jobs,
    routes_money,
    routes_policies,
    routes_purchases,
    routes_submission,
    streaming,
)
from broker.server.callers import By
from broker.server.changes import Key, request_of
from broker.server.paths import DEVICE_AUTHORIZATION, REVOCATION, TOKEN, VERSION

MEDIA = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}
_PIECE = 1 << 16  # bytes

FocusVersion = Annotated[str, Query(max_length=10, description="1.2 or 1.4.")]
FocusForm = Annotated[Literal["csv", "parquet"], Query(description="The form of the file.")]


class FreezeBody(BaseModel):
    """How idle and shared cost are divided, as `report showback` says."""

    model_config = ConfigDict(extra="forbid")

    idle: str = Field(default="separate", max_length=40)
    shared: str = Field(default="separate", max_length=40)
    shared_team: list[str] = Field(default=[], max_length=100)
    fixed: str | None = Field(default=None, max_length=500)


def focus_export(by: By, month: str, version: FocusVersion = "1.2", form: FocusForm = "csv") -> FocusExportResult:
    """The content of the FOCUS file of a month: rows, corrections, sums, and whether the month is closed."""
    with TemporaryDirectory(prefix="gpubroker-focus-") as folder:
        return _write_focus(by, month, version, form, Path(folder))


def focus_file(by: By, month: str, version: FocusVersion = "1.2", form: FocusForm = "csv") -> Response:
    """The charges of a month as FOCUS (the FinOps Open Cost and Usage Specification)."""
    folder = TemporaryDirectory(prefix="gpubroker-focus-")
    try:
        file = Path(_write_focus(by, month, version, form, Path(folder.name)).file)
    except BaseException:
        folder.cleanup()
        raise
    headers = {"Content-Length": str(file.stat().st_size), "Content-Disposition": f"attachment; filename={file.name}"}
    return StreamingResponse(_pieces(file, folder), 200, headers, MEDIA[form])


def freeze_statement(by: By, month: str, key: Key, body: FreezeBody) -> ChangeAnswer:
    """Make the statement of a closed month, for good."""
    rules = sharing_rules(body.idle, body.shared, body.shared_team, body.fixed)
    request_text = f"statements.freeze {month} {body.model_dump_json()}"
    request = request_of(by, key, ("statements.freeze", month[:20]), request_text)

    def response(statement: ChargebackStatement) -> ChangeAnswer:
        return ChangeAnswer.of(statement, f"{statement.charged} charged", 201)

    return run_once(by.broker, request, lambda: make_statement(by.broker, month, rules, by=by.actor), response)


def _write_focus(by: By, month: str, version: str, form: str, folder: Path) -> FocusExportResult:
    return export(by.broker, version, month, folder / f"focus.{form}")


def _pieces(file: Path, folder: TemporaryDirectory[str]) -> Iterator[bytes]:
    with folder, file.open("rb") as content:
        while piece := content.read(_PIECE):
            yield piece


Name = Annotated[str | None, Query(max_length=200)]


def list_people(by: By) -> PeopleList:
    """People and service accounts with their roles."""
    return PeopleList.of(people(by.broker))


def list_tokens(by: By, person: Name = None) -> TokenList:
    """API tokens without their texts."""
    return TokenList.of(tokens(by.broker, person), by.broker.clock.now())


def audit_lines(
    by: By, person: Name = None, subject: Name = None, limit: Annotated[int, Query(ge=1, le=1_000)] = 50
) -> AuditLog:
    """The newest lines of the audit log: who changed what, from where, before and after."""
    return AuditLog.of(audit_log(by.broker, by=by.actor, limit=limit, person=person, subject=subject))


_VETOES = (NotAllowed, ApprovalNeeded, InvalidInput, NoFeasibleCapacity)


class OutsideEndBody(BaseModel):
    """``ran_seconds``: how long the machines were there; null: since the launch was admitted."""

    model_config = ConfigDict(extra="forbid")

    ran_seconds: float | None = Field(default=None, ge=0, le=366 * 86_400)


async def judge_skypilot(by: By, request: Request) -> Response:
    """SkyPilot's `admin_policy`: the task pinned to the offer that was judged, its money held. Status 400: a veto, in
    plain text, which SkyPilot shows to its user. Asked again about the same launch, nothing is held twice."""
    from starlette.concurrency import run_in_threadpool

    body = (await request.body()).decode("utf-8", "replace")
    try:
        text = await run_in_threadpool(answer_request, by.broker, body, by=by.actor)
    except _VETOES as error:
        return PlainTextResponse(f"{error}" + (f"\n{error.hint}" if error.hint else ""), 400)
    return Response(text, 200, media_type="application/json")


def judge_slurm(by: By, body: SlurmRequest) -> SlurmAdmission:
    """A submission to Slurm: its money is held; by the id that is returned its end is reported. Status 403: a veto."""
    return SlurmAdmission(id=admit_submission(by.broker, body, by=by.actor))


def start_task(by: By, task: str) -> SlurmAdmission:
    """A task of an array of Slurm begins: its money is held until its end is reported. ``task``: the array's id, a dot
    and the task's number. Status 403: it has to wait. Asked again while it runs, nothing is held twice."""
    return SlurmAdmission(id=begin_task(by.broker, task, by=by.actor).id)


def list_launches(by: By) -> OutsideLaunchList:
    """Launches made with other tools, of the teams that the caller may see, oldest first; and those whose end nobody
    reported."""
    with by.broker.store.reading() as snapshot:
        open_launches = launches.open_launches(snapshot)
    visible = [launch for launch in open_launches if by.access.may(Permission.SEE_JOBS, launch.tags.team)]
    late_launches = [
        launch for launch in overdue_launches(by.broker) if by.access.may(Permission.SEE_JOBS, launch.team)
    ]
    return OutsideLaunchList.of(visible, late_launches)


def end_launch(by: By, launch: str, body: OutsideEndBody) -> OutsideEnd:
    """Report that the machines of a launch are gone: what they cost is spent, the rest released. Again: no effect."""
    id = launch if launch.startswith(launches.PREFIX) else launches.PREFIX + launch
    run_time = None if body.ran_seconds is None else timedelta(seconds=body.ran_seconds)
    return OutsideEnd(id=id, cost_usd=report_end(by.broker, id, run_time, by=by.actor))


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One route. ``permission``: required in some team before the endpoint checks the team concerned; None: any valid
    token. ``answers``: the document of a response that ``endpoint`` does not return itself; ``media``: the media types
    of a response without a document."""

    method: str
    path: str
    permission: Permission | None
    endpoint: Callable[..., Any]
    answers: type[Any] | None = None
    media: tuple[str, ...] = ()

    @property
    def full_path(self) -> str:
        return VERSION + self.path

    @property
    def document(self) -> type[Any] | None:
        """The document of a successful response: what the endpoint returns, unless that is a whole response."""
        if self.answers is not None:
            return self.answers
        return_type: type[Any] = get_type_hints(self.endpoint)["return"]
        return None if issubclass(return_type, Response) else return_type


_BYTES, _FILE_MEDIA = ("application/octet-stream",), tuple(MEDIA.values())
ROUTES = (
    ApiRoute("GET", "/me", None, routes_jobs.me),
    ApiRoute("GET", "/jobs", Permission.SEE_JOBS, routes_jobs.list_jobs),
    ApiRoute("GET", "/jobs/{id}", Permission.SEE_JOBS, routes_jobs.show_job),
    ApiRoute("GET", "/jobs/{id}/attempts", Permission.SEE_JOBS, routes_jobs.job_attempts),
    ApiRoute("GET", "/jobs/{id}/ledger", Permission.SEE_JOBS, routes_jobs.job_ledger),
    ApiRoute("GET", "/jobs/{id}/placements", Permission.SEE_JOBS, routes_jobs.job_placements),
    ApiRoute("GET", "/jobs/{id}/logs", Permission.SEE_OUTPUT, routes_jobs.job_logs),
    ApiRoute("GET", "/offers", Permission.SEE_MARKET, routes_jobs.list_offers),
    ApiRoute("GET", "/offers/groups", Permission.SEE_MARKET, routes_jobs.group_offers),
    ApiRoute("GET", "/offers/risks", Permission.SEE_MARKET, routes_jobs.offer_risks),
    ApiRoute("GET", "/budgets", Permission.SEE_BUDGETS, routes_money.list_budgets),
    ApiRoute("GET", "/budgets/{budget}", Permission.SEE_BUDGETS, routes_money.show_budget),
    ApiRoute("GET", "/approvals", Permission.SEE_JOBS, routes_jobs.list_approvals),
    ApiRoute("GET", "/queue", Permission.SEE_JOBS, routes_jobs.show_queue),
    ApiRoute("GET", "/jobs/{id}/stream", Permission.SEE_JOBS, streaming.stream_job, media=("text/event-stream",)),
    ApiRoute("GET", "/jobs/{id}/files", Permission.SEE_OUTPUT, contents.list_files),
    ApiRoute("GET", "/jobs/{id}/files/{sha256}", Permission.SEE_OUTPUT, contents.file_content, media=_BYTES),
    ApiRoute("GET", "/jobs/{id}/checkpoints", Permission.SEE_OUTPUT, contents.list_checkpoints),
    ApiRoute("GET", "/jobs/{id}/checkpoints/{checkpoint}", Permission.SEE_OUTPUT, contents.checkpoint_files),
    ApiRoute(
        "GET",
        "/jobs/{id}/checkpoints/{checkpoint}/{sha256}",
        Permission.SEE_OUTPUT,
        contents.checkpoint_content,
        media=_BYTES,
    ),
    ApiRoute("GET", "/reports/spend", Permission.SEE_BUDGETS, routes_money.spend),
    ApiRoute("GET", "/reports/units", Permission.SEE_BUDGETS, routes_money.units),
    ApiRoute("GET", "/reports/forecasts", Permission.SEE_BUDGETS, routes_money.forecasts),
    ApiRoute("GET", "/reports/anomalies", Permission.SEE_BUDGETS, routes_money.anomalies),
    ApiRoute("GET", "/reports/showback", Permission.SEE_ALL_TEAMS, routes_money.showback),
    ApiRoute("GET", "/reports/chargeback", Permission.SEE_ALL_TEAMS, routes_money.statements),
    ApiRoute("GET", "/reports/chargeback/{month}", Permission.SEE_ALL_TEAMS, routes_money.statement),
    ApiRoute("GET", "/reports/review", Permission.SEE_ALL_TEAMS, routes_money.month_review),
    ApiRoute("GET", "/reports/billed", Permission.SEE_ALL_TEAMS, routes_money.billed),
    ApiRoute("GET", "/reports/focus/{month}", Permission.SEE_ALL_TEAMS, focus_export),
    ApiRoute("GET", "/reports/focus/{month}/file", Permission.SEE_ALL_TEAMS, focus_file, media=_FILE_MEDIA),
    ApiRoute(
        "POST", "/reports/chargeback/{month}", Permission.FREEZE_STATEMENTS, freeze_statement, ChargebackStatement
    ),
    ApiRoute("GET", "/capacity", Permission.SEE_ALL_TEAMS, routes_money.list_capacity),
    ApiRoute("GET", "/capacity/use", Permission.SEE_ALL_TEAMS, routes_money.capacity_use),
    ApiRoute("GET", "/purchases", Permission.SEE_BUDGETS, routes_money.list_purchases),
    ApiRoute("GET", "/purchases/{purchase}", Permission.SEE_BUDGETS, routes_money.show_purchase),
    ApiRoute("GET", "/prices/history", Permission.SEE_MARKET, routes_money.price_history),
    ApiRoute("GET", "/prices/status", Permission.SEE_MARKET, routes_money.price_status),
    ApiRoute("GET", "/policies", Permission.SEE_POLICIES, routes_policies.policy_in_force),
    ApiRoute("GET", "/policies/versions", Permission.SEE_ALL_TEAMS, routes_policies.policy_versions),
    ApiRoute("GET", "/policies/findings", Permission.SEE_ALL_TEAMS, routes_policies.policy_findings),
    ApiRoute("POST", "/policies/check", Permission.CHANGE_POLICIES, routes_policies.check_policy),
    ApiRoute("POST", "/policies/explain", Permission.SUBMIT, routes_policies.explain_policy),
    ApiRoute("GET", "/jobs/{id}/decisions", Permission.SEE_JOBS, routes_policies.job_decisions),
    ApiRoute("GET", "/jobs/{id}/job-file", Permission.SEE_OUTPUT, routes_submission.job_file),
    ApiRoute("POST", "/jobs/{id}/resume", Permission.CHANGE_OWN_JOBS, routes_submission.resume_job, JobDetails),
    ApiRoute("GET", "/people", Permission.SEE_PEOPLE, list_people),
    ApiRoute("GET", "/tokens", Permission.SEE_PEOPLE, list_tokens),
    ApiRoute("GET", "/audit", Permission.SEE_PEOPLE, audit_lines),
    ApiRoute("GET", "/submission", Permission.SUBMIT, routes_submission.submission_terms),
    ApiRoute("POST", "/plans", Permission.SUBMIT, routes_submission.plan_job),
    ApiRoute("POST", "/jobs", Permission.SUBMIT, routes_submission.submit_job, JobDetails),
    ApiRoute("HEAD", "/contents/{kind}/{sha256}", Permission.SUBMIT, contents.has_content),
    ApiRoute("PUT", "/contents/{kind}/{sha256}", Permission.SUBMIT, contents.keep_content),
    ApiRoute("POST", "/jobs/{id}/cancel", Permission.CHANGE_OWN_JOBS, changes.cancel_job, JobDetails),
    ApiRoute("POST", "/jobs/{id}/retry", Permission.CHANGE_OWN_JOBS, routes_submission.retry_job, JobDetails),
    ApiRoute("POST", "/jobs/{id}/extend", Permission.CHANGE_OWN_JOBS, changes.extend_job, JobDetails),
    ApiRoute("POST", "/policies/preview", Permission.CHANGE_POLICIES, routes_policies.preview_policy),
    ApiRoute("POST", "/policies/rollback/preview", Permission.CHANGE_POLICIES, routes_policies.preview_rollback),
    ApiRoute("POST", "/policies", Permission.CHANGE_POLICIES, routes_policies.apply_policy, AppliedPolicy),
    ApiRoute("POST", "/policies/rollback", Permission.CHANGE_POLICIES, routes_policies.rollback_policy, AppliedPolicy),
    ApiRoute("GET", "/purchases/{purchase}/undo", Permission.SEE_BUDGETS, routes_purchases.show_undo_terms),
    ApiRoute("POST", "/capacity", Permission.BUY, routes_purchases.record_capacity, RecordedCapacity),
    ApiRoute("POST", "/capacity/quotes", Permission.BUY, routes_purchases.ask_quotes),
    ApiRoute("POST", "/purchases", Permission.BUY, routes_purchases.buy_quote, PurchaseResult),
    ApiRoute("POST", "/purchases/preview", Permission.BUY, routes_purchases.preview_purchase),
    ApiRoute(
        "POST", "/purchases/{purchase}/withdraw", Permission.BUY, routes_purchases.withdraw_purchase, PurchaseResult
    ),
    ApiRoute("POST", "/purchases/{purchase}/cancel", Permission.BUY, routes_purchases.cancel_purchase, PurchaseResult),
    ApiRoute(
        "POST", "/purchases/{purchase}/approve", Permission.APPROVE, routes_purchases.approve_purchase, PurchaseResult
    ),
    ApiRoute(
        "POST", "/purchases/{purchase}/reject", Permission.APPROVE, routes_purchases.reject_purchase, PurchaseResult
    ),
    ApiRoute("GET", "/launches", Permission.SEE_JOBS, list_launches),
    ApiRoute("POST", "/launches/{task}/start", Permission.JUDGE_LAUNCHES, start_task),
    ApiRoute("POST", "/launches/{launch}/end", Permission.JUDGE_LAUNCHES, end_launch),
    ApiRoute("POST", "/admission/skypilot", Permission.JUDGE_LAUNCHES, judge_skypilot),
    ApiRoute("POST", "/admission/slurm", Permission.JUDGE_LAUNCHES, judge_slurm),
    ApiRoute(
        "POST", "/approvals/standing/{number}/revoke", Permission.APPROVE, changes.revoke_grant, StandingGrantResult
    ),
    ApiRoute("POST", "/approvals/{id}/grant", Permission.APPROVE, changes.grant_approval, JobDetails),
    ApiRoute("POST", "/approvals/{id}/refuse", Permission.APPROVE, changes.refuse_approval, JobDetails),
)
UPLOADS = "/contents/"
"""Routes below this path read bodies of any size piece by piece, and limit their size themselves."""
OPENAPI = f"{VERSION}/openapi.json"
PUBLIC = frozenset(
    {
        ("GET", OPENAPI),
        ("GET", "/healthz"),
        ("GET", "/metrics"),
        ("POST", DEVICE_AUTHORIZATION),
        ("POST", TOKEN),
        ("POST", REVOCATION),
    }
)
"""Routes that need no person's token: the description of the API, those with the service's own token, and those by
which a program gets or revokes a token."""
