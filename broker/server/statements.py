"""The routes of closed months: FOCUS exports, and statements, which are frozen permanently."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from fastapi import Query
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from broker.app.access.once import ChangeAnswer, once
from broker.app.billing.focus import export
from broker.app.billing.showback import freeze, sharing_rules
from broker.app.results.focus import FocusExportResult
from broker.app.results.showback import ChargebackStatement
from broker.server.changes import request_of
from broker.server.changing import Key, told
from broker.server.looking import By, answer

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


def focus_export(by: By, month: str, version: FocusVersion = "1.2", form: FocusForm = "csv") -> Response:
    """The content of the FOCUS file of a month: rows, corrections, sums, and whether the month is closed."""
    with TemporaryDirectory(prefix="gpubroker-focus-") as folder:
        return answer(_written(by, month, version, form, Path(folder)))


def focus_file(by: By, month: str, version: FocusVersion = "1.2", form: FocusForm = "csv") -> Response:
    """The charges of a month as FOCUS (the FinOps Open Cost and Usage Specification)."""
    folder = TemporaryDirectory(prefix="gpubroker-focus-")
    try:
        file = Path(_written(by, month, version, form, Path(folder.name)).file)
    except BaseException:
        folder.cleanup()
        raise
    headers = {"Content-Length": str(file.stat().st_size), "Content-Disposition": f"attachment; filename={file.name}"}
    return StreamingResponse(_pieces(file, folder), 200, headers, MEDIA[form])


def freeze_statement(by: By, month: str, key: Key, body: FreezeBody) -> Response:
    """Make the statement of a closed month, for good."""
    rules = sharing_rules(body.idle, body.shared, body.shared_team, body.fixed)
    said = f"statements.freeze {month} {body.model_dump_json()}"
    asked = request_of(by, key, ("statements.freeze", month[:20]), said)

    def told_of(found: ChargebackStatement) -> ChangeAnswer:
        return ChangeAnswer.of(found, f"{found.charged} charged", 201)

    return told(once(by.broker, asked, lambda: freeze(by.broker, month, rules, by=by.actor), told_of))


def _written(by: By, month: str, version: str, form: str, folder: Path) -> FocusExportResult:
    return export(by.broker, version, month, folder / f"focus.{form}")


def _pieces(file: Path, folder: TemporaryDirectory[str]) -> Iterator[bytes]:
    with folder, file.open("rb") as content:
        while piece := content.read(_PIECE):
            yield piece
