"""The jobs of a chaos run: each counts up, a checkpoint a number, prints its secret, saves results, and leaves marks by
which it can be told afterwards whether it ever ran twice at the same time."""

import random
import sys
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from broker.app.jobs import approvals, jobs
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.extension import extend
from broker.app.jobs.job_input import read_job
from broker.app.jobs.resume import retried_job
from broker.app.jobs.submit import submit
from broker.app.wiring import Broker
from broker.cli.identity import process_actor
from broker.core.errors import BrokerError
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import PredecessorFailed
from tests.actors import person

# The lock goes with the last process that has it, however that ends: who does not get it is not alone. (Its file stands
# for the job, or for one node or task of it.) Some leave the session of their agent, and so outlive a killed guard:
# they run until somebody ends them, as a long training does. While their disk is full, they wait. A mark is one line:
# attempt, node, what.
COMMAND = """\
[ -z "$APART" ] || APART='' exec setsid --wait bash "$0"
me="$MARKS/$GPUBROKER_JOB_ID-$GPUBROKER_RANK"
mkdir -p "$MARKS"
exec 9>>"$MARKS/$GPUBROKER_TASK_INDEX$GPUBROKER_RANK.lock"
flock --nonblock 9 || echo "$GPUBROKER_ATTEMPT $GPUBROKER_RANK twice" >> "$me"
echo "$GPUBROKER_ATTEMPT $GPUBROKER_RANK start" >> "$me"
echo "logged in with $CHAOS_TOKEN"
[ "$(find "$GPUBROKER_INPUT_DIR" -path '*/part/0.txt' -size +0 2> /dev/null | wc -l)" = "$INPUTS" ] ||
  echo "$GPUBROKER_ATTEMPT $GPUBROKER_RANK without" >> "$me"
[ "$GPUBROKER_TASK_INDEX" != 1 ] || [ -e "$MARKS/fixed" ] || { FAILS_AT=2; EVER=again; }
cd "$GPUBROKER_CHECKPOINT_DIR"
last=$(ls | tail -n 1); last=${last#step-}; last=$((10#${last:-0}))
for n in $(seq $((last + 1)) $STEPS); do
  sleep 0.5
  read -r _ _ _ parent _ < /proc/$$/stat; [ "$parent" = "$PPID" ] || exec sleep infinity
  until printf '%s\\n' "$n" > .new && mv .new "$(printf step-%06d $n)"; do sleep 0.2; done 2> /dev/null
  if [ "$n" -ge "$FAILS_AT" ] && { [ "$EVER" = again ] || [ "$last" -lt "$FAILS_AT" ]; }; then
    echo "refused: $CHAOS_TOKEN" >&2; exit 3
  fi
done
until mkdir -p "$GPUBROKER_OUTPUT_DIR/part"; do sleep 0.2; done
for name in "part/$GPUBROKER_RANK.txt" "résultat\u202f$GPUBROKER_RANK.txt"; do
  until echo "$STEPS steps" > "$GPUBROKER_OUTPUT_DIR/$name"; do sleep 0.2; done
done
echo "$GPUBROKER_ATTEMPT $GPUBROKER_RANK end" >> "$me"
"""
RESULTS = ("part/{rank}.txt", "résultat\u202f{rank}.txt")  # of each node
SECRET = "CHAOS_TOKEN"
HOSTILE_SECONDS = 20
TASKS = 3
NEVER = 10**6
# More than any clock jumps ahead, so that no job's time is used up by that; less than what somebody is asked for.
MORE_TIME = timedelta(hours=96)
APPROVER = person("approver")  # whoever runs this is the one who submits


class JobFate(StrEnum):
    """What a job is made for."""

    SUCCEEDS = "succeeds"
    FAILS_ONCE = "fails once"
    FAILS = "fails"
    REFUSED = "is refused"
    CANCELLED = "is cancelled"
    HOSTILE = "writes over what its node can reach"


@dataclass(frozen=True)
class ChaosJob:
    """One job: where, how, and what becomes of it when all goes right. ``asks``: somebody must approve it first.
    ``longer``: its owner gives it more time while it runs. ``before``: the job whose results it waits for, of which
    there are so many ``inputs``. ``apart``: not empty if it works in a session of its own. ``tasks``: it is an array of
    so many, and one of them fails until the array is retried."""

    name: str
    provider: str
    steps: int
    nodes: int
    fate: JobFate
    asks: bool = False
    longer: bool = False
    before: str = ""
    inputs: int = 0
    apart: str = ""
    tasks: int = 0


