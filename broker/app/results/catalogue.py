"""The documents by name, and the JSON Schema of each."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pydantic import TypeAdapter

from broker.core.errors import UnknownName
from broker.core.job.file.schema import json_schema

JOB_FILE, POLICY_FILE = "job-file", "policy-file"

# By name, which is that of the command that prints it with --json: module (of `broker.app.results` if it names no
# package) and class.
DOCUMENTS: Mapping[str, str] = {
    "advise-assumptions": "broker.app.advise.assumptions:AssumptionList",
    "advise-buy-or-rent": "broker.app.advise.buy_or_rent:BuyOrRentAdvice",
    "advise-cost-cluster": "broker.app.advise.cost:ClusterCostAdvice",
    "advise-cost-embedding": "broker.app.advise.cost:EmbeddingAdvice",
    "advise-cost-images": "broker.app.advise.cost:ImagesAdvice",
    "advise-cost-run": "broker.app.advise.cost:RunCostAdvice",
    "advise-cost-unit": "broker.app.advise.cost:UnitCostAdvice",
    "advise-deploy": "broker.app.advise.deploy.situation:DeployAdvice",
    "advise-hardware": "broker.app.advise.hardware:HardwareAdvice",
    "advise-rules": "broker.app.advise.savings:RulesAdvice",
    "advise-savings": "broker.app.advise.savings:SavingsAdvice",
    "advise-serve": "broker.app.advise.serve:ServeAdvice",
    "advise-size": "broker.app.advise.size:SizeAdvice",
    "advise-speed": "broker.app.advise.speed:SpeedAdvice",
    "approvals-list": "approvals:ApprovalList",
    "audit": "access:AuditLog",
    "autostart": "broker.app.service.autostart:AutostartState",
    "budget-list": "budgets:BudgetList",
    "budget-show": "budgets:BudgetDetails",  # with a name
    "budget-show-all": "budgets:BudgetDetailsList",
    "capacity-buy-preview": "purchases:PurchasePreviewResult",  # of `capacity buy --dry-run`
    "capacity-check": "broker.app.capacity.check:CapacityCheck",
    "capacity-checklist": "capacity:PurchaseChecklistResult",
    "capacity-list": "capacity:CapacityList",
    "capacity-plan": "capacity_plan:CapacityPlanList",
    "capacity-proposal": "proposal:ProposalResult",
    "capacity-proof": "capacity:HoldingProofResult",
    "capacity-purchase": "purchases:PurchaseResult",  # of `capacity buy`, `approve`, `cancel`, …
    "capacity-purchases": "purchases:PurchaseList",
    "capacity-quote": "purchases:QuoteList",
    "capacity-record": "capacity:RecordedCapacity",  # of `capacity add` and `capacity remove`
    "capacity-review": "broker.procurement.review:PurchaseReview",
    "capacity-show": "purchases:PurchaseHistory",
    "capacity-undo": "purchases:UndoTermsResult",  # of `capacity undo --dry-run`
    "charges": "charges:ChargesResult",  # of `report charges fetch` and `report charges import`
    "demo": "service:DemoReport",
    "doctor": "service:DoctorReport",
    "doctor-sweep": "service:SweepReport",  # with --sweep
    "error": "errors:ErrorDocument",  # of every command that fails
    "init": "jobs:WrittenJobFile",
    "jobs-attempts": "jobs:AttemptList",
    "jobs-diff": "kept_files:JobDifference",
    "jobs-files": "kept_files:JobOutputs",
    "jobs-files-checkpoints": "kept_files:JobCheckpoints",  # with --checkpoints
    "jobs-files-submitted": "kept_files:JobSources",  # with --submitted
    "jobs-get": "kept_files:FetchedFilesResult",
    "jobs-list": "jobs:JobList",
    "jobs-logs": "jobs:JobLogs",
    "jobs-prune": "broker.app.jobs.pruning:PrunedCheckpoints",
    "jobs-queue": "queue:QueueResult",
    "jobs-show": "job_history:JobHistory",
    "launches-end": "outside:OutsideEnd",
    "launches-list": "outside:OutsideLaunchList",
    "logout": "access:LoggedOut",
    "notices-list": "notices:NoticeList",
    "notices-retry": "notices:RetriedNotices",
    "offers": "offers:OfferList",
    "offers-groups": "offers:OfferGroupList",  # with --by
    "offers-risk": "offers:OfferRiskList",  # with --risk
    "people-list": "access:PeopleList",
    "person": "access:PersonResult",  # of the other commands of `people`
    "plan": "plans:PlanResult",
    "plan-together": "queue:PlannedTogether",  # of several job files
    "policy-apply": "policies:AppliedPolicy",  # also of `policy rollback`
    "policy-apply-preview": "trials:PolicyPreviewResult",  # with --dry-run
    "policy-check": "policies:CheckedPolicy",
    "policy-decisions": "trials:RecordedDecisions",  # of `policy explain` with a submitted job
    "policy-explain": "policies:PolicyExplanation",  # of a job file
    "policy-findings": "capacity_plan:CapacityFindingList",
    "policy-show": "policies:PolicyInForce",
    "policy-test": "trials:PolicyTestResult",
    "policy-versions": "policies:PolicyVersionList",
    "prices-accept": "prices:AcceptedPrices",
    "prices-history": "price_history:PriceHistoryList",
    "prices-import": "price_history:ImportedPrices",
    "prices-poll": "prices:PollReport",
    "prices-prune": "price_history:PrunedPriceHistory",
    "prices-status": "prices:PriceStatus",
    "reconcile": "service:ReconcileReport",
    "report-anomalies": "reports:IncidentList",
    "report-billed": "charges:BilledReport",
    "report-chargeback": "reports:ChargebackStatement",  # with a month
    "report-chargeback-list": "reports:ChargebackList",
    "report-focus": "reports:FocusExportResult",
    "report-forecasts": "reports:ForecastsReport",
    "report-review": "reports:ReviewReport",
    "report-showback": "reports:ShowbackReport",
    "report-spend": "reports:SpendReport",
    "report-units": "broker.finops.units:UnitMetrics",
    "serve": "service:ServiceReport",  # once it is stopped
    "setup": "service:SetupReport",
    "standing-grant": "approvals:StandingGrantResult",  # of `approvals grant` without a job, and `approvals revoke`
    "store-backup": "broker.store.engine.copies:StoreCopy",
    "store-restore": "service:RestoredStoreResult",
    "submit": "jobs:JobDetails",  # also of `jobs cancel`, `jobs extend`, `approvals grant` and `approvals refuse`
    "submit-refused": "plans:RefusedSubmission",
    "token": "access:TokenResult",  # of `tokens revoke`
    "people-invite": "access:CreatedLink",
    "tokens-create": "access:CreatedToken",
    "tokens-list": "access:TokenList",
    "whoami": "access:CallerIdentity",  # also of `login`
    "whoami-local": "access:LocalIdentity",  # without a team server
    "watch-add": "watches:AddedWatch",
    "watch-check": "watches:WatchCheckResult",
    "watch-list": "watches:WatchList",
    "watch-remove": "watches:RemovedWatch",
    "watch-test": "watches:AlertTest",
}
NAMES = (JOB_FILE, POLICY_FILE, *DOCUMENTS)

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of that document, or of job files. Raises `UnknownName`."""
    if name == JOB_FILE:
        return json_schema()
    return {"$schema": _DIALECT, **TypeAdapter(document_class(name)).json_schema(mode="serialization", by_alias=True)}


def document_class(name: str) -> type[Any]:
    """The class of that document. Raises `UnknownName`, also for that of job files."""
    if name not in DOCUMENTS:
        raise UnknownName("document", name, NAMES)
    module, _, class_name = DOCUMENTS[name].partition(":")
    module_name = module if "." in module else f"broker.app.results.{module}"
    document_type: type[Any] = getattr(import_module(module_name), class_name)
    return document_type
