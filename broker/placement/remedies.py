"""What would change a rejection: a change of the job file that takes the reason away, or what to do elsewhere.

The figures come from the rejected offers, so that a change names a machine that is offered.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from broker.core.job.jobs import Job, MachineRequest
from broker.core.job.reasons import MISSING_SETUP, Reason
from broker.core.market.accelerators import card_share, is_part, nearest
from broker.core.market.offers import Interconnect, Offer
from broker.core.values.money import Money
from broker.placement.feasibility import PreparedJob, rejection_of

FIXES_ELSEWHERE: Mapping[Reason, str] = {
    Reason.TOO_LITTLE_GPU_MEMORY: "use a smaller batch, more accelerators or a method that needs less memory: `model:`",
    Reason.UNAVAILABLE: "wait for capacity; `gpubroker prices poll` updates the availability",
    Reason.NO_QUOTA: "request a higher quota from the provider",
    Reason.NO_PRICE: "the provider reported no valid price; see `gpubroker prices status`",
    Reason.STALE_PRICE: "refresh prices with `gpubroker prices poll`, or set `allow_stale_prices: true` in a policy",
    Reason.SUSPECT_OFFER: (
        "see `gpubroker prices status`; if the offer is right, accept it with `gpubroker prices accept PROVIDER`"
    ),
    Reason.NEEDS_COMMITMENT: "buy the reservation or commitment first; on-demand and spot capacity need none",
    Reason.MISSES_DEADLINE: "set a later deadline, allow faster accelerators, or reduce the work",
    Reason.TOO_OFTEN_INTERRUPTED: "checkpoint more often (checkpoint.every), or exclude spot capacity",
    Reason.LAUNCH_FAILED_LATELY: "wait ten minutes; the broker then retries the launch",
    Reason.LAUNCH_REFUSED: "see why with `status --attempts`; once that is corrected, submit the job again",
    Reason.NO_ENGINE: "nothing: gpubroker starts no jobs there; the offers are for comparison",
    Reason.ENGINE_NOT_INSTALLED: "install the engine for this provider; `gpubroker doctor` shows how",
    Reason.RUNS_OUT_OF_REACH: (
        "set GPUBROKER_RUNS to a bucket that remote machines can reach: s3://…, gs://… or az://…"
    ),
    Reason.REFERENCE_PRICE: "poll live prices (`gpubroker doctor`), or set `allow_reference_prices: true` in a policy",
    Reason.DENIED_BY_POLICY: "ask a budget owner to change the policy; `gpubroker policy show` prints it",
}
# Of several reasons, the ones that stand last let an offer pass most checks.
NEAREST_LAST = (
    Reason.SANDBOX_NOT_ASKED_FOR, Reason.NEEDS_COMMITMENT, Reason.NO_ENGINE, Reason.WRONG_ACCELERATOR,
    Reason.NOT_A_CPU_OFFER, Reason.WRONG_PROVIDER, Reason.WRONG_REGION, Reason.WRONG_CAPACITY_TYPE,
    Reason.TOO_FEW_ACCELERATORS, Reason.TOO_MANY_ACCELERATORS, Reason.WRONG_INSTANCE_TYPE, Reason.TOO_FEW_CPUS,
    Reason.TOO_LITTLE_MEMORY, Reason.TOO_LITTLE_GPU_MEMORY, Reason.INTERCONNECT_TOO_WEAK, Reason.UNAVAILABLE,
    Reason.NO_QUOTA, Reason.TOO_FEW_MACHINES, Reason.LAUNCH_FAILED_LATELY, Reason.LAUNCH_REFUSED, Reason.NO_PRICE,
    Reason.STALE_PRICE, Reason.SUSPECT_OFFER, Reason.ENGINE_CANNOT, Reason.TOO_OFTEN_INTERRUPTED,
    Reason.MISSES_DEADLINE, Reason.DENIED_BY_POLICY, Reason.ENGINE_NOT_INSTALLED, Reason.RUNS_OUT_OF_REACH,
    Reason.REFERENCE_PRICE,
)  # fmt: skip
_NEEDS: Mapping[str, Mapping[str, object]] = {
    "image": {"resources.image_id": None},
    "several_nodes": {"num_nodes": 1},
    "workdir": {"workdir": None},
    "setup": {"setup": None},
    "file_mounts": {"file_mounts": None},
    "secrets": {"secrets": None},
    "disk_tier": {"resources.disk_tier": None},
    "network_tier": {"resources.network_tier": None},
    "skypilot_config": {"config": None},
}
_OF_THE_JOB_ALONE = frozenset({Reason.TOO_MANY_ACCELERATORS, Reason.SANDBOX_NOT_ASKED_FOR})
_MAX_MACHINES = 3  # in a list that a fix proposes
_STRENGTH = (Interconnect.PCIE, Interconnect.NVLINK)


@dataclass(frozen=True, slots=True)
class Remedy:
    """``changes``: values of the job file by key, dotted; None removes the key. ``text``: what else to do."""

    changes: Mapping[str, object] = field(default_factory=dict)
    text: str = ""

    def __str__(self) -> str:
        return "; ".join(filter(None, [", ".join(map(_change_text, self.changes, self.changes.values())), self.text]))


def _change_text(key: str, value: object) -> str:
    section, _, name = key.rpartition(".")
    if value is None:
        return f"remove `{name}:`{f' from `{section}:`' if section else ''}"
    value_text = f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)
    return f"`{name}: {value_text}`{f' under `{section}:`' if section else ''}"


def remedy(reason: Reason, job: Job, offers: Sequence[Offer], engines: Mapping[str, frozenset[str]]) -> Remedy:
    """What would take the reason away. ``offers``: some that were rejected for it; ``engines``: what each engine can
    do."""
    if reason in FIXES_ELSEWHERE:
        return Remedy(text=FIXES_ELSEWHERE[reason])
    if not offers and reason not in _OF_THE_JOB_ALONE:
        return Remedy(text=_WITHOUT_OFFERS.get(reason, _LOOK))
    return _REMEDIES[reason](job, offers) if reason in _REMEDIES else _engine(job, offers, engines)


def _other_accelerator(job: Job, offers: Sequence[Offer]) -> Remedy:
    requests = [request for request in job.resources if request.accelerator]
    cards = {card_share(request.accelerator)[0] for request in requests if is_part(request.accelerator)}
    if whole := [offer for offer in offers if offer.accelerator in cards and offer.price is not None]:
        cheapest = min(whole, key=lambda offer: (offer.engine is None, offer.price))
        text = f"no such part is offered; a whole card costs {cheapest.price} an hour at {cheapest.location}"
        return Remedy({"resources.accelerators": cheapest.machine}, text)
    counts = {offer.accelerator: offer.count for offer in offers if offer.accelerator}
    name = (nearest(requests[0].accelerator or "", counts, 1) if requests else []) or list(counts)[:1]
    if not name:
        return Remedy({"resources.accelerators": None}, "only machines without accelerators are offered there")
    machines = [request.machine for request in requests]
    text = "the nearest that is offered; `gpubroker offers --by gpu` lists all"
    return Remedy({"resources.accelerators": [*machines[: _MAX_MACHINES - 1], f"{name[0]}:{counts[name[0]]}"]}, text)


def _fewer_accelerators(job: Job, offers: Sequence[Offer]) -> Remedy:
    largest = max(offers, key=lambda offer: offer.count)
    request = next(
        (candidate for candidate in job.resources if candidate.accelerator == largest.accelerator), MachineRequest()
    )
    nodes = -(-request.count * job.num_nodes // largest.count) if largest.count else 1
    text = f"no machine has more; with `num_nodes: {nodes}` the job has as many in all"
    return Remedy({"resources.accelerators": largest.machine}, text)


def _more_accelerators(job: Job, offers: Sequence[Offer]) -> Remedy:
    cheapest = sorted(offers, key=lambda offer: (offer.engine is None, offer.price is None, offer.price or Money.ZERO))
    order = list(dict.fromkeys(offer.accelerator for offer in cheapest))
    requests = sorted(
        (request for request in job.resources if request.accelerator),
        key=lambda request: order.index(request.accelerator) if request.accelerator in order else len(order),
    )
    machines = [f"{request.machine.rstrip('+')}+" for request in requests[:_MAX_MACHINES]]
    return Remedy(
        {"resources.accelerators": machines[0] if len(machines) == 1 else machines}, "takes larger machines, too"
    )


def _any_machine(job: Job, offers: Sequence[Offer]) -> Remedy:
    text = "or `cpu_jobs_on_gpus: true` in a policy"
    return Remedy({"resources.accelerators": offers[0].machine}, text)


def _lower_minimum(name: str, value: Callable[[Offer], float | None]) -> Callable[[Job, Sequence[Offer]], Remedy]:
    def largest(job: Job, offers: Sequence[Offer]) -> Remedy:
        """CPUs and memory that one machine has together; without what cannot be had if it starts none of them."""
        machines = [offer for offer in offers if offer.engine is not None and value(offer) is not None]
        if not machines:
            return Remedy({f"resources.{name}": None}, "no machine that gpubroker starts there has as much")
        most = max(machines, key=lambda offer: (value(offer) or 0, offer.cpus or 0, offer.memory_gib or 0))
        changes: dict[str, object] = {f"resources.{name}": f"{value(most):g}"}
        if any((request.cpus or 0) > (most.cpus or 0) for request in job.resources):
            changes["resources.cpus"] = most.cpus and f"{most.cpus:g}"
        if any((request.memory_gib or 0) > (most.memory_gib or 0) for request in job.resources):
            changes["resources.memory"] = most.memory_gib and f"{most.memory_gib:g}"
        return Remedy(changes, "no machine that gpubroker starts there has more")

    return largest


def _other_types(job: Job, offers: Sequence[Offer]) -> Remedy:
    own = job.constraints.capacity_types
    allowed = own or tuple(kind for request in job.resources for kind in request.capacity_types)
    kinds = [str(kind.value) for kind in dict.fromkeys([*allowed, *sorted({offer.capacity_type for offer in offers})])]
    key = "constraints.capacity_types" if own else "resources.capacity_types"
    spot_alone = {kind.value for kind in allowed} == {"spot"}
    text = "no spot price of such a machine is known: `gpubroker prices status` shows why" if spot_alone else ""
    return Remedy({key: kinds} | ({"resources.use_spot": None} if spot_alone and not own else {}), text)


def _other_places(name: str, value: Callable[[Offer], str]) -> Callable[[Job, Sequence[Offer]], Remedy]:
    def allowed(job: Job, offers: Sequence[Offer]) -> Remedy:
        own: tuple[str, ...] = getattr(job.constraints, name)
        if own and not any(request.infra for request in job.resources):
            return Remedy({f"constraints.{name}": [*own, *dict.fromkeys(map(value, offers[:1]))]})
        return Remedy({"resources.infra": None}, f"or name another of its {name}, such as {value(offers[0])}")

    return allowed


def _interconnect(job: Job, offers: Sequence[Offer]) -> Remedy:
    known = [offer.interconnect for offer in offers if offer.interconnect in _STRENGTH]
    strongest = max(known, key=_STRENGTH.index, default=None)
    return Remedy({"constraints.interconnect": None if strongest is None else strongest.value})


def _fewer_nodes(job: Job, offers: Sequence[Offer]) -> Remedy:
    free = max((offer.slots or 0 for offer in offers), default=0)
    if 0 < free < job.num_nodes:
        return Remedy({"num_nodes": free}, "or wait until more machines are free")
    return Remedy(text=_WITHOUT_OFFERS[Reason.TOO_FEW_MACHINES])


def _engine(job: Job, offers: Sequence[Offer], engines: Mapping[str, frozenset[str]]) -> Remedy:
    lacking = [sorted(job.needs - engines.get(offer.engine or "", frozenset())) for offer in offers]
    least = min(lacking, key=len, default=[])
    changes: dict[str, object] = {}
    for need in least:
        changes |= _NEEDS.get(need, {})
    if "another_machine" in least:
        return Remedy(
            changes, "an administrator may allow jobs from elsewhere here: `jobs_here = true` under `[serve]`"
        )
    text = "or run it on a cloud or Kubernetes: `gpubroker doctor` says what that takes"
    return Remedy(changes, text if changes else _WITHOUT_OFFERS[Reason.ENGINE_CANNOT])


_REMEDIES: Mapping[Reason, Callable[[Job, Sequence[Offer]], Remedy]] = {
    Reason.WRONG_ACCELERATOR: _other_accelerator,
    Reason.TOO_FEW_ACCELERATORS: _fewer_accelerators,
    Reason.TOO_MANY_ACCELERATORS: _more_accelerators,
    Reason.NOT_A_CPU_OFFER: _any_machine,
    Reason.TOO_FEW_CPUS: _lower_minimum("cpus", lambda offer: offer.cpus),
    Reason.TOO_LITTLE_MEMORY: _lower_minimum("memory", lambda offer: offer.memory_gib),
    Reason.WRONG_CAPACITY_TYPE: _other_types,
    Reason.WRONG_PROVIDER: _other_places("providers", lambda offer: offer.provider),
    Reason.WRONG_REGION: _other_places("regions", lambda offer: offer.region),
    Reason.WRONG_INSTANCE_TYPE: lambda job, offers: Remedy({"resources.instance_type": offers[0].instance_type}),
    Reason.INTERCONNECT_TOO_WEAK: _interconnect,
    Reason.TOO_FEW_MACHINES: _fewer_nodes,
    Reason.SANDBOX_NOT_ASKED_FOR: lambda *_: Remedy({"constraints.providers": ["sandbox"]}, "simulates them"),
}
# Offers that the store itself leaves out are only counted.
_WITHOUT_OFFERS: Mapping[Reason, str] = {
    Reason.WRONG_ACCELERATOR: "allow more accelerators in the job; `gpubroker offers --by gpu` lists them",
    Reason.TOO_FEW_ACCELERATORS: "ask for fewer on each machine and more machines (`num_nodes:`)",
    Reason.NOT_A_CPU_OFFER: "set `cpu_jobs_on_gpus: true` in a policy, or name an accelerator in the job",
    Reason.WRONG_CAPACITY_TYPE: "allow more capacity types: constraints.capacity_types, resources.use_spot",
    Reason.WRONG_PROVIDER: "allow more providers: constraints.providers, resources.infra",
    Reason.WRONG_REGION: "allow more regions: constraints.regions, resources.region",
    Reason.TOO_FEW_MACHINES: "wait until machines are free: `gpubroker jobs queue` shows when",
    Reason.ENGINE_CANNOT: "run it on another engine: `gpubroker doctor` lists them",
}
_LOOK = "compare the job with what there is: `gpubroker offers`"


_PLACES: tuple[Mapping[str, object], Mapping[str, object]] = ({"providers": (), "regions": ()}, {"infra": None})
# The fields without which a job excludes nothing for the reason: of its constraints, and of each machine.
_LIMITS: Mapping[Reason, tuple[Mapping[str, object], Mapping[str, object]]] = {
    Reason.WRONG_PROVIDER: _PLACES,
    Reason.WRONG_REGION: _PLACES,
    Reason.WRONG_CAPACITY_TYPE: ({"capacity_types": ()}, {"capacity_types": ()}),
    Reason.TOO_FEW_CPUS: ({}, {"cpus": None}),
    Reason.TOO_LITTLE_MEMORY: ({}, {"memory_gib": None}),
}


def without_exclusion(reason: Reason, job: Job) -> Job | None:
    """The job without its limits of providers and regions, of capacity types, of CPUs or of memory, or with whole cards
    in the place of parts; None if the reason is none of these, which are looked at before others and so hide what else
    is wrong."""
    if reason is Reason.WRONG_ACCELERATOR and all(is_part(machine.accelerator) for machine in job.resources):
        cards = dict.fromkeys(
            machine.model_copy(update={"accelerator": card_share(machine.accelerator)[0]}) for machine in job.resources
        )
        return job.model_copy(update={"resources": tuple(cards)}) if cards else None
    if reason not in _LIMITS:
        return None
    limits, machine = _LIMITS[reason]
    machines = tuple(request.model_copy(update=machine) for request in job.resources)
    return job.model_copy(update={"constraints": job.constraints.model_copy(update=limits), "resources": machines})


def matching_otherwise(reason: Reason, request: PreparedJob, offers: Sequence[Offer]) -> list[Offer]:
    """The offers that the job excludes for that reason alone: without it they would match. If none would,
    those that would only lack setup."""
    relaxed = without_exclusion(reason, request.job)
    if relaxed is None:
        return []
    prepared = PreparedJob.of(relaxed, request.conditions, request.now, request.excluded)
    excluded = [offer for offer in offers if (found := rejection_of(offer, request)) and found.reason is reason]
    others = [(offer, rejection_of(offer, prepared)) for offer in excluded]
    fit = [offer for offer, other in others if other is None]
    return fit or [offer for offer, other in others if other is not None and other.reason in MISSING_SETUP]