def with_hostile_ones(jobs: list[ChaosJob]) -> list[ChaosJob]:
    """Every third of them hostile."""
    bad = {job.name for job in jobs[::3]}
    alone = [replace(job, before="", inputs=0) if {job.name, job.before} & bad else job for job in jobs]
    changes = {"nodes": 1, "fate": JobFate.HOSTILE, "asks": False, "longer": False, "tasks": 0}
    return [replace(job, **changes) if job.name in bad else job for job in alone]  # type: ignore[arg-type]  # fields of several types


def plan(seed: int, jobs: int, *, slurm: bool) -> list[ChaosJob]:
    """So many jobs: most in the sandbox, the rest on this machine (one at a time) and on Slurm (two)."""
    chance = random.Random(f"load {seed}")
    weights = {"sandbox": 14, "owned": 2, "slurm": 4 if slurm else 0}
    found: list[ChaosJob] = []
    for number in range(jobs):
        (provider,) = chance.choices(list(weights), list(weights.values()))
        fates = [JobFate.SUCCEEDS, JobFate.FAILS_ONCE, JobFate.FAILS, JobFate.REFUSED, JobFate.CANCELLED]
        fate = chance.choices(fates, [16, 2, 2, 1, 2])[0]
        nodes = 2 if provider == "sandbox" and chance.random() < 0.1 and fate is JobFate.SUCCEEDS else 1
        steps = chance.randint(6, 24 if provider == "sandbox" else 10)
        asks = fate is JobFate.REFUSED or chance.random() < 0.15
        longer = not asks and chance.random() < 0.3
        good = [one for one in found[-6:] if one.fate is JobFate.SUCCEEDS]
        before = chance.choice(good) if good and chance.random() < 0.2 else None
        job = ChaosJob(f"chaos-{number:03d}", provider, steps, nodes, fate, asks, longer, apart="yes" * (number % 2))
        if number % 9 == 2:
            job = ChaosJob(job.name, "sandbox", 4, 1, JobFate.SUCCEEDS, apart=job.apart, tasks=TASKS)
        elif number % 9 == 3:
            before = found[-1]
        if before is not None:
            job = replace(job, before=before.name, inputs=before.tasks or 1)
        found.append(job)
    return found


