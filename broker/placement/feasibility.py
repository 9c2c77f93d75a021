"""Whether an offer can serve a job. The first failed check gives the reason.

The order of checks is part of the interface, so that counts are comparable between plans:

1. simulated capacity that the job does not request;
2. the job's constraints: provider, region, capacity type;
3. each acceptable machine: place (``infra``), capacity types, accelerator and count (a rented machine has exactly as
   many as requested, unless the job says ``4+``; an owned or prepaid one may have more), instance type, CPUs,
   memory. Of several machines, the one that passed most checks gives the reason;
4. interconnect;
5. availability: sold out, no quota, too few machines (or too little of a divided one) free, a recent failed launch;
6. the price: unknown or impossible, then too old;
7. an installed engine that can run the offer and supports what the job needs.

An offer that fails at 7 passes in every other respect. Policy objections (reference prices, denials) come last, in the
planner: no change of policy makes an infeasible offer feasible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import translate
from functools import cache

from broker.core.errors import InvalidInput
from broker.core.job.jobs import Job, MachineRequest
from broker.core.job.reasons import Reason, Rejection
from broker.core.market.offers import Availability, CapacityType, Interconnect, MoneyKind, Offer
from broker.core.values.figures import duration_in_hours
from broker.placement.pricing.conditions import Conditions
from broker.placement.pricing.shares import machines, shortage

_STRENGTH = {Interconnect.NONE: 0, Interconnect.PCIE: 1, Interconnect.NVLINK: 2}
_Matches = Callable[[str], bool]
_Finding = tuple[Reason, str]


@dataclass(frozen=True, slots=True)
class _CompiledMachine:
    """One acceptable machine, with its name and its patterns compiled. ``rank``: its place in the job's list."""

    rank: int
    name: str
    request: MachineRequest
    provider: _Matches
    region: _Matches
    zone: _Matches | None
    instance_type: _Matches


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A job and its conditions, prepared to check many offers at one time ``now`` (UTC).

    ``excluded``: pools to skip, each with the reason and its evidence.
    """

    job: Job
    conditions: Conditions
    now: datetime
    excluded: Mapping[str, _Finding]
    machines: tuple[_CompiledMachine, ...]
    needs: frozenset[str]
    provider: _Matches
    region: _Matches
    sandbox: bool

    @classmethod
    def of(
        cls, job: Job, conditions: Conditions, now: datetime, excluded: Mapping[str, _Finding] | None = None
    ) -> PreparedJob:
        """The job, prepared. Raises InvalidInput for a job that names a model and no machines: it must be sized
        first."""
        if job.model and not job.resources:
            raise InvalidInput(
                "the job gives a model but no machines",
                where=job.name,
                hint='name acceptable machines, for example `resources: {accelerators: "A100-80GB:8"}`',
            )
        limits = job.constraints
        machines = job.resources or (MachineRequest(),)
        return cls(
            job=job,
            conditions=conditions,
            now=now,
            excluded=excluded or {},
            machines=tuple(_compile_machine(rank, request) for rank, request in enumerate(machines)),
            needs=job.needs,
            provider=_any_of(limits.providers),
            region=_any_of(limits.regions),
            sandbox=conditions.sandbox or "sandbox" in limits.providers,
        )


def rejection_of(offer: Offer, request: PreparedJob) -> Rejection | None:
    """Why the offer cannot serve the job, or None if it can."""
    outcome = fit(offer, request)
    return outcome if isinstance(outcome, Rejection) else None


def fit(offer: Offer, request: PreparedJob) -> int | Rejection:
    """The index of the job's acceptable machine that the offer serves, or the reason why it serves none.

    If it could serve several: the first if the job's list is ordered, else the one that uses most accelerators.
    """
    finding = _constraints(offer, request)
    served: _CompiledMachine | None = None
    if finding is None:
        any_machine = request.conditions.cpu_jobs_on_gpus
        outcome = _best_machine(offer, request.machines, ordered=request.job.ordered, cpu_jobs_on_gpus=any_machine)
        if isinstance(outcome, _CompiledMachine):
            served = outcome
            finding = _interconnect(offer, request) or _availability(offer, request, served) or _price(offer, request)
            finding = finding or _engine(offer, request)
        else:
            finding = outcome
    if finding is not None:
        return Rejection(offer.id, *finding)
    assert served is not None
    return served.rank


def request_served(offer: Offer, job: Job) -> MachineRequest | None:
    """The job's acceptable machine that a placement on the offer serves; None if the job no longer accepts it."""
    # The placement passed the plan's conditions already; a CPU job may hold a machine with accelerators.
    machines = tuple(
        _compile_machine(rank, request) for rank, request in enumerate(job.resources or (MachineRequest(),))
    )
    served = _best_machine(offer, machines, ordered=job.ordered, cpu_jobs_on_gpus=True)
    return served.request if isinstance(served, _CompiledMachine) else None


