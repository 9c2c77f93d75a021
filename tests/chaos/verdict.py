"""Whether everything is right after a chaos run: from the evidence that jobs and agents left, then from the store."""

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import create_engine, inspect, text

from broker.app.billing.budgets import budget_rules
from broker.app.jobs import reasons
from broker.app.jobs.job_files import fetch_files, results
from broker.app.wiring import Broker
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.values.money import Money
from broker.engines.runfolder.runfolder import RunFolder
from broker.ledger.entries import Account, faults
from tests.billing import metered
from tests.chaos.evidence import Attempted, Manifests, attempts, hijacked, hostile_acts, marks
from tests.chaos.load import MORE_TIME, RESULTS, SECRET, ChaosJob, JobFate, Load
from tests.chaos.service import SHORT_REST
from tests.chaos.stage import ChaosStage, belonging

# The part of all attempts that may end without their command having begun: lost launches, machines taken at once.
MOST_WASTE = 0.6
# Micro-dollars by which a day may differ: each amount of each attempt is rounded for itself.
_BLUR = 1000


@dataclass
class ChaosVerdict:
    """``wrong``: what is not as it must be, a sentence each; empty when all is well. ``figures``: for the table."""

    wrong: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)


def judge(
    stage: ChaosStage, broker: Broker, planned: Sequence[ChaosJob], manifests: Manifests, kinds: Sequence[str]
) -> ChaosVerdict:
    """After every job is closed and the services have ended."""
    with broker.store.reading() as look:
        everything = list(reversed(look.jobs(with_tasks=True)))
    views = {view.job.name: view for view in everything}  # the newest
    names = {view.id: view.job.name for view in everything}
    hostile = {views[job.name].id for job in planned if job.fate is JobFate.HOSTILE and job.name in views}
    tried = list(attempts(stage.home / "runs", hostile))
    strikes = stage.control.counts()
    wrong = [f"{kind}: never struck" for kind in kinds if not strikes[kind]]
    wrong += [f"{name}: handed in, and nowhere to be found" for name in (j.name for j in planned) if name not in views]
    for job in planned:
        if job.name in views:
            wrong += ended(job, views[job.name])
            wrong += _whole(stage, broker, job, views[job.name]) if job.tasks else ()
        for view in everything if job.fate is not JobFate.HOSTILE else ():
            if job.name == (names.get(view.job.task.array) if view.job.task else view.job.name) and not view.job.array:
                wrong += ran_once(job, view, marks(stage.folder / "marks", view.id))
                wrong += _results(stage, job, view)
    for attempt in tried:
        wrong += resumed_right(attempt, manifests)
    wrong += _still_there(stage, manifests, hostile)
    wrong += [f"{name}: its forged command ran" for name in hijacked(stage.folder / "marks")]
    wrong += _money(broker)
    wrong += _periods(broker)
    wrong += _leaks(stage)
    wrong += _tracebacks(stage)
    wrong += [f"left running: {' '.join(process.cmdline())[:150]}" for process in belonging(stage.folder)]
    if stage.cluster is not None and (left := stage.cluster.run("squeue", "--noheader").strip()):
        wrong.append(f"left in Slurm: {left}")
    figures = _figures(everything, tried, strikes, manifests, broker)
    if (never := figures["never_ran"]) > MOST_WASTE * figures["attempts"]:
        wrong.append(f"{never} of {figures['attempts']} attempts never ran")
    if hostile:
        figures["hostile_acts"] = dict(sorted(hostile_acts(stage.folder / "marks").items()))
        if not sum(figures["hostile_acts"].values()):
            wrong.append("no hostile job did anything")
    return ChaosVerdict(wrong, figures)


def ended(job: ChaosJob, view: JobView) -> Iterator[str]:
    expected = {
        JobFate.FAILS: JobState.FAILED,
        JobFate.REFUSED: JobState.CANCELLED,
        JobFate.CANCELLED: JobState.CANCELLED,
    }.get(job.fate, JobState.SUCCEEDED)
    if not view.closed:
        yield f"{job.name}: is not closed ({view.state}, {reasons.wait_text(view.waiting) or 'no reason given'})"
    elif job.fate is not JobFate.HOSTILE and view.state is not expected:
        yield f"{job.name}: {view.state} instead of {expected}: {reasons.end_text(view.ending) or 'no reason given'}"
    elif view.ending is None:
        yield f"{job.name}: {view.state} for no reason"


