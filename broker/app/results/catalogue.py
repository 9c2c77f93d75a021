"""The documents by name, and the JSON Schema of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.app.results.access import (
    AuditLog,
    CallerIdentity,
    CreatedInvitation,
    CreatedToken,
    LocalIdentity,
    LoggedOut,
    PeopleList,
    PersonResult,
    TokenList,
    TokenResult,
)
from broker.app.results.anomalies import IncidentList
from broker.app.results.approvals import ApprovalList, StandingGrantResult
from broker.app.results.backtests import MemoryBacktest, PlacementBacktest, ReserveBacktest, ServingBacktest
from broker.app.results.book import BookReport
from broker.app.results.budgets import BudgetDetails, BudgetDetailsList, BudgetList
from broker.app.results.capacity import CapacityList, HoldingProofResult, PurchaseChecklistResult, RecordedCapacity
from broker.app.results.capacity_plan import CapacityFindingList, CapacityPlanList
from broker.app.results.charges import BilledReport, ChargesResult
from broker.app.results.cost_advice import (
    BuyOrRentAdvice,
    CapacityAdvice,
    ClusterCostAdvice,
    RulesAdvice,
    RunCostAdvice,
    SavingsAdvice,
    UnitCostAdvice,
)
from broker.app.results.deploy_advice import DeployAdvice
from broker.app.results.errors import ErrorDocument
from broker.app.results.focus import FocusExportResult
from broker.app.results.forecasts import ForecastsReport
from broker.app.results.hardware_advice import EcoAdvice, EmbedAdvice, HardwareAdvice, ImagesAdvice
from broker.app.results.jobs import AttemptList, JobDetails, JobHistory, JobList, JobLogs
from broker.app.results.kept_files import FetchedFilesResult, JobCheckpoints, JobDifference, JobOutputs, JobSources
from broker.app.results.notices import NoticeList, RetriedNotices
from broker.app.results.offers import OfferGroupList, OfferList
from broker.app.results.outside import OutsideEnd, OutsideLaunchList
from broker.app.results.plans import PlanResult, RefusedSubmission
from broker.app.results.policies import AppliedPolicy, CheckedPolicy, PolicyExplanation, PolicyInForce
from broker.app.results.policy_preview import PolicyPreviewResult, PolicyVersionList
from broker.app.results.price_history import ImportedPrices, PastOfferList, PriceHistoryList, PrunedPriceHistory
from broker.app.results.prices import AcceptedPrices, PollReport, PriceStatus
from broker.app.results.proposal import ProposalResult
from broker.app.results.pruned import PrunedCheckpoints
from broker.app.results.purchases import (
    CapacityCheckResult,
    PurchaseHistory,
    PurchaseList,
    PurchasePreviewResult,
    PurchaseResult,
    PurchaseReviewResult,
    QuoteList,
    ResaleTermsResult,
    UndoTermsResult,
)
from broker.app.results.queue import PlannedTogether, QueueResult
from broker.app.results.review import ReviewReport
from broker.app.results.risk import OfferRiskList
from broker.app.results.service import (
    ArchivedHistoryResult,
    CompactedStoreResult,
    DemoReport,
    DoctorReport,
    ReconcileReport,
    RestoredStoreResult,
    ServiceReport,
    StoreCopyResult,
    SweepReport,
)
from broker.app.results.serving_advice import ServeAdvice
from broker.app.results.showback import ChargebackList, ChargebackStatement, ShowbackReport
from broker.app.results.simulations import SimulationReport
from broker.app.results.spend import SpendReport
from broker.app.results.spending_backtests import AnomalyBacktest, ForecastBacktest
from broker.app.results.training_advice import ParallelismAdvice, ScaleAdvice, SizeAdvice, ThroughputAdvice
from broker.app.results.trials import PolicyBacktest, PolicyTestResult, RecordedDecisions
from broker.app.results.units import UnitMetrics
from broker.app.results.values import Result
from broker.app.results.watches import AddedWatch, AlertTest, RemovedWatch, WatchCheckResult, WatchList
from broker.core.errors import UnknownName
from broker.core.job.file.schema import json_schema

JOB_FILE = "job-file"

# The name of each document: that of the command that prints it with --json.
DOCUMENTS: Mapping[str, type[Result]] = {
    "advise-buy-or-rent": BuyOrRentAdvice,
    "advise-capacity": CapacityAdvice,
    "advise-cluster-cost": ClusterCostAdvice,
    "advise-deploy": DeployAdvice,
    "advise-eco": EcoAdvice,
    "advise-embed": EmbedAdvice,
    "advise-images": ImagesAdvice,
    "advise-hardware": HardwareAdvice,
    "advise-parallelism": ParallelismAdvice,
    "advise-rules": RulesAdvice,
    "advise-run-cost": RunCostAdvice,
    "advise-savings": SavingsAdvice,
    "advise-scale": ScaleAdvice,
    "advise-serve": ServeAdvice,
    "advise-size": SizeAdvice,
    "advise-throughput": ThroughputAdvice,
    "advise-unit-cost": UnitCostAdvice,
    "approvals-list": ApprovalList,
    "audit": AuditLog,
    "backtest-anomalies": AnomalyBacktest,
    "backtest-forecast": ForecastBacktest,
    "backtest-memory": MemoryBacktest,
    "backtest-placement": PlacementBacktest,
    "backtest-reserve": ReserveBacktest,
    "backtest-serving": ServingBacktest,
    "budget-list": BudgetList,
    "budget-show": BudgetDetails,  # with a name
    "budget-show-all": BudgetDetailsList,
    "capacity-buy-preview": PurchasePreviewResult,  # of `capacity buy --dry-run`
    "capacity-check": CapacityCheckResult,
    "capacity-checklist": PurchaseChecklistResult,
    "capacity-list": CapacityList,
    "capacity-plan": CapacityPlanList,
    "capacity-proposal": ProposalResult,
    "capacity-proof": HoldingProofResult,
    "capacity-purchase": PurchaseResult,  # of `capacity buy`, `approve`, `cancel`, …
    "capacity-purchases": PurchaseList,
    "capacity-quote": QuoteList,
    "capacity-record": RecordedCapacity,  # of `capacity add` and `capacity remove`
    "capacity-review": PurchaseReviewResult,
    "capacity-resale": ResaleTermsResult,  # of `capacity sell --dry-run`
    "capacity-show": PurchaseHistory,
    "capacity-undo": UndoTermsResult,  # of `capacity cancel --dry-run`
    "charges": ChargesResult,  # of `report charges fetch` and `report charges import`
    "demo": DemoReport,
    "doctor": DoctorReport,
    "doctor-sweep": SweepReport,  # with --sweep
    "error": ErrorDocument,  # of every command that fails
    "jobs-attempts": AttemptList,
    "jobs-checkpoints": JobCheckpoints,
    "jobs-diff": JobDifference,
    "jobs-files": JobOutputs,
    "jobs-get": FetchedFilesResult,
    "jobs-list": JobList,
    "jobs-logs": JobLogs,
    "jobs-prune": PrunedCheckpoints,
    "jobs-queue": QueueResult,
    "jobs-show": JobHistory,
    "jobs-show-files": JobSources,  # with --files
    "launches-end": OutsideEnd,
    "launches-list": OutsideLaunchList,
    "logout": LoggedOut,
    "notices-list": NoticeList,
    "notices-retry": RetriedNotices,
    "offers": OfferList,
    "offers-groups": OfferGroupList,  # with --group-by
    "offers-risk": OfferRiskList,  # with --risk
    "people-list": PeopleList,
    "person": PersonResult,  # of the other commands of `people`
    "plan": PlanResult,
    "plan-together": PlannedTogether,  # of several job files
    "policy-apply": AppliedPolicy,  # also of `policy rollback`
    "policy-backtest": PolicyBacktest,
    "policy-check": CheckedPolicy,
    "policy-decisions": RecordedDecisions,  # of `policy explain` with a submitted job
    "policy-explain": PolicyExplanation,  # of a job file
    "policy-findings": CapacityFindingList,
    "policy-preview": PolicyPreviewResult,  # also of `policy apply --dry-run` and `policy rollback --dry-run`
    "policy-show": PolicyInForce,
    "policy-test": PolicyTestResult,
    "policy-versions": PolicyVersionList,
    "prices-accept": AcceptedPrices,
    "prices-book": BookReport,
    "prices-history": PriceHistoryList,
    "prices-history-at": PastOfferList,  # with --at
    "prices-import": ImportedPrices,
    "prices-poll": PollReport,
    "prices-prune": PrunedPriceHistory,
    "prices-status": PriceStatus,
    "reconcile": ReconcileReport,
    "report-anomalies": IncidentList,
    "report-billed": BilledReport,
    "report-chargeback": ChargebackStatement,  # with a month
    "report-chargeback-list": ChargebackList,
    "report-focus": FocusExportResult,
    "report-forecasts": ForecastsReport,
    "report-review": ReviewReport,
    "report-showback": ShowbackReport,
    "report-spend": SpendReport,
    "report-units": UnitMetrics,
    "serve": ServiceReport,  # once it is stopped
    "simulate": SimulationReport,
    "standing-grant": StandingGrantResult,  # of `approvals grant` without a job, and `approvals revoke`
    "store-backup": StoreCopyResult,
    "store-archive": ArchivedHistoryResult,
    "store-compact": CompactedStoreResult,
    "store-restore": RestoredStoreResult,
    "submit": JobDetails,  # also of `jobs cancel`, `jobs extend`, `approvals grant` and `approvals refuse`
    "submit-refused": RefusedSubmission,
    "token": TokenResult,  # of `tokens revoke`
    "people-invite": CreatedInvitation,
    "tokens-create": CreatedToken,
    "tokens-list": TokenList,
    "whoami": CallerIdentity,  # also of `login`
    "whoami-local": LocalIdentity,  # without a team server
    "watch-add": AddedWatch,
    "watch-check": WatchCheckResult,
    "watch-list": WatchList,
    "watch-remove": RemovedWatch,
    "watch-test": AlertTest,
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