def _constraints(offer: Offer, request: PreparedJob) -> _Finding | None:
    if offer.money is MoneyKind.SANDBOX and not request.sandbox:
        return Reason.SANDBOX_NOT_ASKED_FOR, ""
    limits = request.job.constraints
    if not request.provider(offer.provider):
        return Reason.WRONG_PROVIDER, f"{offer.provider}; the job allows {', '.join(limits.providers)}"
    if not request.region(offer.region):
        return Reason.WRONG_REGION, f"{offer.region}; the job allows {', '.join(limits.regions)}"
    return _capacity_type(offer, limits.capacity_types) if limits.capacity_types else None


def _capacity_type(offer: Offer, allowed: tuple[CapacityType, ...]) -> _Finding | None:
    if offer.capacity_type not in allowed:
        return Reason.WRONG_CAPACITY_TYPE, f"{offer.capacity_type}; the job allows {', '.join(allowed)}"
    return None


def _best_machine(
    offer: Offer, machines: Sequence[_CompiledMachine], *, ordered: bool, cpu_jobs_on_gpus: bool
) -> _CompiledMachine | _Finding:
    """The acceptable machine that the offer serves best, or the finding of the one that passed most checks."""
    furthest, reason = -1, (Reason.WRONG_ACCELERATOR, "")
    served: _CompiledMachine | None = None
    for machine in machines:
        stage, finding = _machine_finding(offer, machine, cpu_jobs_on_gpus)
        if finding is None:
            if served is None or machine.request.count > served.request.count:
                served = machine
            if ordered:
                break
        elif stage > furthest:
            furthest, reason = stage, finding
    return served or reason


def _machine_finding(offer: Offer, machine: _CompiledMachine, cpu_jobs_on_gpus: bool) -> tuple[int, _Finding | None]:
    """How many checks the offer passes for this machine, and the finding of the first failed one."""
    request = machine.request
    if not machine.provider(offer.provider):
        return 0, (Reason.WRONG_PROVIDER, f"{offer.provider}; the job asks for {request.infra}")
    if not machine.region(offer.region):
        return 1, (Reason.WRONG_REGION, f"{offer.region}; the job asks for {request.infra}")
    if machine.zone and not (offer.zone and machine.zone(offer.zone)):
        return 1, (Reason.WRONG_REGION, f"zone {offer.zone or 'not known'}; the job asks for {request.infra}")
    if request.capacity_types and (finding := _capacity_type(offer, request.capacity_types)):
        return 2, finding
    if failed := _accelerators(offer, machine, cpu_jobs_on_gpus):
        return failed
    if not machine.instance_type(offer.instance_type):
        return 5, (Reason.WRONG_INSTANCE_TYPE, f"{offer.instance_type}; the job asks for {request.instance_type}")
    if request.cpus is not None and (offer.cpus is None or offer.cpus < request.cpus):
        return 6, (Reason.TOO_FEW_CPUS, f"has {_figure(offer.cpus)}, needs {request.cpus:g}")
    if request.memory_gib is not None and (offer.memory_gib is None or offer.memory_gib < request.memory_gib):
        return 7, (Reason.TOO_LITTLE_MEMORY, f"has {_figure(offer.memory_gib)} GiB, needs {request.memory_gib:g} GiB")
    return 8, None


def _accelerators(offer: Offer, machine: _CompiledMachine, cpu_jobs_on_gpus: bool) -> tuple[int, _Finding] | None:
    """The failed check of kind (3) or number (4) of the accelerators."""
    request = machine.request
    if request.accelerator is None:
        # A job that names an instance type accepts its accelerators.
        if offer.accelerator is not None and not cpu_jobs_on_gpus and not request.instance_type:
            return 3, (Reason.NOT_A_CPU_OFFER, f"has {offer.machine}")
        return None
    if offer.accelerator != request.accelerator:
        stage, reason = 3, Reason.WRONG_ACCELERATOR
    elif offer.count < request.count:
        stage, reason = 4, Reason.TOO_FEW_ACCELERATORS
    elif offer.count > request.count and not (request.at_least or offer.may_be_free()):
        stage, reason = 4, Reason.TOO_MANY_ACCELERATORS
    else:
        return None
    return stage, (reason, f"has {offer.machine}, needs {machine.name}")


