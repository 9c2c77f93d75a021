"""The files of a deployment: a job file and a policy file, ready to use."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal

from broker.app.advise.deploy.situation import DeployDemand
from broker.app.advise.goal import Goal
from broker.core.documents import print_document
from broker.core.job.file import print_job
from broker.core.job.jobs import CheckpointPlan, Constraints, Data, Job, MachineRequest, Retry, Work, Workload
from broker.core.market.offers import CapacityType, Interconnect
from broker.core.values.money import Money
from broker.core.values.units import MAX_DURATION, MAX_MONEY, print_money, split_machine

PRIVATE = (CapacityType.OWNED,)
_LONGEST = MAX_DURATION - timedelta(days=1)
_RUN = {
    Goal.FINE_TUNE: 'python finetune.py --resume "$GPUBROKER_CHECKPOINT_DIR"',
    Goal.PRETRAIN: 'python pretrain.py --resume "$GPUBROKER_CHECKPOINT_DIR"',
    Goal.SERVE: "python serve.py",
}


def hours(length: float) -> timedelta:
    """The hours as whole minutes, at least one, at most the maximum of a job file."""
    return min(timedelta(minutes=max(1, round(length * 60))), _LONGEST)


def dollars(amount: float) -> Money:
    """The amount in whole cents, at least one, at most the maximum of a job file."""
    return min(max(Money.usd(Decimal(f"{amount:.2f}")), Money.usd("0.01")), MAX_MONEY)


def training_job(
    situation: DeployDemand,
    machines: Sequence[str],
    nodes: int,
    *,
    work_hours: float,
    limit_hours: float,
    checkpoint: CheckpointPlan,
    max_cost: float,
    linked: bool,
) -> Job:
    """The job. ``work`` is that of the first machine; the others are alternatives."""
    first, count = split_machine(machines[0])
    return Job(
        name=situation.name,
        workload=Workload.TRAINING,
        resources=tuple(_request(machine) for machine in machines),
        num_nodes=nodes,
        run=_RUN[situation.goal],
        work=Work(duration=hours(work_hours), accelerator=first, count=count),
        deadline=None if situation.deadline_hours is None else hours(situation.deadline_hours),
        max_duration=hours(limit_hours),
        max_cost=dollars(max_cost),
        checkpoint=checkpoint,
        retry=Retry(failures=2, backoff=timedelta(minutes=1)),
        data=Data(sensitive=situation.sensitive),
        constraints=Constraints(
            capacity_types=PRIVATE if situation.sensitive else (),
            interconnect=Interconnect.NVLINK if linked else None,
        ),
    )


def serving_job(situation: DeployDemand, machine: str, nodes: int, *, monthly: float) -> Job:
    """The job for a month of serving; it is submitted again each month."""
    return Job(
        name=situation.name,
        workload=Workload.INFERENCE,
        resources=(_request(machine),),
        num_nodes=nodes,
        run=_RUN[Goal.SERVE],
        max_duration=timedelta(days=30),
        max_cost=dollars(monthly),
        retry=Retry(failures=10, backoff=timedelta(minutes=1)),
        data=Data(sensitive=situation.sensitive),
        constraints=Constraints(capacity_types=PRIVATE if situation.sensitive else ()),
    )


def job_text(job: Job, summary: str) -> str:
    """The job file, with its purpose as a comment."""
    said = f"# {summary}\n# `run` is yours to write; the rest was worked out by `gpubroker advise deploy`.\n"
    return said + print_job(job)


def policy_text(
    situation: DeployDemand,
    *,
    budget: float,
    usd_per_gpu_hour: float | None,
    accelerator: str,
    gpus: int,
    order: Sequence[str],
) -> str:
    """A policy that allows this job and little more."""
    guardrails: list[dict[str, object]] = [{"name": f"{situation.name}-gpus", "max_concurrent_gpus": gpus}]
    if usd_per_gpu_hour:
        limit = print_money(dollars(usd_per_gpu_hour))
        guardrails.append({"name": f"{situation.name}-price", "max_price_per_gpu_hour": {accelerator: limit}})
    if situation.sensitive:
        only = {"providers": {"allow": ["owned", "slurm"]}}
        guardrails.append({"name": f"{situation.name}-place", "allowed_locations": only})
    return print_document(
        {
            "version": 1,
            "policy": situation.name,
            "capacity": {"order": list(order)},
            "budgets": [{"name": f"{situation.name}-month", "amount": print_money(dollars(budget)), "period": "month"}],
            "guardrails": guardrails,
        }
    )


def _request(machine: str) -> MachineRequest:
    name, count = split_machine(machine)
    return MachineRequest(accelerator=name, count=count)
