"""Slurm's commands: run one, parse its output, classify its errors."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from broker.core.errors import AskAPerson, BrokerError, GiveUp, RetryLater, Throttled, TryAnotherOffer

_FULL = "it waits until Slurm has fewer of these jobs; `sacctmgr show assoc` and `show qos` list the limits"
_LIMITS = "`sacctmgr show assoc` and `show qos` list the limits"
_MEMORY = "set GPUBROKER_ENGINES__SLURM__MEMORY=cpu (--mem-per-cpu), or none where the cluster decides"
# Patterns of Slurm's messages with error class and advice; the first match counts. Every other message may pass, and
# is tried again. Source: src/common/slurm_errno.c of Slurm 22.05; before it, sbatch prints the name of the limit.
_MEANINGS: tuple[tuple[str, type[BrokerError], str], ...] = (
    ("unable to contact slurm controller", RetryLater, "is slurmctld up, and does munge run here?"),
    ("socket timed out", RetryLater, "the controller is busy or away"),
    ("connection refused", RetryLater, "is slurmctld up?"),
    ("zero bytes were transmitted", RetryLater, "the controller is starting or stopping"),
    (r"(qos|assoc|max)\w*submit\w*", Throttled, _FULL),
    ("temporarily unable to accept job", Throttled, "it waits until the cluster has fewer jobs (MaxJobCount)"),
    (r"(qos|assoc)(min|max\w*per(job|node))\w*", AskAPerson, _LIMITS),
    ("job submit limit", Throttled, _FULL),  # without a name, it may also be a limit of the job's size
    ("plugin_load", AskAPerson, "the Slurm commands here do not fit the cluster's"),
    ("node configuration is not available", TryAnotherOffer, ""),
    ("invalid partition", TryAnotherOffer, "`sinfo` lists the partitions"),
    ("invalid generic resource", TryAnotherOffer, "`sinfo -o %G` lists the GPUs"),
    ("more processors requested than permitted", TryAnotherOffer, ""),
    ("job violates accounting/qos policy", AskAPerson, _LIMITS),
    ("invalid account", AskAPerson, "set GPUBROKER_ENGINES__SLURM__ACCOUNT; `sacctmgr show assoc` lists accounts"),
    ("invalid qos", AskAPerson, "set GPUBROKER_ENGINES__SLURM__QOS"),
    (r"memory by node is not supported|use --mem-per-cpu|mem-per-cpu\b.* mutually exclusive", AskAPerson, _MEMORY),
    ("access/permission denied", AskAPerson, "ask the cluster's administrators"),
    ("not permitted to use this partition", AskAPerson, "ask the cluster's administrators"),
    ("invalid job id", GiveUp, ""),
    ("already complet", GiveUp, ""),
    ("job .* is not running", GiveUp, ""),
)
_TIMEOUT = 30.0  # seconds; longer than Slurm's own MessageTimeout (10 s by default)


@dataclass(frozen=True, slots=True)
class SqueueRow:
    """One job in squeue. Times are UTC; None if Slurm does not know (yet)."""

    number: str
    key: str
    state: str
    started: datetime | None
    ended: datetime | None
    reason: str
    nodes: str


def run(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """Run the command and return its output. ``environment`` is added to this process's; printed times are UTC.

    Raises the error that Slurm's message means: `RetryLater` (also after a time-out, and for unknown messages),
    `TryAnotherOffer`, `AskAPerson`, and `GiveUp` for a job that has ended.
    """
    name = arguments[0]
    try:
        result = subprocess.run(  # noqa: S603 (a fixed command; no shell reads its arguments)
            list(arguments),
            env={**os.environ, **(environment or {}), "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RetryLater(f"{name} did not answer within {_TIMEOUT:.0f} s", where="slurm") from error
    except OSError as error:
        hint = "install Slurm's commands here, or run gpubroker on a login node of the cluster"
        raise AskAPerson(f"{name} cannot be run: {error.strerror or error}", where="slurm", hint=hint) from error
    if result.returncode == 0:
        return result.stdout
    raise error_of(name, result.stderr or result.stdout)


def error_of(name: str, output: str) -> BrokerError:
    """The error for the command's message."""
    text = " ".join(output.split())
    for pattern, kind, hint in _MEANINGS:
        if re.search(pattern, text, re.IGNORECASE):
            return kind(f"{name}: {text[:300]}", where="slurm", hint=hint)
    # A command that was killed says nothing.
    return RetryLater(f"{name}: {text[:300]}" if text else f"{name} failed without a message", where="slurm")


_FIELDS = "%i|%j|%T|%S|%e|%r|%N"


def own_jobs(key: str | None = None) -> list[SqueueRow]:
    """This user's jobs, including ended ones for as long as slurmctld remembers them (MinJobAge); with ``key``, only
    jobs of that name."""
    name_filter = [f"--name={key}"] if key else []
    user = f"--user={os.getuid()}"
    output = run(["squeue", "--noheader", "--states=all", user, "--format", _FIELDS, *name_filter])
    return [row for line in output.splitlines() if (row := _row(line)) is not None]


def accounting_record(number: str) -> SqueueRow | None:
    """Slurm's accounting record of a job that slurmctld has forgotten; None without accounting."""
    fields = "JobIDRaw,JobName,State,Start,End,Reason,NodeList"
    try:
        output = run(["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={number}", f"--format={fields}"])
    except BrokerError:
        return None
    rows = [row for line in output.splitlines() if (row := _row(line)) is not None]
    return rows[-1] if rows else None


def cluster_name() -> str:
    """The cluster's name. Raises what `run` raises, and `GiveUp` if the configuration has none."""
    for line in run(["scontrol", "show", "config"]).splitlines():
        word, _, value = line.partition("=")
        if word.strip() == "ClusterName":
            return value.strip()
    raise GiveUp("scontrol show config names no ClusterName", where="slurm")


def _row(line: str) -> SqueueRow | None:
    parts = line.split("|")
    if len(parts) != 7:
        return None
    number, key, state, started, ended, reason, nodes = (part.strip() for part in parts)
    state = state.split(" ")[0].rstrip("+")  # sacct writes "CANCELLED by 1000"
    return SqueueRow(number, key, state, _time(started), _time(ended), reason, nodes)


def _time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:  # N/A, Unknown, NONE
        return None