def _interconnect(offer: Offer, request: PreparedJob) -> _Finding | None:
    required = request.job.constraints.interconnect
    # A machine with one accelerator needs no interconnect.
    if required is None or required is Interconnect.NONE or offer.count <= 1:
        return None
    if offer.interconnect is None or _STRENGTH[offer.interconnect] < _STRENGTH[required]:
        return Reason.INTERCONNECT_TOO_WEAK, f"has {offer.interconnect or 'not known'}, needs {required}"
    return None


def _availability(offer: Offer, request: PreparedJob, served: _CompiledMachine) -> _Finding | None:
    if offer.availability is Availability.UNAVAILABLE:
        return Reason.UNAVAILABLE, offer.unavailable_because
    if offer.availability is Availability.NO_QUOTA:
        return Reason.NO_QUOTA, offer.unavailable_because
    nodes = request.job.num_nodes
    if offer.slots is not None and offer.slots < machines(offer, nodes):
        return Reason.TOO_FEW_MACHINES, f"has {offer.slots}, needs {nodes}"
    if in_use := shortage(offer, served.request, nodes):
        return Reason.TOO_FEW_MACHINES, in_use
    return request.excluded.get(offer.pool) if request.excluded else None


def _price(offer: Offer, request: PreparedJob) -> _Finding | None:
    if not offer.has_valid_price():
        return Reason.NO_PRICE, "not known" if offer.price is None else f"{offer.price}/h is not a possible price here"
    if offer.doubt is not None:
        return Reason.SUSPECT_OFFER, offer.doubt_detail or offer.doubt.text
    # Reference prices are marked as not live; an age limit does not apply to them.
    if offer.max_age is not None and not offer.reference and not request.conditions.allow_stale_prices:
        age = request.now - offer.as_of
        if age > offer.max_age:
            return Reason.STALE_PRICE, f"{duration_in_hours(age)} old; the limit is {duration_in_hours(offer.max_age)}"
    return None


def _engine(offer: Offer, request: PreparedJob) -> _Finding | None:
    if offer.engine is None and offer.term_months is not None:
        return Reason.NEEDS_COMMITMENT, f"{offer.term_months} months"
    if offer.engine is None:
        return (
            Reason.NO_ENGINE,
            offer.unavailable_because or f"no engine runs machines of {offer.provider} {offer.region}",
        )
    supported = request.conditions.engines.get(offer.engine)
    if supported is None:
        return Reason.ENGINE_NOT_INSTALLED, f"the engine {offer.engine!r} is not installed"
    if missing := request.needs - supported:
        details = {
            "image": _images(request),
            "several_nodes": f" ({request.job.num_nodes})",
            "another_machine": " (the job came over the network; an administrator can allow it here: `jobs_here = true`"
            " under `[serve]`)",
        }
        text = ", ".join(f"{need}{details.get(need, '')}" for need in sorted(missing))
        return Reason.ENGINE_CANNOT, f"{offer.engine} cannot do: {text}"
    if offer.engine in request.conditions.out_of_reach:
        return Reason.RUNS_OUT_OF_REACH, f"{offer.engine} cannot reach GPUBROKER_RUNS"
    return None


def _images(request: PreparedJob) -> str:
    images = dict.fromkeys(machine.request.image for machine in request.machines if machine.request.image)
    names = ", ".join(images)
    return (
        f" {names} (container images need the extra `skypilot` and a cloud or Kubernetes; here, write what the image"
        " brings into `setup:`)"
    )


def _compile_machine(rank: int, request: MachineRequest) -> _CompiledMachine:
    provider, region, zone = [*(request.infra or "").split("/"), "", ""][:3]
    return _CompiledMachine(
        rank=rank,
        name=request.machine,
        request=request,
        provider=_any_of((provider,) if provider else ()),
        region=_any_of((region,) if region else ()),
        zone=_any_of((zone,)) if zone and zone != "*" else None,
        instance_type=_any_of((request.instance_type,) if request.instance_type else ()),
    )


def _any_of(patterns: tuple[str, ...]) -> _Matches:
    """A test whether a name matches one of the shell-style patterns, ignoring case. No patterns match every name."""
    if not patterns or "*" in patterns:
        return lambda _: True
    compiled = re.compile("|".join(translate(pattern) for pattern in patterns), re.IGNORECASE)
    return cache(lambda name: compiled.match(name) is not None)


def _figure(value: float | None) -> str:
    return "an unknown number" if value is None else f"{value:g}"
