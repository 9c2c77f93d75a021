"""The documents by name, and the JSON Schema of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.app.results.approvals import ApprovalList, StandingGrantResult
from broker.app.results.budgets import BudgetDetails, BudgetDetailsList, BudgetList
from broker.app.results.capacity import CapacityList, RecordedCapacity
from broker.app.results.errors import ErrorDocument
from broker.app.results.jobs import AttemptList, JobDetails, JobHistory, JobList, JobLogs, PrunedCheckpoints
from broker.app.results.offers import OfferGroupList, OfferList
from broker.app.results.plans import PlanResult, RefusedSubmission
from broker.app.results.policies import AppliedPolicy, CheckedPolicy, PolicyExplanation, PolicyInForce
from broker.app.results.prices import PollReport, PriceStatus
from broker.app.results.queue import QueueResult
from broker.app.results.risk import OfferRiskList
from broker.app.results.spend import SpendReport
from broker.app.results.values import Result
from broker.core.errors import UnknownName
from broker.core.job.file.schema import json_schema

JOB_FILE = "job-file"

# The name of each document: that of the command that prints it with --json.
DOCUMENTS: Mapping[str, type[Result]] = {
    "approvals-list": ApprovalList,
    "budget-list": BudgetList,
    "budget-show": BudgetDetails,  # with a name
    "budget-show-all": BudgetDetailsList,
    "capacity-list": CapacityList,
    "capacity-record": RecordedCapacity,  # of `capacity add` and `capacity remove`
    "error": ErrorDocument,  # of every command that fails
    "jobs-attempts": AttemptList,
    "jobs-list": JobList,
    "jobs-logs": JobLogs,
    "jobs-prune": PrunedCheckpoints,
    "jobs-queue": QueueResult,
    "jobs-show": JobHistory,
    "offers": OfferList,
    "offers-groups": OfferGroupList,  # with --group-by
    "offers-risk": OfferRiskList,  # with --risk
    "plan": PlanResult,
    "policy-apply": AppliedPolicy,
    "policy-check": CheckedPolicy,
    "policy-explain": PolicyExplanation,  # of a job file
    "policy-show": PolicyInForce,
    "prices-poll": PollReport,
    "prices-status": PriceStatus,
    "report-spend": SpendReport,
    "standing-grant": StandingGrantResult,  # of `approvals grant` without a job, and `approvals revoke`
    "submit-refused": RefusedSubmission,
    "submit": JobDetails,  # also of `jobs cancel`, `jobs extend`, `approvals grant` and `approvals refuse`
}
NAMES = (JOB_FILE, *DOCUMENTS)

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of that document, or of job files. Raises `UnknownName`."""
    if name == JOB_FILE:
        return json_schema()
    if name not in DOCUMENTS:
        raise UnknownName("document", name, NAMES)
    model = DOCUMENTS[name]
    return {"$schema": _DIALECT, **model.model_json_schema(mode="serialization", by_alias=True)}
