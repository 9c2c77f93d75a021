"""The table of all routes, each with the permission that it needs: those of use cases, and those of whole responses."""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, get_args, get_type_hints

from fastapi import Depends, Header, Query, Request
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, create_model

from broker.app.billing.focus import export
from broker.app.documents import json_text
from broker.app.jobs.preview import NoFeasibleCapacity
from broker.app.outside.documents import SlurmAdmission
from broker.app.outside.skypilot_requests import answer_request
from broker.app.outside.slurm_requests import SlurmRequest, admit_submission
from broker.app.use_cases.changes import change
from broker.app.use_cases.money import FocusForm, FocusVersion
from broker.app.use_cases.table import IN_QUERY, USE_CASES, UseCase
from broker.core.access.permissions import Permission
from broker.core.errors import ApprovalNeeded, InvalidInput, NotAllowed
from broker.server.api import contents, streaming
from broker.server.api.callers import By
from broker.server.api.paths import DEVICE_AUTHORIZATION, REVOCATION, TOKEN, VERSION

Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]{8,128}$",
        description="A unique key of the request, such as a UUID. A repetition with the same key has no effect.",
    ),
]


def endpoint_of(row: UseCase) -> Callable[..., Any]:
    """The endpoint of a use case, with its name, its description and the document that it returns."""
    hints = get_type_hints(row.run, include_extras=True)
    declared = [parameter for name, parameter in signature(row.run).parameters.items() if name != "by"]
    groups = {parameter.name: hints[parameter.name] for parameter in declared if is_dataclass(hints[parameter.name])}
    parameters = [_parameter("by", By)]
    if row.action:
        parameters.append(_parameter("key", Key))
    body: list[Parameter] = []
    for parameter in declared:
        kind = hints[parameter.name]
        if f"{{{parameter.name}}}" in row.path:
            parameters.append(_parameter(parameter.name, kind))
        elif parameter.name in groups and row.method == "GET":
            parameters.append(_parameter(parameter.name, Annotated[kind, Depends(_from_query(kind))]))
        elif row.method == "GET" or IN_QUERY in get_args(kind)[1:]:
            parameters.append(_in_query(parameter.name, kind, parameter.default))
        else:
            body += _flat(kind) if parameter.name in groups else [parameter.replace(annotation=kind)]
    if body:
        parameters.append(_parameter("body", _body_model(row.name, body)))

    def respond(**arguments: Any) -> Response:
        by, key, model = arguments.pop("by"), arguments.pop("key", ""), arguments.pop("body", None)
        if model is not None:
            arguments |= {name: getattr(model, name) for name in type(model).model_fields}
            for name, kind in groups.items():
                arguments[name] = kind(**{field.name: arguments.pop(field.name) for field in fields(kind)})
        if not row.action:
            return Response(json_text(row.run(by, **arguments)), media_type="application/json")
        answer = change(by, key, row.run, **arguments)
        headers = {"Idempotency-Replayed": "true"} if answer.replayed else {}
        return Response(answer.body, answer.status, headers, "application/json")

    respond.__name__, respond.__doc__ = row.name, row.run.__doc__
    respond.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # `inspect.signature` reads it
    respond.__annotations__ = {"return": row.document}
    return respond


def _parameter(name: str, kind: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind)


def _in_query(name: str, kind: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[kind, Query()], default=default)


def _flat(kind: Any) -> Iterator[Parameter]:
    """The fields of a dataclass as parameters."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        default = Parameter.empty if field.default is MISSING else field.default
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, annotation=hints[field.name], default=default)


def _from_query(kind: Any) -> Callable[..., Any]:
    def make(**values: Any) -> Any:
        return kind(**values)

    make.__signature__ = Signature(  # type: ignore[attr-defined]  # `inspect.signature` reads it
        [_in_query(parameter.name, parameter.annotation, parameter.default) for parameter in _flat(kind)]
    )
    return make


def _body_model(name: str, parameters: list[Parameter]) -> type[BaseModel]:
    """The model of the body: no other fields than these."""
    model_fields: dict[str, Any] = {
        parameter.name: (parameter.annotation, ... if parameter.default is Parameter.empty else parameter.default)
        for parameter in parameters
    }
    title = "".join(part.capitalize() for part in name.split("_"))
    return create_model(f"{title}Body", __config__=ConfigDict(extra="forbid"), **model_fields)


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