def acted(broker: Broker, planned: Sequence[ChaosJob], load: Load) -> Iterator[str]:
    """What people were to do was done, and did what it is for."""
    with broker.store.reading() as look:
        views = {view.job.name: view for view in reversed(look.jobs())}
        streams = {name: look.events(view.id) for name, view in views.items()}
    for job in planned:
        kinds = [event.body.kind for event in streams.get(job.name, ())]
        if (
            job.asks
            and "launch_requested" in kinds[: kinds.index("approval_given") if "approval_given" in kinds else None]
        ):
            yield f"{job.name}: launched before anybody approved it"
        if job.name in load.extended and views[job.name].max_duration != MORE_TIME:
            yield f"{job.name}: was given more time, and may run for {views[job.name].max_duration}"
    for what, wanted, done in (
        ("approved", [job.name for job in planned if job.asks and job.fate is not JobFate.REFUSED], load.approved),
        ("refused", [job.name for job in planned if job.fate is JobFate.REFUSED], load.refused),
        ("retried", [job.name for job in planned if job.tasks], load.retried),
    ):
        yield from (f"{name}: was to be {what}, and nobody had to" for name in wanted if name not in done)
    if any(job.longer for job in planned) and not load.extended:
        yield "no job was given more time"


def ran_once(job: ChaosJob, view: JobView, left: Counter[tuple[int, int, str]]) -> Iterator[str]:
    """No two at the same time, no attempt twice, and the whole of it where it succeeded."""
    for (attempt, rank, what), times in sorted(left.items()):
        if what == "twice":
            yield f"{job.name}: attempt {attempt} ran beside another one (node {rank})"
        elif what == "without":
            yield f"{job.name}: attempt {attempt} began without the results of {job.before} (node {rank})"
        elif what == "start" and times > 1:
            yield f"{job.name}: attempt {attempt} ran {times} times (node {rank})"
        elif attempt > len(view.attempts):
            yield f"{job.name}: attempt {attempt} ran, and nobody asked for it"
    if view.state is JobState.SUCCEEDED:
        for rank in range(job.nodes):
            if not any(what == "end" and node == rank for _, node, what in left):
                yield f"{job.name}: succeeded, and node {rank} never came to its end"


def _whole(stage: ChaosStage, broker: Broker, job: ChaosJob, view: JobView) -> Iterator[str]:
    """An array that was retried stands for all its tasks: each counts once, and its results are fetched."""
    with broker.store.reading() as look:
        numbers = sorted(task.job.task.index for task in look.tasks_of(view.id) if task.job.task)
        again = view.job.array.again if view.job.array else ()
        counts = look.counts_of({view.id: again})[view.id]
    if numbers != list(range(job.tasks)) or counts.states != {JobState.SUCCEEDED: job.tasks} or counts.open:
        yield f"{job.name}: of {job.tasks} tasks {numbers} are listed, and counted {dict(counts.states)}"
    fetched = results(broker, view, "part/*")
    fetch_files(fetched, stage.folder / "fetched" / job.name)
    if sorted(file.path for file in fetched) != [f"{number}/part/0.txt" for number in range(job.tasks)]:
        yield f"{job.name}: fetched are {[file.path for file in fetched]}"


def _results(stage: ChaosStage, job: ChaosJob, view: JobView) -> Iterator[str]:
    """What a job that succeeded saved is listed, and is what it wrote."""
    if view.state is not JobState.SUCCEEDED:
        return
    folder = RunFolder((stage.home / "runs").as_uri(), view.id)
    listed = {one.file.path: one for one in folder.outputs(len(view.attempts))}
    wanted = {name.format(rank=rank) for rank in range(job.nodes) for name in RESULTS}
    if listed.keys() != wanted:
        yield f"{job.name}: saved {sorted(wanted)}, listed are {sorted(listed)}"
    for path, one in listed.items():
        content = b"".join(folder.output_content(one.attempt, one.file))
        if content != f"{job.steps} steps\n".encode():
            yield f"{job.name}: {path} holds {content[:40]!r}"


def _leaks(stage: ChaosStage) -> Iterator[str]:
    """The secret that every job prints is in no file of the broker and in no row of its store."""
    secret = os.environ[SECRET]
    for path in (*stage.home.rglob("*"), *stage.folder.glob("*.out")):
        if path.is_file() and secret.encode() in path.read_bytes():
            yield f"the secret is in {path.relative_to(stage.folder)}"
    engine = create_engine(stage.url.replace("postgresql://", "postgresql+psycopg://", 1))
    with engine.connect() as connection:
        for table in inspect(engine).get_table_names():
            query = text(f'SELECT count(*) FROM "{table}" AS r WHERE r::text LIKE :part')
            if found := connection.scalar(query, {"part": f"%{secret}%"}):
                yield f"the secret is in {found} rows of {table}"
    engine.dispose()


def _tracebacks(stage: ChaosStage) -> Iterator[str]:
    """No process of the broker had an error that nobody expected."""
    for path in (*stage.home.rglob("*.log"), *stage.folder.glob("*.out")):
        words = path.read_text(errors="replace") if path.is_file() else ""
        if "Traceback (most recent call last)" in words:
            _, _, after = words.partition("Traceback (most recent call last)")
            last = next((line for line in after.splitlines()[1:] if line and not line.startswith(" ")), "")
            yield f"a traceback in {path.relative_to(stage.folder)}: {last[:150]}"


