"""What would have to change for offers turned down to serve a job: one sentence a reason."""

from __future__ import annotations

from collections.abc import Iterable

from broker.core.reasons import Reason
from broker.engines.registry import ENGINES

REMEDIES: dict[Reason, str] = {
    Reason.WRONG_ACCELERATOR: "name more accelerators in the job: `gpubroker offers --group-by gpu` lists them",
    Reason.TOO_FEW_ACCELERATORS: "ask for fewer accelerators a machine, or for more machines with num_nodes",
    Reason.NOT_A_CPU_OFFER: "set `cpu_jobs_on_gpus: true` in a policy, or name an accelerator in the job",
    Reason.TOO_FEW_CPUS: "ask for fewer CPUs: resources.cpus",
    Reason.TOO_LITTLE_MEMORY: "ask for less memory: resources.memory",
    Reason.TOO_LITTLE_GPU_MEMORY: "a smaller batch, a lighter method or more accelerators: see `model:` in the job",
    Reason.WRONG_CAPACITY_TYPE: "let the job use more capacity types: constraints.capacity_types, resources.use_spot",
    Reason.WRONG_PROVIDER: "let the job go to more providers: constraints.providers, resources.infra",
    Reason.WRONG_REGION: "let the job go to more regions: constraints.regions, resources.region",
    Reason.WRONG_INSTANCE_TYPE: "leave out resources.instance_type",
    Reason.INTERCONNECT_TOO_WEAK: "leave out constraints.interconnect, or ask for pcie",
    Reason.UNAVAILABLE: "wait: the provider is asked again by `gpubroker prices poll`",
    Reason.NO_QUOTA: "ask the provider to raise the account's quota there",
    Reason.TOO_FEW_MACHINES: "wait until machines are free, or lower num_nodes",
    Reason.NO_PRICE: "the provider gave no price that makes sense: see `gpubroker prices status`",
    Reason.STALE_PRICE: "refresh it: `gpubroker prices poll`; or set `allow_stale_prices: true` in a policy",
    Reason.ENGINE_CANNOT: "leave out what its engine lacks (see the examples)",
    Reason.SANDBOX_NOT_ASKED_FOR: "for a trial on simulated capacity: constraints.providers: [sandbox]",
    Reason.NEEDS_COMMITMENT: "buy the reservation or commitment first; on-demand and spot need none",
    Reason.MISSES_DEADLINE: "a later deadline, faster accelerators, or less work",
    Reason.TOO_OFTEN_INTERRUPTED: "checkpoint more often (checkpoint.every), or leave spot capacity out",
    Reason.LAUNCH_FAILED_LATELY: "wait ten minutes: it is tried again then",
    Reason.NO_ENGINE: "gpubroker cannot run jobs there; `gpubroker doctor` lists the engines that work",
    Reason.REFERENCE_PRICE: "add credentials for live prices, or set `allow_reference_prices: true` in a policy",
    Reason.DENIED_BY_POLICY: "a budget owner can change this: `gpubroker policy show`",
}


def remedy(reason: Reason, details: Iterable[str] = ()) -> str:
    """What would change it. ``details``: of the offers that the reason struck; they name the engine that is missing,
    and one that there is only has to be installed."""
    if reason is Reason.NO_ENGINE and any(repr(name) in detail for detail in details for name in ENGINES):
        return "install what runs jobs there: `gpubroker doctor` lists it"
    if reason is Reason.ENGINE_CANNOT and any("GPUBROKER_RUNS" in detail for detail in details):
        return "set GPUBROKER_RUNS to a bucket that machines elsewhere reach: s3://…, gs://… or az://…"
    return REMEDIES[reason]
