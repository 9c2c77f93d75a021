"""The documents by name, and the JSON Schema of each."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pydantic import TypeAdapter

from broker.app.use_cases.table import USE_CASES
from broker.core.errors import UnknownName
from broker.core.job.file.schema import json_schema

JOB_FILE, POLICY_FILE = "job-file", "policy-file"

# The other documents, by the name of the command that prints it with --json: module (of
# `broker.app.results` if it names no package) and class.
_OTHERS: Mapping[str, str] = {
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
    "autostart": "broker.app.service.autostart:AutostartState",
    "capacity-list-check": "broker.app.capacity.check:CapacityCheck",
    "capacity-checklist": "capacity:PurchaseChecklistResult",
    "capacity-plan": "capacity_plan:CapacityPlanList",
    "capacity-proposal": "proposal:ProposalResult",
    "capacity-proof": "capacity:HoldingProofResult",
    "capacity-review": "broker.procurement.review:PurchaseReview",
    "charges": "charges:ChargesResult",  # of `report charges`
    "demo": "service:DemoReport",
    "doctor": "service:DoctorReport",
    "doctor-sweep": "service:SweepReport",  # with --sweep
    "error": "errors:ErrorDocument",  # of every command that fails
    "init": "jobs:WrittenJobFile",
    "jobs-diff": "kept_files:JobDifference",
    "jobs-files-submitted": "kept_files:JobSources",  # with --submitted
    "jobs-get": "kept_files:FetchedFilesResult",
    "jobs-list": "jobs:JobList",
    "jobs-prune": "broker.app.jobs.pruning:PrunedCheckpoints",
    "logout": "access:LoggedOut",
    "notices": "notices:NoticeList",
    "notices-retry": "notices:RetriedNotices",  # with --retry
    "notices-test": "watches:AlertTest",  # with --test
    "offers": "offers:OfferList",
    "person": "access:PersonResult",  # of the other commands of `people`
    "plan-together": "queue:PlannedTogether",  # of several job files
    "policy-test": "trials:PolicyTestResult",
    "prices-accept": "prices:AcceptedPrices",
    "prices-import": "price_history:ImportedPrices",
    "prices-poll": "prices:PollReport",
    "prices-prune": "price_history:PrunedPriceHistory",
    "reconcile": "service:ReconcileReport",
    "serve": "service:ServiceReport",  # once it is stopped
    "setup": "service:SetupReport",
    "store-backup": "broker.store.engine.copies:StoreCopy",
    "store-restore": "service:RestoredStoreResult",
    "submit-refused": "plans:RefusedSubmission",
    "token": "access:TokenResult",  # of `tokens revoke`
    "people-invite": "access:CreatedLink",
    "tokens-create": "access:CreatedToken",
    "whoami-local": "access:LocalIdentity",  # without a team server
    "watch-add": "watches:AddedWatch",
    "watch-list": "watches:WatchList",
    "watch-remove": "watches:RemovedWatch",
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
    module_name = module if "." in module else f"broker.app.results.{module}"
    document_type: type[Any] = getattr(import_module(module_name), class_name)
    return document_type
