"""The documents by name, and the JSON Schema of each."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pydantic import TypeAdapter

from broker.app.use_cases.table import USE_CASES
from broker.core.errors import UnknownName
from broker.core.job.file.schema import json_schema

JOB_FILE, POLICY_FILE = "job-file", "policy-file"

# The other documents, by the name of the command that prints it with --json: module (of `broker.app` unless it names
# another package) and class.
_OTHERS: Mapping[str, str] = {
    "advise-assumptions": "assumptions:AssumptionList",
    "advise-buy-or-rent": "advise.buy_or_rent:BuyOrRentAdvice",
    "advise-cost-cluster": "advise.cost:ClusterCostAdvice",
    "advise-cost-embedding": "advise.cost:EmbeddingAdvice",
    "advise-cost-images": "advise.cost:ImagesAdvice",
    "advise-cost-run": "advise.cost:RunCostAdvice",
    "advise-cost-unit": "advise.cost:UnitCostAdvice",
    "advise-deploy": "advise.deploy.situation:DeployAdvice",
    "advise-hardware": "advise.hardware:HardwareAdvice",
    "advise-rules": "advise.savings:RulesAdvice",
    "advise-savings": "advise.savings:SavingsAdvice",
    "advise-serve": "advise.serve:ServeAdvice",
    "advise-size": "advise.size:SizeAdvice",
    "advise-speed": "advise.speed:SpeedAdvice",
    "autostart": "service.autostart:AutostartState",
    "capacity-list-check": "capacity.capacity:CapacityCheck",
    "capacity-checklist": "capacity.documents:PurchaseChecklistResult",
    "capacity-plan": "capacity.plan:CapacityPlanList",
    "capacity-proposal": "capacity.proposal:ProposalResult",
    "capacity-proof": "capacity.documents:HoldingProofResult",
    "capacity-review": "broker.procurement.review:PurchaseReview",
    "charges": "billing.charge_documents:ChargesResult",  # of `report charges`
    "demo": "service.documents:DemoReport",
    "doctor": "service.documents:DoctorReport",
    "doctor-sweep": "service.documents:SweepReport",  # with --sweep
    "error": "documents:ErrorDocument",  # of every command that fails
    "init": "jobs.documents:WrittenJobFile",
    "jobs-diff": "jobs.file_documents:JobDifference",
    "jobs-files-submitted": "jobs.file_documents:JobSources",  # with --submitted
    "jobs-get": "jobs.file_documents:FetchedFilesResult",
    "jobs-list": "jobs.documents:JobList",
    "jobs-prune": "jobs.pruning:PrunedCheckpoints",
    "logout": "access.documents:LoggedOut",
    "notices": "alerts.notify:NoticeList",
    "notices-retry": "alerts.notify:RetriedNotices",  # with --retry
    "notices-test": "market.watches:AlertTest",  # with --test
    "offers": "market.offer_documents:OfferList",
    "person": "access.documents:PersonResult",  # of the other commands of `people`
    "plan-together": "jobs.queue_documents:PlannedTogether",  # of several job files
    "policy-test": "policy.trial_documents:PolicyTestResult",
    "prices-accept": "broker.store.records:AcceptedPrices",
    "prices-import": "market.price_documents:ImportedPrices",
    "prices-poll": "market.price_documents:PollReport",
    "prices-prune": "broker.store.records:PrunedPriceHistory",
    "reconcile": "service.documents:ReconcileReport",
    "serve": "service.documents:ServiceReport",  # once it is stopped
    "setup": "service.documents:SetupReport",
    "store-backup": "broker.store.engine.copies:StoreCopy",
    "store-restore": "service.documents:RestoredStoreResult",
    "submit-refused": "jobs.plan_documents:RefusedSubmission",
    "token": "access.documents:TokenResult",  # of `tokens revoke`
    "people-invite": "access.documents:CreatedLink",
    "tokens-create": "access.documents:CreatedToken",
    "whoami-local": "access.documents:LocalIdentity",  # without a team server
    "watch-add": "market.watches:AddedWatch",
}
_USE_CASES = {row.schema: row for row in USE_CASES if row.schema}
DOCUMENTS = sorted([*_USE_CASES, *_OTHERS])
NAMES = (JOB_FILE, POLICY_FILE, *DOCUMENTS)

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of that document, or of job files. Raises `UnknownName`."""
    if name == JOB_FILE:
        return json_schema()
    return {"$schema": _DIALECT, **TypeAdapter(document_class(name)).json_schema(mode="serialization", by_alias=True)}


def document_class(name: str) -> type[Any]:
    """The class of that document. Raises `UnknownName`, also for that of job files."""
    if name in _USE_CASES:
        return _USE_CASES[name].document
    if name not in _OTHERS:
        raise UnknownName("document", name, NAMES)
    module, _, class_name = _OTHERS[name].partition(":")
    module_name = module if module.startswith("broker.") else f"broker.app.{module}"
    document_type: type[Any] = getattr(import_module(module_name), class_name)
    return document_type