def text_of(job: ChaosJob, marks: Path, runs: Path) -> str:
    """The job's file."""
    if job.fate is JobFate.HOSTILE:
        program = f"exec {sys.executable} -P -m tests.chaos.hostile_node"
        return _head(job, "{failures: 1, backoff: 1s}") + (
            f"run: {program} {runs} {job.steps} {HOSTILE_SECONDS} {marks / job.name}\n"
        )
    fails_at = max(2, job.steps // 2) if job.fate in (JobFate.FAILS, JobFate.FAILS_ONCE) else NEVER
    steps = NEVER if job.fate is JobFate.CANCELLED else job.steps
    ever = (
        "again" if job.fate is JobFate.FAILS else "once"
    )  # it may be interrupted at that very step, and go on behind it
    script = "".join(f"  {line}\n" for line in COMMAND.splitlines())
    retry = "{failures: 0}" if job.fate is JobFate.FAILS or job.tasks else "{failures: 1, backoff: 1s}"
    envs = f"MARKS: {marks / job.name}, STEPS: '{steps}', FAILS_AT: '{fails_at}', EVER: {ever}"
    after = f"after: {{job: {job.before}, inputs: [part/*]}}\n" if job.before else ""
    more = f"envs: {{{envs}, INPUTS: '{job.inputs}', APART: '{job.apart}'}}\nsecrets: {{{SECRET}: null}}\n"
    more += f"array: {{range: {job.tasks}, parallel: 2}}\n" if job.tasks else ""
    return _head(job, retry) + f"{after}{more}run: |\n{script}"


def _head(job: ChaosJob, retry: str) -> str:
    return (
        f"name: {job.name}\nnum_nodes: {job.nodes}\nwork: 1m\n"
        "resources: {cpus: 1+, capacity_types: [owned, reserved, on_demand, spot]}\n"
        f"max_duration: {'120h' if job.asks else '72h'}\n"
        f"retry: {retry}\nconstraints: {{providers: [{job.provider}]}}\n"
    )


class Load:
    """Hands jobs in, one after the other over so many ``seconds`` (wall). A store that is away is tried again; a job is
    never handed in twice. ``at_once``: so many are open at most, and then the next one waits."""

    def __init__(self, broker: Broker, planned: list[ChaosJob], folder: Path, at_once: int, seconds: float) -> None:
        self._broker, self._folder, self._at_once = broker, folder, at_once
        self._left = list(reversed(planned))
        self._began, self._every = time.monotonic(), seconds / len(planned)
        self._planned = len(planned)
        self._plans = {job.name: job for job in planned}
        self.approved: set[str] = set()
        self.refused: set[str] = set()
        self.extended: set[str] = set()
        self.retried: set[str] = set()
        self.trouble: set[str] = set()

    @property
    def handed_in(self) -> int:
        return self._planned - len(self._left)

    @property
    def all_in(self) -> bool:
        return not self._left

    def step(self) -> None:
        """Hand one in, if it is time, and there is room for it."""
        try:
            if not self._left or time.monotonic() < self._began + self.handed_in * self._every:
                return
            with self._broker.store.reading() as look:
                known = {view.job.name: view for view in reversed(look.jobs())}
                unreadable = {one.name for one in look.unreadable}
            job = self._left[-1]
            if job.name in known or job.name in unreadable:  # the answer got lost on the way
                self._left.pop()
            elif sum(not view.closed for view in known.values()) < self._at_once:
                file = self._folder / "jobs" / f"{job.name}.yaml"
                file.parent.mkdir(exist_ok=True)
                file.write_text(text_of(job, self._folder / "marks", self._folder / "home" / "runs"))
                submit(self._broker, read_job(file, self._broker.clock.now()), by=process_actor())
                self._left.pop()
        except BrokerError as error:
            self.trouble.add(f"{type(error).__name__}: {error}"[:150])

    def people(self) -> None:
        """What people do meanwhile: approve, refuse, cancel, mend, and give jobs that run more time."""
        for name, view in (self.views() or {}).items():
            job = self._plans[name]
            try:
                if view.asked is not None and job.fate is JobFate.REFUSED:
                    approvals.refuse(self._broker, view.id, "chaos", by=APPROVER)
                    self.refused.add(job.name)
                elif view.asked is not None:
                    approvals.grant(self._broker, view.id, "chaos", by=APPROVER)
                    self.approved.add(job.name)
                elif _to_retry(job, view):
                    marks = self._folder / "marks" / name
                    marks.mkdir(exist_ok=True)
                    (marks / "fixed").touch()
                    submit(self._broker, retried_job(self._broker, view, by=process_actor()), by=process_actor())
                    self.retried.add(name)
                elif job.fate is JobFate.CANCELLED and view.state is JobState.RUNNING:
                    jobs.cancel(self._broker, view, by=process_actor())
                elif job.longer and view.state is JobState.RUNNING and view.max_duration < MORE_TIME:
                    extend(self._broker, view, JobLimits(max_duration=MORE_TIME), by=process_actor())
                    self.extended.add(job.name)
            except BrokerError as error:
                self.trouble.add(f"{type(error).__name__}: {error}"[:150])

    def left(self) -> int | None:
        """How many jobs are not over; None while nobody knows."""
        views = self.views()
        if views is None or self._left:
            return None
        return sum(not view.closed or _to_retry(self._plans[name], view) for name, view in views.items())

    def views(self) -> dict[str, JobView] | None:
        """The newest job of each name; None while the store does not answer, or does not tell of all."""
        try:
            with self._broker.store.reading() as look:
                found = {view.job.name: view for view in reversed(look.jobs())}
                return None if look.unreadable else found
        except BrokerError:
            return None


def _to_retry(job: ChaosJob, view: JobView) -> bool:
    """An array of which a task failed, or what could not come after it."""
    failed = job.tasks > 0 and view.state is JobState.FAILED
    return view.closed and (failed or isinstance(view.ending, PredecessorFailed))
