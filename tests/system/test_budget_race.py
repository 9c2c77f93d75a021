"""Many processes, one budget: not a micro-dollar too much is promised, nearly all of it is used, nothing is lost."""

import json
import random
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread

import pytest

from broker.app.market.market import freshen
from broker.app.wiring import Broker
from broker.core.policy.policy import Answer
from broker.core.values.money import Money
from broker.ledger.entries import Account, faults
from broker.settings import Settings
from cli import registries
from tests.actors import EVERYBODYS
from tests.program import ROOT


@dataclass
class Race:
    """Jobs to submit, one line each, and what came of them."""

    home: Path
    url: str
    waiting: deque[str]
    kills: set[int]  # after so many answers somebody is killed
    answers: list[dict[str, object]] = field(default_factory=list)
    killed: int = 0
    _lock: Lock = field(default_factory=Lock)
    _running: list[subprocess.Popen[str]] = field(default_factory=list)

    def worker(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.race_worker", str(self.home), self.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with self._lock:
            self._running.append(process)
        return process

    def feed(self, process: subprocess.Popen[str]) -> None:
        """One job after the other; when the process is killed, the job goes to another that takes its place."""
        while True:
            try:
                line = self.waiting.popleft()
            except IndexError:
                break
            answer = ask(process, line)
            if not answer:
                self.waiting.appendleft(line)
                process = self.worker()
                continue
            with self._lock:
                self.answers.append(json.loads(answer))
                running = [one for one in self._running if one.poll() is None]
                victim = random.choice(running) if running and len(self.answers) in self.kills else None
            if victim is not None:
                victim.kill()
                victim.wait()
                self.killed += 1
        assert process.stdin is not None
        process.stdin.close()
        process.wait()

    def run(self, processes: int) -> float:
        """All of it; how many seconds it took."""
        workers = [self.worker() for _ in range(processes)]
        threads = [Thread(target=self.feed, args=(worker,)) for worker in workers]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.monotonic() - began


def ask(process: subprocess.Popen[str], line: str) -> str:
    """The answer; empty when the process died over it."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    except OSError:
        return ""
    return answer if answer.endswith("\n") else ""


@pytest.fixture
def broker_at(tmp_path: Path) -> Iterator[Callable[[str, Money], Broker]]:
    """A broker over a new store with one sandbox budget and a market."""
    made: list[Broker] = []

    def new(url: str, amount: Money) -> Broker:
        broker = Broker(Settings(home=tmp_path, store=url, runs=(tmp_path / "runs").as_uri()), registries(), EVERYBODYS)
        made.append(broker)
        text = (
            f'version: 1\npolicy: t\nbudgets: [{{name: pretend, amount: "{amount}", period: fixed,'
            " from: 2020-01-01, to: 2100-01-01, counts: [sandbox]}]\n"
        )
        broker.store.activate_policy({"test.yaml": text}, by="test")
        freshen(broker, sandbox=True)
        return broker

    yield new
    for broker in made:
        broker.store.close()


def jobs(count: int, chance: random.Random) -> tuple[deque[str], Money]:
    """Lines for the workers, and what the jobs ask for together. A fifth of the first half ends at once."""
    lines, total = deque[str](), Money.ZERO
    for number in range(count):
        cents = chance.randint(20, 480)
        part = f"{chance.random():.3f}" if number < count / 2 and chance.random() < 0.2 else "-"
        lines.append(f"race-{number} {cents / 100:.2f} {part}")
        total += Money.usd(f"{cents / 100:.2f}")
    return lines, total


def verify(broker: Broker, race: Race, names: set[str], amount: Money) -> tuple[Money, Money]:
    """Everything that must hold; the most that was ever promised, and what is promised at the end."""
    answered = Counter(str(answer["name"]) for answer in race.answers)
    assert answered == Counter(names), "every submission is answered once"
    with broker.store.reading() as look:
        views, entries, decisions = look.jobs(), look.entries(), look.decisions()
        (budget,) = (rule.spec for rule in broker.policy().rules)  # type: ignore[attr-defined]  # it is a budget
        held = sum((hold.held for hold in look.open_holds(budget)), Money.ZERO)
        balances = {view.id: look.balance(view.id) for view in views}
    admitted = {str(answer["name"]): answer["job"] for answer in race.answers if "job" in answer}
    assert {view.job.name: view.id for view in views} == admitted, "what was said is what is there"
    assert len(views) == len(admitted), "none was admitted twice"
    refused = {str(answer["name"]) for answer in race.answers if "refused" in answer}
    assert all(answer["refused"] == 3 for answer in race.answers if "refused" in answer)
    assert refused <= {one.job_name for one in decisions if one.answer is Answer.DENY}, "each refusal is on record"
    # Entries are in the order in which they were committed: the sum after each movement is what was true then.
    promised = most = 0
    for entry in entries:
        if entry.account is not Account.AVAILABLE:
            promised += entry.amount.micros
            most = max(most, promised)
    spent = sum((e.amount for e in entries if e.account is Account.SPENT), Money.ZERO)
    assert most <= amount.micros
    assert Money(promised) == held + spent
    assert faults(entries) == []
    assert broker.store.rebuild() == len(views)
    with broker.store.reading() as look:
        assert balances == {view.id: look.balance(view.id) for view in look.jobs()}
    return Money(most), Money(promised)


def hold_a_race(new: Callable[[str, Money], Broker], url: str, *, count: int, processes: int, kills: int) -> None:
    chance = random.Random(count)
    lines, demand = jobs(count, chance)
    amount = Money(demand.micros // 3)
    broker = new(url, amount)
    names = {line.split()[0] for line in lines}
    race = Race(broker.settings.home, url, lines, {chance.randint(1, count - processes) for _ in range(kills)})
    seconds = race.run(processes)
    most, used = verify(broker, race, names, amount)
    took = sorted(float(str(answer["seconds"])) for answer in race.answers)
    print(
        f"\n{count} submissions, {processes} processes, {race.killed} killed: {seconds:.1f} s, {count / seconds:.0f}/s,"
        f" half within {took[len(took) // 2]:.2f} s, longest {took[-1]:.2f} s; most promised {most} of {amount}, at the"
        f" end {used}"
    )
    assert used >= amount.scaled(0.95)


@pytest.mark.system
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_eight_processes_submit_four_hundred_jobs_against_one_budget(
    database: str, broker_at: Callable[[str, Money], Broker], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    if database == "postgresql":
        url = str(request.getfixturevalue("new_postgres")())
    hold_a_race(broker_at, url, count=400, processes=8, kills=6)
