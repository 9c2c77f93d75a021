"""Commands and options that were removed or renamed, and what to use instead. A release may empty the table."""

from __future__ import annotations

from collections.abc import Mapping

# A command, a group, or a command with an option, without `gpubroker`: what to say of it. The answer begins with the
# key: "`gpubroker advise throughput` is now `gpubroker advise speed`". Commands in backquotes are whole and exist.
RENAMES: Mapping[str, str] = {
    "advise buy-or-rent --picture": "was removed: --chart draws in the terminal, --json has the figures",
    "advise capacity": "is now `gpubroker advise buy-or-rent`",
    "advise cluster-cost": "is now `gpubroker advise cost cluster`",
    "advise eco": "is now `gpubroker advise hardware --hours N --location PLACE`",
    "advise embed": "is now `gpubroker advise cost embedding`",
    "advise hardware --picture": "was removed: --chart draws in the terminal, --json has the figures",
    "advise images": "is now `gpubroker advise cost images`",
    "advise parallelism": "is now `gpubroker advise size MODEL --gpu NAME`",
    "advise run-cost": "is now `gpubroker advise cost run`",
    "advise scale": "is now `gpubroker advise speed MODEL --tokens N`",
    "advise throughput": "is now `gpubroker advise speed`",
    "advise unit-cost": "is now `gpubroker advise cost unit`",
    "backtest": "left: in a checkout, `python -m tests.lab.placement` and `python -m tests.lab.reserve` measure that",
    "budget show --picture": "was removed: `gpubroker serve` draws budgets on its page, --chart in the terminal",
    "capacity approve": "is now `gpubroker capacity grant PURCHASE`",
    "capacity cancel": "is now `gpubroker capacity undo PURCHASE`",
    "capacity plan --from-history": "was removed: without --demand, it uses the demand recorded in this store",
    "capacity plan --gpu": "is now `gpubroker capacity plan --where gpu=NAME`",
    "capacity plan --kwh-usd": "is now `gpubroker capacity plan --assume kwh_usd=USD`",
    "capacity plan --life": "is now `gpubroker capacity plan --assume life=TIME`",
    "capacity plan --picture": "was removed: --chart draws in the terminal, --json has the figures",
    "capacity plan --provider": "is now `gpubroker capacity plan --where provider=NAME`",
    "capacity plan --pue": "is now `gpubroker capacity plan --assume pue=N`",
    "capacity plan --watts": "is now `gpubroker capacity plan --assume watts=N`",
    "capacity quote --extends": "was removed: buy another block with `gpubroker capacity buy`",
    "capacity reject": "is now `gpubroker capacity refuse PURCHASE`",
    "capacity return": "is now `gpubroker capacity undo PURCHASE`",
    "capacity sell": "was removed: sell it at its provider; `gpubroker capacity undo` undoes what can be undone",
    "capacity withdraw": "is now `gpubroker capacity undo PURCHASE`",
    "jobs attach": "is now `gpubroker exec -it JOB`",
    "jobs checkpoints": "is now `gpubroker jobs files JOB --checkpoints`",
    "jobs list --array": "is now `gpubroker jobs list --where array=JOB`",
    "jobs list --state": "is now `gpubroker jobs list --where state=STATE`",
    "jobs list --team": "is now `gpubroker jobs list --where team=TEAM`",
    "jobs retry": "is now `gpubroker jobs resume JOB --same-files`, or `gpubroker jobs resume JOB --from-start`",
    "jobs show --files": "is now `gpubroker jobs files JOB --submitted`",
    "offers --capacity-type": "is now `gpubroker offers --where capacity_type=TYPE`",
    "offers --doubted": "is now `gpubroker offers --where price_kind=doubted`",
    "offers --group-by": "is now `gpubroker offers --by DIMS`",
    "offers --live": "is now `gpubroker offers --where price_kind=live`",
    "offers --machine-type": "is now `gpubroker offers --where instance_type=TYPE`",
    "offers --old": "is now `gpubroker offers --all`",
    "offers --on-demand": "is now `gpubroker offers --where capacity_type=on-demand`",
    "offers --owned": "is now `gpubroker offers --where capacity_type=owned`",
    "offers --provider": "is now `gpubroker offers --where provider=NAME`",
    "offers --region": "is now `gpubroker offers --where region=NAME`",
    "offers --reserved": "is now `gpubroker offers --where capacity_type=reserved`",
    "people add": "is now `gpubroker people invite`; service accounts: `gpubroker tokens create NAME --service`",
    "people link": "is now `gpubroker people invite NAME --subject SUBJECT`",
    "people second-factor": "was removed: people have their second factor at the identity provider (setting `sign_in`)",
    "policy apply --no-past": "was removed: decisions of the last 30 days are always judged again",
    "policy apply --past": "was removed: decisions of the last 30 days are always judged again",
    "policy backtest": "left: `gpubroker policy apply --dry-run` judges past decisions, too",
    "policy preview": "is now `gpubroker policy apply FILES --dry-run`",
    "policy rollback --no-past": "was removed: decisions of the last 30 days are always judged again",
    "policy rollback --past": "was removed: decisions of the last 30 days are always judged again",
    "policy schema": "is now `gpubroker schema policy-file`",
    "policy show --history": "is now `gpubroker policy versions`",
    "prices history --capacity-type": "is now `gpubroker prices history --where capacity_type=TYPE`",
    "prices history --picture": "was removed: `gpubroker serve` draws prices on its page, --chart in the terminal",
    "prices history --provider": "is now `gpubroker prices history --where provider=NAME`",
    "prices history --region": "is now `gpubroker prices history --where region=NAME`",
    "prices watch add --available": "is now `gpubroker prices watch add available`",
    "prices watch add --below": "is now `gpubroker prices watch add below=USD`",
    "prices watch add --capacity-type": "is now `gpubroker prices watch add CONDITION --where capacity_type=TYPE`",
    "prices watch add --provider": "is now `gpubroker prices watch add CONDITION --where provider=NAME`",
    "prices watch add --region": "is now `gpubroker prices watch add CONDITION --where region=NAME`",
    "prices watch add --rises": "is now `gpubroker prices watch add rises=PERCENT/TIME`",
    "prices watch add --stale": "is now `gpubroker prices watch add stale=TIME`",
    "prices watch add --within": "is now `gpubroker prices watch add rises=PERCENT/TIME`",
    "simulate": "left: in a checkout, `python -m tests.lab.simulate` does that, or `gpubroker policy apply --dry-run`",
    "ssh-config": "is now `gpubroker ssh JOB --config`",
    "store archive": "was removed: events stay in the database; `gpubroker prices prune` deletes older price history",
}


