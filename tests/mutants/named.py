"""Mistakes planted by name, each with the test that must notice it (``named.toml``)."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from types import FunctionType

import pytest

from tests.mutants.children import ChildTask, Report, allow, in_children
from tests.mutants.mutant import Mutant
from tests.mutants.planting import Place, loaded_functions, plant
from tests.mutants.rooms import ROOT
from tests.mutants.running import ARGUMENTS, HANGS, Worker, told_by

FILE = Path(__file__).with_name("named.toml")

# What a test may use of a processor when a mutant slows it down, in seconds.
LONGEST = 30.0

# The test fails with the mistake and passes without it; it passes with the mistake; it fails without it, too.
NOTICED, SURVIVED, BROKEN = "noticed", "survived", "broken"


@dataclass(frozen=True)
class Named:
    """A mistake in words, as a mutant, and the id of the test that must fail with it and pass without."""

    what: str
    mutant: Mutant
    test: str


def named_mutants(text: str | None = None) -> list[Named]:
    """Those of ``named.toml``. Raises ValueError for one whose code is gone, or does not stand once in its function."""
    entries = tomllib.loads(FILE.read_text("utf-8") if text is None else text)["mutant"]
    return [Named(one["what"], _mutant(one), one["test"]) for one in entries]


def _mutant(entry: Mapping[str, str]) -> Mutant:
    module, function, before, after = (entry[name] for name in ("module", "function", "before", "after"))
    source = (ROOT / module).read_text("utf-8")
    node = _functions(ast.parse(source).body, "").get(function)
    if node is None:
        raise ValueError(f"{FILE.name}: {module} has no function {function}; correct the entry '{entry['what']}'")
    starts = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]
    first, last = starts[node.lineno - 1], starts[node.end_lineno or node.lineno]
    if source.count(before, first, last) != 1:
        raise ValueError(
            f"{FILE.name}: '{before}' stands {source.count(before, first, last)} times in {function} of {module}, not"
            f" once; correct the entry '{entry['what']}'"
        )
    start = source.index(before, first, last)
    line = source.count("\n", 0, start) + 1
    head = min((decorator.lineno for decorator in node.decorator_list), default=node.lineno)
    edit = start, start + len(before), after
    return Mutant(module, function, head, line, range(line, line + 1), before, after, source, edit)


def _functions(body: Sequence[ast.stmt], prefix: str) -> dict[str, ast.FunctionDef]:
    found: dict[str, ast.FunctionDef] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            found[prefix + node.name] = node
        elif isinstance(node, ast.ClassDef):
            found |= _functions(node.body, f"{prefix}{node.name}.")
    return found


def try_named(some: Sequence[Named], at_once: int) -> Iterator[tuple[Named, str]]:
    """What becomes of each, as they come. Raises RuntimeError when the tests cannot be run, or one does not exist."""
    tests = sorted({one.test for one in some})
    for number, outcome in told_by(_Worker(some, at_once), [*ARGUMENTS, *tests]):
        yield some[number], outcome


class _Worker(Worker):
    """Runs each test twice, in a child each: with the mistake, and without."""

    def __init__(self, some: Sequence[Named], at_once: int) -> None:
        super().__init__()
        self._some, self._at_once = some, at_once

    def work(self, items: Mapping[str, pytest.Item]) -> None:
        functions = loaded_functions(sorted({one.mutant.module for one in self._some}))
        tests = [*dict.fromkeys(one.test for one in self._some)]
        without = [
            ChildTask(test, partial(self._try, None, functions, items[test]), lambda told: HANGS) for test in tests
        ]
        passing = {task.subject for task in in_children(without, self._at_once) if task.told == [True]}
        tasks = [
            ChildTask(number, partial(self._try, one.mutant, functions, items[one.test]), lambda told: HANGS)
            for number, one in enumerate(self._some)
        ]
        for task in in_children(tasks, self._at_once):
            if task.error:
                raise RuntimeError(task.error)
            outcome = SURVIVED if task.told == [True] else NOTICED
            self.tell((task.subject, outcome if self._some[task.subject].test in passing else BROKEN))

    def _try(
        self, mutant: Mutant | None, functions: Mapping[Place, Sequence[FunctionType]], item: pytest.Item, tell: Report
    ) -> None:
        if mutant is not None:
            plant(mutant, functions)
        allow(LONGEST)
        tell(self.passes(item))
