"""The table of all routes, each with the permission that it needs: those of use cases, and those of whole responses."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_type_hints

from fastapi import Request
from fastapi.responses import PlainTextResponse, Response, StreamingResponse

from broker.app.billing.focus import export
from broker.app.jobs.preview import NoFeasibleCapacity
from broker.app.outside.documents import SlurmAdmission
from broker.app.outside.skypilot_requests import answer_request
from broker.app.outside.slurm_requests import SlurmRequest, admit_submission
from broker.app.use_cases.money import FocusForm, FocusVersion
from broker.app.use_cases.table import USE_CASES
from broker.core.access.permissions import Permission
from broker.core.errors import ApprovalNeeded, InvalidInput, NotAllowed
from broker.server.api import contents, streaming
from broker.server.api.callers import By
from broker.server.api.paths import DEVICE_AUTHORIZATION, REVOCATION, TOKEN, VERSION
from broker.server.api.use_case_routes import endpoint_of

MEDIA = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}
_PIECE = 1 << 16  # bytes
_VETOES = (NotAllowed, ApprovalNeeded, InvalidInput, NoFeasibleCapacity)


def focus_file(by: By, month: str, version: FocusVersion = "1.2", form: FocusForm = "csv") -> Response:
    """The charges of a month as FOCUS (the FinOps Open Cost and Usage Specification)."""
    folder = TemporaryDirectory(prefix="gpubroker-focus-")
    try:
        file = Path(export(by.broker, version, month, Path(folder.name) / f"focus.{form}").file)
    except BaseException:
        folder.cleanup()
        raise
    headers = {"Content-Length": str(file.stat().st_size), "Content-Disposition": f"attachment; filename={file.name}"}
    return StreamingResponse(_pieces(file, folder), 200, headers, MEDIA[form])


def _pieces(file: Path, folder: TemporaryDirectory[str]) -> Iterator[bytes]:
    with folder, file.open("rb") as content:
        while piece := content.read(_PIECE):
            yield piece


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


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One route. ``permission``: required in some team before the endpoint checks the team concerned; None: any valid
    token. ``media``: the media types of a response without a document."""

    method: str
    path: str
    permission: Permission | None
    endpoint: Callable[..., Any]
    media: tuple[str, ...] = ()

    @property
    def full_path(self) -> str:
        return VERSION + self.path

    @property
    def document(self) -> type[Any] | None:
        """The document of a successful response: what the endpoint returns, unless that is a whole response."""
        return_type: type[Any] = get_type_hints(self.endpoint)["return"]
        return None if issubclass(return_type, Response) else return_type


_BYTES, _FILE_MEDIA = ("application/octet-stream",), tuple(MEDIA.values())
ROUTES = (
    *(ApiRoute(row.method, row.path, row.permission, endpoint_of(row)) for row in USE_CASES),
    ApiRoute("GET", "/jobs/{id}/stream", Permission.SEE_JOBS, streaming.stream_job, ("text/event-stream",)),
    ApiRoute("GET", "/jobs/{id}/files/{sha256}", Permission.SEE_OUTPUT, contents.file_content, _BYTES),
    ApiRoute(
        "GET",
        "/jobs/{id}/checkpoints/{checkpoint}/{sha256}",
        Permission.SEE_OUTPUT,
        contents.checkpoint_content,
        _BYTES,
    ),
    ApiRoute("GET", "/reports/focus/{month}/file", Permission.SEE_ALL_TEAMS, focus_file, _FILE_MEDIA),
    ApiRoute("HEAD", "/contents/{kind}/{sha256}", Permission.SUBMIT, contents.has_content),
    ApiRoute("PUT", "/contents/{kind}/{sha256}", Permission.SUBMIT, contents.keep_content),
    ApiRoute("POST", "/admission/skypilot", Permission.JUDGE_LAUNCHES, judge_skypilot),
    ApiRoute("POST", "/admission/slurm", Permission.JUDGE_LAUNCHES, judge_slurm),
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
