"""Commands and options that were removed or renamed, and what to use instead. A release may empty the table."""

from __future__ import annotations

from collections.abc import Mapping

# A command, a group, or a command with an option, without `gpubroker`: what to say of it. The answer begins with the
# key: "`gpubroker advise throughput` is now `gpubroker advise speed`". Commands in backquotes are whole and exist.
RENAMES: Mapping[str, str] = {
    "advise buy-or-rent --picture": "was removed: --chart draws in the terminal, --json has the figures",
    "advise hardware --picture": "was removed: --chart draws in the terminal, --json has the figures",
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


def renamed(command: str, part: str = "") -> str:
    """What to use instead of the option or subcommand ``part`` of a command, or of the command itself; empty if the
    table does not know it."""
    key = f"{command} {part}".strip()
    return f"`gpubroker {key}` {RENAMES[key]}" if key in RENAMES else ""
