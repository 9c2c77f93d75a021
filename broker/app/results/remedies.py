"""What a user can change so that rejected offers match: one sentence for each rejection reason."""

from __future__ import annotations

from broker.core.job.reasons import Reason

REMEDIES: dict[Reason, str] = {
    Reason.WRONG_ACCELERATOR: "allow more accelerators in the job; `gpubroker offers --by gpu` lists them",
    Reason.TOO_FEW_ACCELERATORS: "request fewer accelerators per machine, or more machines with num_nodes",
    Reason.TOO_MANY_ACCELERATORS: "to allow larger machines, add a `+` to the number: `L4:1+`",
    Reason.NOT_A_CPU_OFFER: "set `cpu_jobs_on_gpus: true` in a policy, or name an accelerator in the job",
    Reason.TOO_FEW_CPUS: "request fewer CPUs: resources.cpus",
    Reason.TOO_LITTLE_MEMORY: "request less memory: resources.memory",
    Reason.TOO_LITTLE_GPU_MEMORY: "use a smaller batch, more accelerators or a method that needs less memory: `model:`",
    Reason.WRONG_CAPACITY_TYPE: "allow more capacity types: constraints.capacity_types, resources.use_spot",
    Reason.WRONG_PROVIDER: "allow more providers: constraints.providers, resources.infra",
    Reason.WRONG_REGION: "allow more regions: constraints.regions, resources.region",
    Reason.WRONG_INSTANCE_TYPE: "remove resources.instance_type",
    Reason.INTERCONNECT_TOO_WEAK: "remove constraints.interconnect, or set it to pcie",
    Reason.UNAVAILABLE: "wait for capacity; `gpubroker prices poll` updates the availability",
    Reason.NO_QUOTA: "request a higher quota from the provider",
    Reason.TOO_FEW_MACHINES: "wait until machines are free, or lower num_nodes",
    Reason.NO_PRICE: "the provider reported no valid price; see `gpubroker prices status`",
    Reason.STALE_PRICE: "refresh prices with `gpubroker prices poll`, or set `allow_stale_prices: true` in a policy",
    Reason.SUSPECT_OFFER: (
        "see `gpubroker prices status`; if the offer is right, accept it with `gpubroker prices accept PROVIDER`"
    ),
    Reason.ENGINE_CANNOT: "remove what the engine does not support (see the examples)",
    Reason.SANDBOX_NOT_ASKED_FOR: "to use simulated capacity, set constraints.providers: [sandbox]",
    Reason.NEEDS_COMMITMENT: "buy the reservation or commitment first; on-demand and spot capacity need none",
    Reason.MISSES_DEADLINE: "set a later deadline, allow faster accelerators, or reduce the work",
    Reason.TOO_OFTEN_INTERRUPTED: "checkpoint more often (checkpoint.every), or exclude spot capacity",
    Reason.LAUNCH_FAILED_LATELY: "wait ten minutes; the broker then retries the launch",
    Reason.LAUNCH_REFUSED: "see why with `jobs attempts`; once that is corrected, submit the job again",
    Reason.NO_ENGINE: (
        "gpubroker has no engine for these machines; allow other providers or regions; see `gpubroker doctor`"
    ),
    Reason.ENGINE_NOT_INSTALLED: "install the engine for this provider; `gpubroker doctor` shows how",
    Reason.RUNS_OUT_OF_REACH: (
        "set GPUBROKER_RUNS to a bucket that remote machines can reach: s3://…, gs://… or az://…"
    ),
    Reason.REFERENCE_PRICE: "add credentials for live prices, or set `allow_reference_prices: true` in a policy",
    Reason.DENIED_BY_POLICY: "ask a budget owner to change the policy; `gpubroker policy show` prints it",
}
