"""Held capacity as results."""

from typing import Self

from broker.app.documents import Figure, Moment, Result
from broker.core.market.offers import Offer
from broker.core.values.money import Money
from broker.economics.reserve.holdings import HoldingKind, RecordedHolding


class RecordedCapacity(Result):
    """Capacity on record. Money in USD; ``usd_per_gpu_hour`` with six decimals; ``watts``: the power draw of all of it
    in use; ``order_id``: what the provider calls it, ``proof``: the SHA-256 of the document that proves it (hex);
    empty without one."""

    number: int
    kind: HoldingKind
    accelerator: str
    gpus: int
    provider: str
    site: str
    starts: Moment
    ends: Moment
    upfront_usd: Money
    hourly_usd: Money
    usd_per_gpu_hour: str
    watts: Figure
    note: str
    order_id: str
    proof: str
    added_at: Moment
    added_by: str

    @classmethod
    def of(cls, record: RecordedHolding) -> Self:
        holding = record.holding
        return cls.from_parts(holding, record, usd_per_gpu_hour=f"{holding.usd_per_gpu_hour:.6f}")


class ReportedCapacity(Result):
    """A reservation as its provider reports it. ``free``: null where not known."""

    id: str
    provider: str
    region: str
    zone: str | None
    instance_type: str
    machines: int
    kind: str
    starts: Moment | None
    ends: Moment | None
    free: int | None
    holds_capacity: bool
    open: bool


class OwnedMachines(Result):
    """Owned machines that appear as offers. ``usd_per_gpu_hour``: the value of an hour of a GPU; null if unknown."""

    provider: str
    region: str
    zone: str | None
    instance_type: str
    accelerator: str | None
    gpus: int
    usd_per_gpu_hour: Money | None
    source: str

    @classmethod
    def of(cls, offer: Offer) -> Self:
        cost = offer.amortised.share(1, offer.count) if offer.amortised else None
        return cls.from_parts(offer, gpus=offer.count * (offer.slots or 1), usd_per_gpu_hour=cost)


class ProviderProblem(Result):
    """Why a provider did not answer."""

    provider: str
    message: str


class CapacityList(Result):
    """Owned and reserved capacity, as recorded and as reported. ``machines``: owned ones with offers; ``asked``: the
    providers that answered; ``problems``: the errors of the others."""

    as_of: Moment
    recorded: list[RecordedCapacity]
    reported: list[ReportedCapacity]
    machines: list[OwnedMachines]
    asked: list[str]
    problems: list[ProviderProblem]


class ChecklistStep(Result):
    """One step; ``command``: what does it or helps, or empty."""

    what: str
    command: str


class PurchaseChecklistResult(Result):
    """`capacity checklist`: steps for a person, in order. ``sells``: the products that gpubroker itself buys there."""

    provider: str
    sells: list[str]
    steps: list[ChecklistStep]


class HoldingProofResult(Result):
    """`capacity proof`: the document of record ``number``, written to ``file``. ``name``: as it was added."""

    number: int
    file: str
    name: str
    size_bytes: int
    sha256: str