# Options of all commands of `gpubroker advise`: the assumption, or what else it is now.
ADVICE: Mapping[str, str] = {
    "--activations-per-weight": "activations_per_weight", "--adapted": "adapted", "--batch": "batch",
    "--adapter-fraction": "adapter_fraction", "--burst-hours": "burst_hours", "--cold-start": "cold_start_s",
    "--cold-starts-per-day": "cold_starts_per_day", "--context": "context", "--discount-rate": "discount_rate",
    "--facility-usd": "facility_usd", "--gpus-per-machine": "gpus_per_machine",
    "--gpus-per-replica": "gpus_per_replica",
    "--gradient-bytes": "gradient_bytes", "--gradients-freed": "gradients_freed", "--head-dim": "head_dim",
    "--headroom": "memory_headroom", "--heads": "heads", "--hidden": "hidden_size", "--hours-per-day": "hours_per_day",
    "--idle-share": "idle_share", "--kv-heads": "kv_heads", "--kv-precision": "kv_precision", "--kwh-usd": "kwh_usd",
    "--layers": "layers", "--lead-time-weeks": "lead_time_weeks", "--least-replicas": "least_replicas",
    "--location": "location", "--logit-bytes": "logit_bytes", "--method": "method", "--months": "years",
    "--obsolescence": "obsolete_after_years", "--offload": "offload", "--p95": "p95_s",
    "--peak-to-baseline": "peak_to_baseline", "--pp": "pipeline_degree", "--precision": "precision",
    "--prefix-cache": "prefix_cache", "--price-decline": "price_decline", "--prompt-tokens": "prompt_tokens",
    "--pue": "pue", "--purchase-usd": "purchase_usd", "--recompute": "recomputation",
    "--rent-usd-per-hour": "rent_usd_per_hour", "--resale-usd": "resale_share", "--spare-machines": "spare_machines",
    "--staff-usd-per-hour": "staff_usd_per_gpu_hour", "--target-utilisation": "training_utilization",
    "--tokens-per-request": "tokens_per_request", "--tokens-per-second-per-replica": "replica_tokens_per_second",
    "--tp": "tensor_degree", "--utilisation": "utilization", "--warm-replicas": "warm_replicas", "--watts": "watts",
    "--zero": "zero", "--rules": "`--assume FILE` of each command",
    "--parameters": "the argument MODEL, such as 7B", "--config": "the argument MODEL, a file",
    "--for": "the argument before MODEL", "--provider": "`--where provider=NAME`", "--days": "`--from-history DAYS`",
    "--region": "`--where region=NAME`", "--residency": "`--where residency=eu`",
    "--compliance": "`--where compliance=NAME`", "--job-file": "`--write FOLDER`", "--policy-file": "`--write FOLDER`",
    "--burst-file": "`--write FOLDER`", "--inference": "`--method inference`", "--full-fine-tuning": "`--method adamw`",
    "--exact-output": "`--is exact-output`", "--quantised": "`--is quantized`", "--batched": "`--is batched`",
    "--interruptible": "`--is interruptible`", "--checkpointed": "`--is checkpointed`", "--on-spot": "`--is on-spot`",
    "--committed": "`--is committed`", "--autoscaled": "`--is autoscaled`", "--moves-data": "`--is moves-data`",
}  # fmt: skip


def renamed(command: str, part: str = "") -> str:
    """What to use instead of the option or subcommand ``part`` of a command, or of the command itself; empty if the
    table does not know it."""
    key = f"{command} {part}".strip()
    if command.startswith("advise") and part in ADVICE:
        new = ADVICE[part]
        return f"`gpubroker {key}` is now {new if ' ' in new else f'`--assume {new}=VALUE`'}"
    return f"`gpubroker {key}` {RENAMES[key]}" if key in RENAMES else ""
