"""The files of a deployment: a job file and a policy file, ready to use."""

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal

from broker.app.advise.deploy.situation import DeployDemand
from broker.core.documents import print_document
from broker.core.job.file import print_job
from broker.core.job.jobs import CheckpointPlan, Constraints, Data, Job, MachineRequest, Retry, Work, Workload
from broker.core.market.offers import CapacityType, Interconnect
from broker.core.values.money import Money
from broker.core.values.units import MAX_DURATION, MAX_MONEY, print_money, split_machine
from broker.economics.assumptions import Assumptions
from broker.economics.kinds import Goal
from broker.economics.parallelism import ParallelPlan

PRIVATE = (CapacityType.OWNED,)
_RENTED = (CapacityType.RESERVED, CapacityType.SPOT, CapacityType.ON_DEMAND)
_MAX_JOB_TIME = MAX_DURATION - timedelta(days=1)
_RUN = {
    Goal.FINE_TUNE: 'python finetune.py --resume "$GPUBROKER_CHECKPOINT_DIR"',
    Goal.PRETRAIN: 'python pretrain.py --resume "$GPUBROKER_CHECKPOINT_DIR"',
    Goal.SERVE: "python serve.py",
}


def limited_duration(length: float) -> timedelta:
    """``length`` hours in whole minutes: at least one minute, at most the maximum of a job file."""
    return min(timedelta(minutes=max(1, round(length * 60))), _MAX_JOB_TIME)


def limited_money(amount: float) -> Money:
    """``amount`` (USD) in whole cents: at least one cent, at most the maximum of a job file."""
    return min(max(Money.usd(Decimal(f"{amount:.2f}")), Money.usd("0.01")), MAX_MONEY)


def training_job(
    situation: DeployDemand,
    plan: ParallelPlan,
    machines: Sequence[str],
    assumptions: Assumptions,
    *,
    work_hours: float,
    limit_hours: float,
    checkpoint: CheckpointPlan,
    max_cost: float,
) -> Job:
    """The job. Its ``work`` is stated for the first of ``machines``; the others are alternatives. ``max_cost``: USD."""
    accelerator, count = split_machine(machines[0])
    has_nvlink = plan.interconnect == Interconnect.NVLINK
    return Job(
        name=situation.name,
        workload=Workload.TRAINING,
        resources=tuple(_request(machine) for machine in machines),
        num_nodes=plan.num_nodes,
        run=_RUN[situation.goal],
        work=Work(duration=limited_duration(work_hours), accelerator=accelerator, count=count),
        deadline=None if assumptions.deadline_hours is None else limited_duration(assumptions.deadline_hours),
        max_duration=limited_duration(limit_hours),
        max_cost=limited_money(max_cost),
        checkpoint=checkpoint,
        retry=Retry(failures=2, backoff=timedelta(minutes=1)),
        data=Data(sensitive=situation.sensitive),
        constraints=_constraints(situation, interconnect=Interconnect.NVLINK if has_nvlink else None),
    )


def serving_job(
    situation: DeployDemand,
    machine: str,
    nodes: int,
    *,
    monthly: float,
    name: str | None = None,
    hours_a_day: float = 24.0,
    types: Sequence[CapacityType] = (),
) -> Job:
    """The job for a month of serving; it is submitted again each month. ``monthly``: USD. With fewer than 24
    ``hours_a_day`` it covers one day. ``types``: the only capacity types it may use."""
    return Job(
        name=name or situation.name,
        workload=Workload.INFERENCE,
        resources=(_request(machine),),
        num_nodes=nodes,
        run=_RUN[Goal.SERVE],
        max_duration=timedelta(days=30) if hours_a_day >= 24 else limited_duration(hours_a_day),
        max_cost=limited_money(monthly),
        retry=Retry(failures=10, backoff=timedelta(minutes=1)),
        data=Data(sensitive=situation.sensitive),
        constraints=_constraints(situation, types=types),
    )


def _constraints(
    situation: DeployDemand, *, types: Sequence[CapacityType] = (), interconnect: Interconnect | None = None
) -> Constraints:
    """Owned machines only, for sensitive data; otherwise the places that the demand is limited to."""
    return Constraints(
        providers=situation.places.providers,
        regions=situation.places.regions,
        capacity_types=PRIVATE if situation.owned_only else tuple(types),
        interconnect=interconnect,
    )


def job_text(job: Job, summary: str) -> str:
    """The job file, with its purpose as a comment."""
    header = f"# {summary}\n# `run` is yours to write; the rest was computed by `gpubroker advise deploy`.\n"
    return header + print_job(job)


def burst_text(
    situation: DeployDemand, machine: str, nodes: int, *, hours_a_day: float, daily: float, steady_machines: str
) -> str:
    """The job file of one day's burst, on rented machines. ``daily``: its limit, USD; ``steady_machines``: the machines
    that serve the steady demand."""
    job = serving_job(
        situation, machine, nodes, monthly=daily, name=f"{situation.name[:34]}-burst",
        hours_a_day=hours_a_day, types=_RENTED,
    )  # fmt: skip
    return job_text(job, f"demand above what {steady_machines} serve: submit it when a burst begins")


def policy_text(
    situation: DeployDemand,
    *,
    budget: float,
    usd_per_gpu_hour: float | None,
    accelerator: str,
    gpus: int,
    order: Sequence[str],
) -> str:
    """A policy that allows this job and little more. ``budget``: USD; ``order``: of capacity types."""
    guardrails: list[dict[str, object]] = [{"name": f"{situation.name}-gpus", "max_concurrent_gpus": gpus}]
    if usd_per_gpu_hour:
        limit = print_money(limited_money(usd_per_gpu_hour))
        guardrails.append({"name": f"{situation.name}-price", "max_price_per_gpu_hour": {accelerator: limit}})
    places: dict[str, object] = {}
    if situation.owned_only:
        places["providers"] = {"allow": ["owned", "slurm"]}
    if situation.places.providers:
        places["providers"] = {"allow": list(situation.places.providers)}
    if situation.places.regions or situation.places.not_in:
        regions = {"allow": situation.places.regions, "deny": situation.places.not_in}
        places["regions"] = {key: list(patterns) for key, patterns in regions.items() if patterns}
    if places:
        guardrails.append({"name": f"{situation.name}-place", "allowed_locations": places})
    return print_document(
        {
            "version": 1,
            "policy": situation.name,
            "capacity": {"order": list(order)},
            "budgets": [
                {"name": f"{situation.name}-month", "amount": print_money(limited_money(budget)), "period": "month"}
            ],
            "guardrails": guardrails,
        }
    )


def _request(machine: str) -> MachineRequest:
    name, count = split_machine(machine)
    return MachineRequest(accelerator=name, count=count)