def resumed_right(attempt: Attempted, manifests: Manifests) -> Iterator[str]:
    """Each attempt went on from the newest checkpoint there was when it began."""
    for restored in attempt.of("restored"):
        for passed in restored.get("passed_over") or ():
            if "never finished" not in passed["because"]:
                yield f"{attempt.job}: attempt {attempt.number} passed {passed['checkpoint']} over: {passed['because']}"
        there = manifests.newest(attempt.job, before=attempt.claimed)
        if there is not None and (restored["checkpoint"] or "") < there:
            yield f"{attempt.job}: attempt {attempt.number} began at {restored['checkpoint']}, and there was {there}"


def _still_there(stage: ChaosStage, manifests: Manifests, hostile: Collection[str]) -> Iterator[str]:
    """The newest checkpoint of every job is there, and whole; but for the ``hostile`` ones."""
    for job in (one for one in manifests.seen if one not in hostile):
        newest = manifests.newest(job)
        if newest is not None:
            because = RunFolder((stage.home / "runs").as_uri(), job).verify(newest)
            if because is not None:
                yield f"{job}: checkpoint {newest} cannot be restored: {because}"


def _money(broker: Broker) -> Iterator[str]:
    """The books balance to the micro-dollar, each attempt is billed for its machine's time, nothing is held."""
    now = datetime.now(UTC)
    with broker.store.reading() as look:
        entries = look.entries()
        for fault in faults(entries):
            yield f"ledger: {fault}"
        for view in look.jobs(with_tasks=True):
            for kind, balance in look.balance(view.id).items():
                if balance.held != Money.ZERO or not balance.balanced:
                    yield f"{view.job.name}: {balance.held} of {kind} still held"
            for attempt in view.attempts:
                own = [
                    entry.amount
                    for entry in entries
                    if entry.account is Account.SPENT
                    and (entry.tags.job_id, entry.tags.attempt) == (view.id, attempt.number)
                ]
                spent, due = sum(own, Money.ZERO), metered(attempt, now, look.price_series)
                if spent != due:
                    yield f"{view.job.name}: attempt {attempt.number} is billed {spent.as_json()}, due {due.as_json()}"
        before = list(look.jobs(with_tasks=True))
    with SHORT_REST:
        broker.store.rebuild()
    with broker.store.reading() as look:
        after = list(look.jobs(with_tasks=True))
        if [view.id for view in after] != [view.id for view in before]:
            yield "the projection of events has other jobs than are kept"
        for kept, rebuilt in zip(before, after, strict=False):
            if kept != rebuilt:
                yield f"{kept.job.name}: the projection of events is not what is kept: {_difference(kept, rebuilt)}"


def _difference(kept: JobView, rebuilt: JobView) -> str:
    """The fields in which a kept view differs from what its events make."""
    pairs = ((field.name, getattr(kept, field.name), getattr(rebuilt, field.name)) for field in fields(kept))
    return "; ".join(f"{name}: kept {a}, from events {b}" for name, a, b in pairs if a != b)


def _periods(broker: Broker) -> Iterator[str]:
    """No day has more than its budget, and none less than nothing. Days that did not come have nothing, whatever clocks
    showed for a while, but for the bills of attempts that began and ended while the clock showed such a day."""
    now = datetime.now(UTC)
    today = datetime(now.year, now.month, now.day, tzinfo=UTC)
    with broker.store.reading() as look:
        begun = [
            one for view in look.jobs(with_tasks=True) for one in view.attempts if one.up_since and one.up_since > now
        ]
        for rule in budget_rules(broker.policy()):
            for days in range(-2, 4):
                start = today + timedelta(days=days)
                spent = look.spent(rule.spec, start, start + timedelta(days=1))
                dated = sum((metered(one, now, look.price_series) for one in begun), Money(_BLUR))
                least, most = Money(-_BLUR), rule.config.amount if days <= 0 else dated
                if not least <= spent <= most:
                    yield f"budget {rule.spec.id}: {spent.as_json()} spent on {start:%Y-%m-%d}"


def _figures(
    views: Sequence[JobView],
    tried: Sequence[Attempted],
    strikes: Counter[str],
    manifests: Manifests,
    broker: Broker,
) -> dict[str, Any]:
    all_attempts = [attempt for view in views for attempt in view.attempts]
    with broker.store.reading() as look:
        spent = sum((b.spent for view in views for b in look.balance(view.id).values()), Money.ZERO)
        movements = len({entry.movement_id for entry in look.entries()})
    return {
        "jobs": dict(Counter(str(view.state) for view in views)),
        "attempts": len(all_attempts),
        "never_ran": len(all_attempts) - sum(1 for one in tried if one.of("command_started")),
        "attempts_by_engine": dict(Counter(attempt.engine for attempt in all_attempts)),
        "causes": dict(Counter(str(attempt.cause) for attempt in all_attempts)),
        "resumed": sum(1 for one in tried for restored in one.of("restored") if restored["checkpoint"]),
        "checkpoints": sum(len(seen) for seen in manifests.seen.values()),
        "movements": movements,
        "spent": spent.as_json(),
        "strikes": dict(sorted(strikes.items())),
    }
