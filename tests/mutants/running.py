"""Runs tests against mutants: pytest collects once, and each mutant gets a forked child of that process.

The child plants its mutant and runs the tests that pass the changed lines, those first that killed a neighbour, then
the quickest, until one fails. A mutant of code that runs at import cannot be planted in a process that has imported the
module; it gets a child that has imported nothing of the broker yet.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import _lru_cache_wrapper, partial
from importlib import import_module
from math import ceil
from pathlib import Path
from time import monotonic, process_time
from types import FunctionType
from typing import Any

import pytest

from tests.mutants.children import ChildTask, Failure, Report, allow, fork, in_children
from tests.mutants.measuring import Coverage, Test, nearness
from tests.mutants.mutant import Mutant, diff
from tests.mutants.planting import Place, loaded_functions, plant, plant_at_import
from tests.mutants.rooms import LEFT_OUT, ROOT

# So many of a hundred tests, the slowest, are left out: the others kill what they kill, and the run ends in time.
TOO_SLOW = 2
# Where the time is limited, a mutant is tried with so many tests at most.
ENOUGH = 100
# What a test may use of a processor when a mutant slows it down: so many times its time, and so many seconds more.
TIMES, MORE = 10, 5.0
# A test that shows no sign for so many seconds by the wall hangs.
HANGS = 300.0

# How pytest is called: as ever, but that nothing is kept, and children do not share a captured file.
ARGUMENTS = (
    "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:mutmut", "--timeout=0", "--capture=sys", "-q",
    "-o", "tmp_path_retention_policy=none", "-m", "not system", *(f"--ignore={path}" for path in LEFT_OUT),
)  # fmt: skip

KILLED, TIMED_OUT, SURVIVED, UNTRIED = "killed", "timed out", "survived", "untried"


@dataclass(frozen=True)
class MutantOutcome:
    """How a mutant fared. ``by``: the test that killed it. ``tests``: how many ran, of how many that pass its lines."""

    mutant: Mutant
    state: str
    by: str = ""
    tests: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class RunLimits:
    """``at_once``: children. ``until``: no mutant is begun after that moment (as `monotonic` counts), and half of the
    time until then at most is for measuring."""

    at_once: int = 2
    until: float = float("inf")

    @property
    def enough(self) -> int | None:
        """With how many tests a mutant is tried; None: with all that pass its lines."""
        return None if self.until == float("inf") else ENOUGH


def run(
    mutants: Sequence[Mutant], modules: Sequence[str], tests: Sequence[str], limits: RunLimits
) -> Iterator[MutantOutcome]:
    """The outcome of each mutant, as they come. Raises RuntimeError when the tests cannot be run."""
    warm = [mutant for mutant in mutants if mutant.function]
    cold = [mutant for mutant in mutants if not mutant.function]
    passing: dict[str, list[Test]] = {}
    all_measured = True
    for told in _told_by(_Trial(warm, modules, limits), [*ARGUMENTS, *tests]):
        if told[0] == "coverage":
            passing, all_measured = told[1:]
        elif told[0] == "outcome":
            yield told[1]
        else:
            print(told[1], file=sys.stderr, flush=True)
    for outcome in _cold(cold, passing, limits):
        doubtful = outcome.state == SURVIVED and not all_measured
        yield replace(outcome, state=UNTRIED) if doubtful else outcome


def _told_by(worker: _Trial, arguments: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """What a worker tells, as it tells it; it works in a child, where pytest has collected the tests. Raises
    RuntimeError when they cannot be collected, and for an exception of the worker."""
    _import_what_is_not_ours()

    def collected(tell: Report) -> None:
        worker.tell = tell
        code = pytest.main(list(arguments), plugins=[worker])
        if code:
            raise RuntimeError(f"pytest ended with {int(code)}: {worker.wrong}")

    child = fork(collected)
    try:
        while True:
            told = child.connection.recv()
            if isinstance(told, Failure):
                raise RuntimeError(told.traceback)
            yield told
    except EOFError:
        return
    finally:
        child.end()


class _Trial:
    """The pytest plugin in place of pytest's own loop: tries mutants of functions, each with the tests that pass its
    lines."""

    def __init__(self, mutants: Sequence[Mutant], modules: Sequence[str], limits: RunLimits) -> None:
        self.tell: Report = lambda told: None
        self.wrong = ""
        self._failed = False
        self._mutants, self._modules, self._limits = mutants, modules, limits
        self._measured_all = True  # else a mutant that lives may be one that other tests would have killed
        self._kept: list[_lru_cache_wrapper[Any]] = []

    def passes(self, item: pytest.Item, following: pytest.Item | None = None) -> bool:
        """Run a test. Once one has failed in a process, no other passes there."""
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return not self._failed

    def pytest_sessionstart(self) -> None:
        _set_hypothesis()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.wrong += f"\n{report.longreprtext}"

    def pytest_internalerror(self, excrepr: object) -> None:
        self.wrong += f"\n{excrepr}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Failed("tests cannot be collected")
        self._work({item.nodeid: item for item in session.items})
        return True

    def _work(self, items: Mapping[str, pytest.Item]) -> None:
        functions = loaded_functions(self._modules)
        self._kept = _kept_answers()
        gc.collect()
        gc.freeze()  # what is here already need not be looked at, and copied, in each child
        coverage = self._measure(items)
        by_line = coverage.by_line()
        usable = self._usable([test for nodeid, test in coverage.tests.items() if nodeid in items])
        by_module = _users(coverage.tests[nodeid] for nodeid in sorted(usable))
        self.tell(("coverage", by_module, self._measured_all))
        killers: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)

        def tasks() -> Iterator[ChildTask]:
            for mutant in self._mutants:
                if monotonic() > self._limits.until:
                    self.tell(("outcome", MutantOutcome(mutant, UNTRIED)))
                    continue
                passing = {t.nodeid: t for line in mutant.lines for t in by_line[mutant.module, line]}
                known = killers[mutant.module, mutant.function]
                inside = [t for nodeid, t in passing.items() if nodeid in usable]
                own = f"/test_{Path(mutant.module).stem}"
                chosen = sorted(inside, key=lambda t: (-known[t.nodeid], own not in t.nodeid, t.seconds))
                chosen = chosen[: self._limits.enough]
                if not chosen:
                    self.tell(("outcome", MutantOutcome(mutant, SURVIVED if self._measured_all else UNTRIED)))
                    continue
                yield ChildTask(
                    (mutant, chosen, len(inside)),
                    partial(self._try, mutant, functions, [(items[test.nodeid], test.seconds) for test in chosen]),
                    lambda told: HANGS,
                )

        for task in in_children(tasks(), self._limits.at_once):
            outcome = _judged(task)
            if outcome.state == SURVIVED and not self._measured_all:
                outcome = replace(outcome, state=UNTRIED)
            if outcome.by:
                killers[outcome.mutant.module, outcome.mutant.function][outcome.by] += 1
            self.tell(("outcome", outcome))

    def _try(
        self,
        mutant: Mutant,
        functions: Mapping[Place, Sequence[FunctionType]],
        items: Sequence[tuple[pytest.Item, float]],
        tell: Report,
    ) -> None:
        plant(mutant, functions)
        for item, seconds in items:
            allow(TIMES * seconds + MORE)
            passed = self.passes(item)
            tell(passed)
            if not passed:
                return
        tell(True)

    def _measure(self, items: Mapping[str, pytest.Item]) -> Coverage:
        coverage = Coverage(self._modules)
        files: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items.values():
            files[item.path.relative_to(ROOT).as_posix()].append(item)
        concerned = {mutant.module for mutant in self._mutants}
        missing = sorted(coverage.unknown(list(files)), key=lambda file: nearness(file, concerned), reverse=True)
        if missing:
            self.tell(("say", f"measuring which lines the tests of {len(missing)} files run"))
        began = monotonic()
        until = began + (self._limits.until - began) / 2

        def tasks() -> Iterator[ChildTask]:
            for number, file in enumerate(missing):
                if monotonic() > until:
                    self._measured_all = False
                    self.tell(("say", f"{len(missing) - number} files of tests are not measured, for want of time"))
                    return
                yield ChildTask(file, partial(self._measure_file, files[file]), lambda told: HANGS)

        for task in in_children(tasks(), self._limits.at_once):
            if task.told and isinstance(task.told[-1], list):
                coverage.add(task.subject, task.told[-1])
                coverage.keep()
            else:
                self.tell(("say", f"{task.subject} {task.ended} while it was measured: its tests are not used"))
        if missing:
            self.tell(("say", f"measured in {monotonic() - began:.0f} s"))
        return coverage

    def _usable(self, tests: Sequence[Test]) -> set[str]:
        """The ids of the tests that are used: those that pass, but for the slowest."""
        if bad := [test.nodeid for test in tests if not test.passed]:
            self.tell(("say", "these fail without a mutant and are not used: " + ", ".join(bad)))
        quickest = sorted((test for test in tests if test.passed), key=lambda test: test.seconds)
        return {test.nodeid for test in quickest[: ceil(len(quickest) * (100 - TOO_SLOW) / 100)]}

    def _measure_file(self, items: Sequence[pytest.Item], tell: Report) -> None:
        from coverage import Coverage as Tracer

        paths = {str(ROOT / module): module for module in self._modules}
        tracer = Tracer(data_file=None, config_file=False, include=list(paths), messages=False)
        tests: dict[str, Test] = {}
        for item, following in zip(items, [*items[1:], None], strict=True):
            self._failed = False
            for answers in self._kept:
                answers.cache_clear()
            tracer.start()
            tracer.switch_context(item.nodeid)
            began = process_time()
            passed = self.passes(item, following)
            seconds = process_time() - began
            tracer.stop()
            tests[item.nodeid] = Test(item.nodeid, passed, seconds)
            tell(item.nodeid)
        data = tracer.get_data()
        for path in data.measured_files():
            for line, contexts in data.contexts_by_lineno(path).items():
                for context in contexts:
                    if context in tests:
                        tests[context].lines.setdefault(paths[path], set()).add(line)
        tell(list(tests.values()))


def _kept_answers() -> list[_lru_cache_wrapper[Any]]:
    """Where the broker's functions keep what they answered: a test that gets a kept answer passes none of their lines,
    though it would by itself."""
    things = (thing for thing in gc.get_objects() if isinstance(thing, _lru_cache_wrapper))
    return [thing for thing in things if thing.__module__.startswith("broker.")]


def _users(tests: Iterable[Test]) -> dict[str, list[Test]]:
    """The tests of each file of tests that uses a module: also those that only make a value of a class of it, which
    runs none of its lines."""
    files: dict[str, list[Test]] = defaultdict(list)
    for test in tests:
        files[test.nodeid.partition("::")[0]].append(test)
    found: dict[str, list[Test]] = defaultdict(list)
    for together in files.values():
        for module in {module for test in together for module in test.lines}:
            found[module] += together
    return dict(found)


def _judged(task: ChildTask) -> MutantOutcome:
    mutant, chosen, of = task.subject
    _must_not_have_failed(task)
    ran = len(task.told)
    if task.ended == "timed out":
        return MutantOutcome(mutant, TIMED_OUT, chosen[min(ran, len(chosen) - 1)].nodeid, (ran + 1, of))
    if ran == len(chosen) + 1 and all(task.told):
        return MutantOutcome(mutant, SURVIVED if len(chosen) == of else UNTRIED, "", (len(chosen), of))
    last = max(ran - 1, 0) if ran and task.told[-1] is False else ran  # a child that died told nothing of its last test
    return MutantOutcome(mutant, KILLED, chosen[min(last, len(chosen) - 1)].nodeid, (last + 1, of))


def _must_not_have_failed(task: ChildTask) -> None:
    """Raises RuntimeError for an error of this tool in the child: no test has killed that mutant."""
    if task.ended == "failed":
        mutant = task.subject[0]
        raise RuntimeError(f"{mutant.module}:{mutant.line}: no mutant was tried\n{diff(mutant)}\n{task.error}")


def _cold(mutants: Sequence[Mutant], passing: dict[str, list[Test]], limits: RunLimits) -> Iterator[MutantOutcome]:
    """Mutants of what runs at import: the tests that use the module, its own file of tests first."""
    untried = []

    def tasks() -> Iterator[ChildTask]:
        for mutant in mutants:
            stem = Path(mutant.module).stem
            users = sorted(
                passing.get(mutant.module, []),
                key=lambda t: (f"/test_{stem}" not in t.nodeid, stem not in t.nodeid, t.seconds),
            )
            if monotonic() > limits.until:
                untried.append(mutant)
                continue
            chosen = users[: limits.enough]
            yield ChildTask(
                (mutant, chosen, len(users)),
                partial(_try_cold, mutant, chosen),
                lambda told: HANGS,
            )

    for task in in_children(tasks(), limits.at_once):
        mutant, chosen, of = task.subject
        _must_not_have_failed(task)
        by = next((told for told in task.told if isinstance(told, str) and told not in ("passed", "survived")), "")
        if task.ended == "timed out":
            yield MutantOutcome(mutant, TIMED_OUT, by, (len(task.told), of))
        elif "survived" in task.told:
            yield MutantOutcome(mutant, SURVIVED if len(chosen) == of else UNTRIED, "", (len(chosen), of))
        else:
            yield MutantOutcome(mutant, KILLED, by or "the import", (len(task.told), of))
    yield from (MutantOutcome(mutant, UNTRIED) for mutant in untried)


def _try_cold(mutant: Mutant, tests: Sequence[Test], tell: Report) -> None:
    class FailureReporter:
        def pytest_sessionstart(self) -> None:
            _set_hypothesis()

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                tell(report.nodeid)
            elif report.when == "call":
                tell("passed")

    plant_at_import(mutant)
    allow(60.0 + TIMES * sum(test.seconds for test in tests))
    nodeids = [test.nodeid for test in tests]
    if not nodeids or pytest.main([*ARGUMENTS, "-x", *nodeids], plugins=[FailureReporter()]) == 0:
        tell("survived")


def _set_hypothesis() -> None:
    """The same examples each time, few, and none made smaller: what kills a mutant must do so the next time, too."""
    from hypothesis import HealthCheck, Phase, settings

    settings.register_profile(
        "mutants", deadline=None, max_examples=20, derandomize=True, database=None,
        phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    settings.load_profile("mutants")


def _import_what_is_not_ours() -> None:
    """What takes long to import, once for all children."""
    for name in ("alembic.command", "httpx", "hypothesis", "pydantic_settings", "rich.console", "sqlmodel", "typer"):
        import_module(name)
    ours = [name for name in sys.modules if name.partition(".")[0] in ("broker", "policies", "providers", "cli")]
    assert not ours, f"imported too early: {ours}"
