"""Rows that a notebook shows as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, TypeVar

from broker.app.jobs.approval_documents import ApprovalRequest
from broker.app.jobs.documents import JobDetails
from broker.app.market.offer_documents import OfferResult
from broker.cli.jobs.job_view import step_text

Row = TypeVar("Row")
Columns = Mapping[str, Callable[[Any], object]]
_MAX_ROWS = 50


class Table(list[Row]):
    """A list that a notebook shows as a table. ``documents``: what the columns are of, one for each entry."""

    def __init__(self, rows: Iterable[Row], documents: Sequence[Any], columns: Columns) -> None:
        super().__init__(rows)
        self._documents, self._columns = documents, columns

    def _repr_html_(self) -> str:
        return html_table(self._documents, self._columns)


def html_table(rows: Sequence[Any], columns: Columns) -> str:
    """A table of at most 50 rows; all text is escaped, because names come from other people and machines."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    cells = ("".join(f"<td>{escape(_text(of(row)))}</td>" for of in columns.values()) for row in rows[:_MAX_ROWS])
    body = "".join(f"<tr>{line}</tr>" for line in cells)
    more = f"<p>… and {len(rows) - _MAX_ROWS:,} more</p>" if len(rows) > _MAX_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _text(value: object) -> str:
    return "" if value is None else str(getattr(value, "value", value)).replace("_", " ")


def _place(job: JobDetails) -> str:
    attempt = job.latest
    return f"{attempt.placement.provider}/{attempt.placement.region}" if attempt else ""


JOB_COLUMNS: Columns = {
    "job": lambda job: job.id,
    "state": lambda job: job.state,
    "why": lambda job: job.because or job.waiting_because,
    "progress": lambda job: step_text(job.step, job.total_steps),
    "cost": lambda job: job.cost_so_far,
    "at": _place,
}
OFFER_COLUMNS: dict[str, Callable[[OfferResult], object]] = {
    "GPU": lambda offer: offer.machine,
    "provider": lambda offer: offer.provider,
    "region": lambda offer: offer.region,
    "purchase type": lambda offer: offer.capacity_type,
    "$/GPU-h": lambda offer: offer.price_per_gpu_hour,
    "$/h": lambda offer: offer.price_per_hour,
    "available": lambda offer: offer.availability,
    "price": lambda offer: offer.price_kind,
}
APPROVAL_COLUMNS: dict[str, Callable[[ApprovalRequest], object]] = {
    "job": lambda request: request.job,
    "requester": lambda request: request.asked_by,
    "amount": lambda request: request.total,
    "state": lambda request: request.state,
    "approvers": lambda request: request.decisions,
    "reason": lambda request: "; ".join(question.because for question in request.questions),
}
