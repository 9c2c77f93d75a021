"""Every reason to reject a placement, a launch or a submission.

A reason has a code for programs, a sentence for people, and an *origin*: what would have to change. The origin decides
the exit code when nothing is left (job and market alone → 4, policy → 3).
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Origin(StrEnum):
    """The origin of a rejection."""

    MARKET = "market"
    POLICY = "policy"


class Reason(StrEnum):
    """Why an offer cannot serve a job. The value is the code that JSON carries."""

    WRONG_ACCELERATOR = "wrong_accelerator"
    TOO_FEW_ACCELERATORS = "too_few_accelerators"
    TOO_MANY_ACCELERATORS = "too_many_accelerators"
    NOT_A_CPU_OFFER = "not_a_cpu_offer"
    TOO_FEW_CPUS = "too_few_cpus"
    TOO_LITTLE_MEMORY = "too_little_memory"
    TOO_LITTLE_GPU_MEMORY = "too_little_gpu_memory"
    WRONG_CAPACITY_TYPE = "wrong_capacity_type"
    WRONG_PROVIDER = "wrong_provider"
    WRONG_REGION = "wrong_region"
    WRONG_INSTANCE_TYPE = "wrong_instance_type"
    INTERCONNECT_TOO_WEAK = "interconnect_too_weak"
    UNAVAILABLE = "unavailable"
    NO_QUOTA = "no_quota"
    TOO_FEW_MACHINES = "too_few_machines"
    NO_PRICE = "no_price"
    STALE_PRICE = "stale_price"
    SUSPECT_OFFER = "suspect_offer"
    ENGINE_CANNOT = "engine_cannot"
    SANDBOX_NOT_ASKED_FOR = "sandbox_not_asked_for"
    MISSES_DEADLINE = "misses_deadline"
    TOO_OFTEN_INTERRUPTED = "too_often_interrupted"
    LAUNCH_FAILED_LATELY = "launch_failed_lately"
    LAUNCH_REFUSED = "launch_refused"
    NEEDS_COMMITMENT = "needs_commitment"
    NO_ENGINE = "no_engine"
    ENGINE_NOT_INSTALLED = "engine_not_installed"
    RUNS_OUT_OF_REACH = "runs_out_of_reach"
    REFERENCE_PRICE = "reference_price"
    DENIED_BY_POLICY = "denied_by_policy"

    @property
    def text(self) -> str:
        return _TEXTS[self]

    @property
    def origin(self) -> Origin:
        return Origin.POLICY if self in _BY_POLICY else Origin.MARKET


# Reference prices are rejected because the policy does not allow them; the policy's owner can change that.
_BY_POLICY = frozenset({Reason.REFERENCE_PRICE, Reason.DENIED_BY_POLICY})

# Offers rejected for these reasons become usable once the installation is set up.
MISSING_SETUP = frozenset({Reason.ENGINE_NOT_INSTALLED, Reason.RUNS_OUT_OF_REACH, Reason.REFERENCE_PRICE})

_TEXTS = {
    Reason.WRONG_ACCELERATOR: "another accelerator than requested",
    Reason.TOO_FEW_ACCELERATORS: "fewer accelerators per machine than requested",
    Reason.TOO_MANY_ACCELERATORS: "more accelerators per machine than requested",
    Reason.NOT_A_CPU_OFFER: "a GPU machine, and the job needs none",
    Reason.TOO_FEW_CPUS: "fewer CPUs than requested",
    Reason.TOO_LITTLE_MEMORY: "less memory than requested",
    Reason.TOO_LITTLE_GPU_MEMORY: "less memory per accelerator than the job needs",
    Reason.WRONG_CAPACITY_TYPE: "a capacity type the job excludes",
    Reason.WRONG_PROVIDER: "a provider the job excludes",
    Reason.WRONG_REGION: "a region the job excludes",
    Reason.WRONG_INSTANCE_TYPE: "another instance type than requested",
    Reason.INTERCONNECT_TOO_WEAK: "a weaker (or unknown) interconnect than requested",
    Reason.UNAVAILABLE: "sold out, as reported by the provider",
    Reason.NO_QUOTA: "the account's quota does not allow it",
    Reason.TOO_FEW_MACHINES: "fewer machines free than the job has nodes",
    Reason.NO_PRICE: "no valid price known",
    Reason.STALE_PRICE: "the price is older than its provider's limit",
    Reason.SUSPECT_OFFER: "suspicious: missing from a suspect poll, or at an odd price",
    Reason.ENGINE_CANNOT: "its engine lacks a feature that the job needs",
    Reason.SANDBOX_NOT_ASKED_FOR: "simulated capacity; only for jobs with `constraints.providers: [sandbox]`",
    Reason.MISSES_DEADLINE: "the job would not finish by its deadline there",
    Reason.TOO_OFTEN_INTERRUPTED: "interruptions would leave almost no progress there",
    Reason.LAUNCH_FAILED_LATELY: "a launch there failed a short while ago",
    Reason.LAUNCH_REFUSED: "a launch of the job there was refused for good",
    Reason.NEEDS_COMMITMENT: "requires a commitment for a term",
    Reason.NO_ENGINE: "no engine here can run jobs there",
    Reason.ENGINE_NOT_INSTALLED: "the engine that runs jobs there is not installed",
    Reason.RUNS_OUT_OF_REACH: "its engine cannot reach the run folders, which are on this machine's disk",
    Reason.REFERENCE_PRICE: "a reference price, not live; the policy does not allow launching on it",
    Reason.DENIED_BY_POLICY: "denied by a policy",
}


@dataclass(frozen=True, slots=True)
class RuleObjection:
    """The objection of one policy rule: its kind, its name, a countable code, a sentence for people, and its place
    (``team.yaml:12``).
    """

    rule: str
    name: str
    code: str
    message: str
    source: str

    def __str__(self) -> str:
        return f"{self.message} ({self.source})" if self.message else self.source


@dataclass(frozen=True, slots=True)
class Rejection:
    """One rejected offer: the reason, and a detail ("needs 8, has 4"). ``objection``: the rule's, if a policy denied
    it."""

    offer_id: str
    reason: Reason
    detail: str = ""
    objection: RuleObjection | None = None


def count_reasons(rejections: Iterable[Rejection]) -> dict[Reason, int]:
    """Number of rejections by reason, most frequent first."""
    return dict(Counter(rejection.reason for rejection in rejections).most_common())
