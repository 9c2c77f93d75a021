"""The background reconciler: one process per store, started by any command that needs it; it ends when no work is left.

The process holds the store's leader lock. The lock ends with the process, however that ends, so any command can see
whether a reconciler runs, and start another.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from broker.app.runs_root import root
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.core.events.outcomes import AttemptState, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import OwnerMustStart, SecretsMissing
from broker.core.extras import own_version
from broker.core.job.jobs import Job
from broker.settings import environment_of, variable

if TYPE_CHECKING:
    from broker.store.jobs.reader import StoreReader

# The newest requested turn: a token. A process with another one steps down, so that a process with other secrets in its
# environment may lead. A process gets its own turn in the variable.
TURN = "reconciler_turn"
OWN_TURN = "GPUBROKER_RECONCILER_TURN"
_LAUNCH_TIMEOUT = timedelta(minutes=1)  # a launch that is not made for this long may lack its secrets

_START_UP = 5.0  # seconds of the wall clock that a reconciler may take to start
_start_times: dict[str, float] = {}  # by store URL: when this process last started a reconciler


def is_running(broker: Broker) -> bool:
    """Whether a process reconciles this store's jobs now."""
    return broker.store.is_led()


def leader_objection(broker: Broker, job: Job) -> str:
    """Why the process that runs the jobs now cannot run this one, in words; empty if it can, or if none runs."""
    leader = broker.store.leader_reads()
    if leader is None or not (objection := leader.objection(job)) or not is_running(broker):
        return ""
    return (
        f"gpubroker {leader.version}, which runs the jobs of this store, {objection}; this is gpubroker {own_version()}"
    )


def ensure(broker: Broker, for_secrets_of: JobView | None = None) -> bool:
    """Start the background reconciler unless one runs; returns whether one was started.

    ``for_secrets_of``: a job whose secrets are in this process's environment, or that only processes of its owner may
    start on this machine. A running reconciler cannot receive them, so it is asked to step down after its next pass,
    and the new one takes over. Jobs whose secrets only the old one had then wait, and report that.

    Safe to call at any time: a second process finds the lead taken and ends.
    """
    turn = ""
    if is_running(broker):
        waiting_job = for_secrets_of
        if waiting_job is None or not (waiting_job.job.secrets or isinstance(waiting_job.waiting, OwnerMustStart)):
            return False
        turn = secrets.token_hex(8)
        broker.store.set_setting(TURN, turn)
    home = broker.settings.home
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    environment = {**os.environ, **environment_of(broker.settings), variable("runs"): root(broker), OWN_TURN: turn}
    with open(home / "reconciler.out", "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
        subprocess.Popen(  # noqa: S603  # gpubroker itself, by its full path; no shell, no input from others
            [*broker.registries.command, "reconcile"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment,
            cwd=home,
            start_new_session=True,
            close_fds=True,
        )
    _start_times[broker.settings.store_url] = time.monotonic()
    return True


def step_down(broker: Broker) -> None:
    """Ask a background reconciler to end after its next pass. `gpubroker serve` continues."""
    broker.store.set_setting(TURN, secrets.token_hex(8))


def has_work_left(broker: Broker) -> bool:
    """Whether a reconciler has work: an open job that can proceed without a person."""
    person_states, now = (JobState.AWAITING_APPROVAL, JobState.PAUSED_BUDGET), broker.clock.now()
    with broker.store.reading() as reader:
        return any(
            view.state not in person_states
            or view.cancel_requested
            or (view.asked is not None and view.asked.expired(now))
            or _policies_changed(broker, reader, view)
            or not all(a.over for a in view.attempts)
            for view in reader.unclosed()
        )


def _policies_changed(broker: Broker, reader: StoreReader, view: JobView) -> bool:
    """Whether the policies changed since the job's open request was judged, or since a policy stopped the job.
    Unreadable policies change nothing."""
    from broker.app.jobs import approval_reevaluation  # needed only if something waits for people
    from broker.reconciler.controllers import continuation

    try:
        policy = broker.policy(reader)
        return approval_reevaluation.is_due(reader, view, policy) or continuation.is_due(reader, view, policy)
    except BrokerError:
        return False


def revive(broker: Broker) -> None:
    """Start a reconciler if the last one ended with work left, and replace one that lacks secrets which this process
    has. Any command may call this at any time. Raises `StoreProblem`."""
    with broker.store.reading() as reader:
        if not reader.has_open_jobs():
            return  # then it does not matter whether one runs
    # A reconciler that this process has just started needs a moment to take the lead.
    if time.monotonic() - _start_times.get(broker.settings.store_url, -_START_UP) < _START_UP:
        return
    if not is_running(broker):
        if has_work_left(broker):
            ensure(broker)
    elif startable_job := _job_startable_here(broker):
        ensure(broker, for_secrets_of=startable_job)


def _job_startable_here(broker: Broker) -> JobView | None:
    """A job of this user that waits for secrets which this process has, or for a process of this user."""
    states = (JobState.QUEUED, JobState.PLANNED, JobState.INTERRUPTED, JobState.LAUNCHING)
    with broker.store.reading() as reader:
        own_jobs = reader.jobs(states=[state.value for state in states], users=[broker.account.user], with_tasks=True)
    now = broker.clock.now()
    for view in own_jobs:
        if isinstance(view.waiting, OwnerMustStart):
            return view  # another person's process leads and must not run this user's commands under its account
        latest, secret_names = view.latest, view.job.secrets
        is_unlaunched = latest is not None and latest.state is AttemptState.REQUESTED
        lacks_secrets = isinstance(view.waiting, SecretsMissing)
        is_waiting = now - latest.requested_at > _LAUNCH_TIMEOUT if latest and is_unlaunched else lacks_secrets
        if secret_names and is_waiting and all(name in os.environ for name in secret_names):
            return view
    return None


def program_command() -> tuple[str, ...]:
    """The command that starts this program with the same interpreter, importing nothing from the working directory."""
    return (sys.executable, "-P", "-m", "cli")
