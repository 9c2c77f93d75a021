"""The tool that tries the tests: what it changes, that a mutant is really planted, and that its list is not stale."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter

import pytest

from tests.mutants.__main__ import score, verdict
from tests.mutants.children import ChildTask, allow, in_children
from tests.mutants.known import known_mutants
from tests.mutants.mutant import Mutant, diff, mutants_of
from tests.mutants.named import named_mutants
from tests.mutants.planting import loaded_functions, plant
from tests.mutants.rooms import ROOT, modules
from tests.mutants.running import MutantOutcome


def after(source: str) -> set[str]:
    """The changed lines of every mutant of a function's body."""
    return {mutant.after for mutant in mutants_of("m.py", f"def f(a, b):\n    {source}\n")}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("return a + b", {"return a - b"}),
        ("return a <= 3", {"return a < 3", "return a <= 4"}),
        ("return a and b", {"return a or b", "return a", "return b"}),
        ("return not (a or b)", {"return (a or b)", "return not (a and b)", "return not (a)", "return not (b)"}),
        ("return min(a)", {"return max(a)", "return min(None)", "return min()"}),
        ("return f(a, b=1)", {f"return f({one})" for one in ("None, b=1", "a, b=None", "b=1", "a", "a, b=2")}),
        ("a.send()", {"pass"}),
        ("return a if b else 7", {"return a if True else 7", "return a if False else 7", "return a if b else 8"}),
        ("a += b", {"a -= b", "a = b"}),
        ('return "kind"', {'return "XXkindXX"'}),
        ('raise ValueError(f"{a} is no place")', set()),
        ('"""A docstring."""', set()),
        ("assert a < b", set()),
        ('log.warning("%s", a)', set()),
    ],
)  # fmt: skip
def test_what_is_changed(source: str, expected: set[str]) -> None:
    assert after(source) == expected


def test_a_guard_is_forced_both_ways_and_each_case_forgotten() -> None:
    assert {"if True:", "if False:"} <= after("if a:\n        return b")
    cases = "match a:\n        case 1:\n            return 2\n        case _:\n            return 3"
    assert {diff(m) for m in mutants_of("m.py", f"def f(a):\n    {cases}\n") if not m.after} == {
        "    - case 1:\n    - return 2",
        "    - case _:\n    - return 3",
    }


@pytest.mark.system
def test_every_mutant_of_the_ledger_is_another_program_and_can_be_planted() -> None:
    files = [module for module in modules() if module.startswith("broker/ledger/")]
    functions = loaded_functions(files)
    for module in files:
        source = (ROOT / module).read_text("utf-8")
        found = mutants_of(module, source)
        assert len({mutant.edit for mutant in found}) == len(found)
        for mutant in found:
            compile(mutant.planted(), module, "exec", dont_inherit=True)
            assert mutant.planted() != source
            assert not mutant.function or functions[module, mutant.function, mutant.first], mutant


def test_where_a_mutant_stands() -> None:
    source = "class A:\n    @property\n    def f(self):\n        return (1 +\n            self.b)\n\nLIMIT = 5\n"
    source += 'T = TypeVar("T", bound=A)\n'  # names a type, which is no decision
    inside = [m for m in mutants_of("m.py", source) if m.function]
    assert {(m.function, m.first, m.lines) for m in inside} == {("A.f", 2, range(4, 6))}
    assert {(m.function, m.after) for m in mutants_of("m.py", source) if not m.function} == {
        ("", "LIMIT = 6"),
        ("", "LIMIT = None"),
    }


def test_a_planted_mutant_is_what_everybody_calls() -> None:
    module = "broker/ledger/sums.py"
    from broker.ledger.sums import amount_before  # as any other module has it

    (mutant,) = (m for m in mutants_of(module, (ROOT / module).read_text("utf-8")) if "covers_from <= edge" in m.after)
    functions = loaded_functions([module])
    original = amount_before.__code__
    assert amount_before(5, 10, 10, 10) == 0
    plant(mutant, functions)
    try:
        assert amount_before(5, 10, 10, 10) == 5
    finally:
        amount_before.__code__ = original


@pytest.mark.system
def test_children_that_hang_or_die_are_told_from_those_that_end() -> None:
    def die(tell: object) -> None:
        raise SystemExit(3)

    def fail(tell: object) -> None:
        raise LookupError("no such thing")

    def hang(tell: object) -> None:
        signal.pause()

    def spin(tell: object) -> None:
        allow(0.1)
        while True:
            pass

    tasks = [
        ChildTask("spins", spin, lambda told: 30.0),
        ChildTask("tells", lambda tell: tell(7), lambda told: 30.0),
        ChildTask("dies", die, lambda told: 30.0),
        ChildTask("fails", fail, lambda told: 30.0),
        ChildTask("hangs", hang, lambda told: 0.1),
    ]
    ended = {task.subject: task for task in in_children(tasks, 2)}
    assert "no such thing" in ended["fails"].error
    assert {subject: (task.ended, task.told) for subject, task in ended.items()} == {
        "tells": ("ended", [7]),
        "dies": ("ended", []),
        "fails": ("failed", []),
        "hangs": ("timed out", []),
        "spins": ("timed out", []),
    }


def test_what_hangs_counts_as_killed_and_what_was_not_tried_counts_nothing() -> None:
    counts = Counter({"killed": 17, "timed out": 2, "survived": 1, "untried": 80})
    assert score(counts) == 95.0


@pytest.mark.parametrize(
    ("killed", "survived", "named", "untried", "all_lines", "changed_lines"),
    [
        (95, 5, 0, 0, 0, 0),
        (94, 6, 0, 0, 1, 1),
        (1, 2, 0, 0, 1, 0),  # two of three: too few to tell
        (0, 3, 0, 0, 1, 1),
        (57, 3, 0, 0, 0, 0),
        (56, 3, 0, 0, 1, 1),
        (90, 0, 10, 0, 1, 0),  # each has its reason, and the file too many of them
        (0, 0, 0, 100, 0, 0),
    ],
)
def test_when_too_many_survive(
    killed: int, survived: int, named: int, untried: int, all_lines: int, changed_lines: int
) -> None:
    states = ["killed"] * killed + ["survived"] * (survived + named) + ["untried"] * untried
    mutants = [Mutant("m.py", "f", 1, 1, range(1, 2), "a", str(n), "", (0, n, "")) for n in range(len(states))]
    known = {mutant.key: "no difference" for mutant in mutants[killed : killed + named]}
    of_all = [MutantOutcome(mutant, state) for mutant, state in zip(mutants, states, strict=True)]
    tried = [outcome for outcome in of_all if outcome.mutant.key not in known]
    for outcomes in (of_all, tried):  # with --known and without
        assert verdict(mutants, outcomes, known, 95.0) == all_lines
        assert verdict(mutants, outcomes, known, 95.0, spared=2) == changed_lines


def test_a_known_survivor_that_is_killed_is_a_failure() -> None:
    (mutant,) = [Mutant("m.py", "f", 1, 1, range(1, 2), "a", "b", "", (0, 1, ""))]
    assert verdict([mutant], [MutantOutcome(mutant, "killed")], {mutant.key: "equal"}, 95.0) == 1


@pytest.mark.system
def test_the_known_survivors_are_mutants_that_can_be_made() -> None:
    """An entry whose code is gone says nothing any more: delete it."""
    listed = known_mutants()
    made: set[tuple[str, str, str, str]] = set()
    for module in {module for module, *_ in listed}:
        found: list[Mutant] = mutants_of(module, (ROOT / module).read_text("utf-8"))
        made.update(mutant.key for mutant in found)
    assert not [key for key in listed if key not in made]


@pytest.mark.system
@pytest.mark.timeout(900)  # a minute of a processor, which a busy machine may not give in two
def test_every_mistake_with_a_name_is_noticed() -> None:
    command = [sys.executable, "-m", "tests.mutants", "--named", "--jobs", "1"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_mistake_with_a_name_stands_once_in_its_function() -> None:
    entry = (
        '[[mutant]]\nwhat = "x"\nmodule = "broker/ledger/sums.py"\n'
        'function = "{}"\nbefore = "{}"\nafter = "!"\ntest = ""\n'
    )
    (one,) = named_mutants(entry.format("amount_before", "covers_from < edge"))
    assert "return micros if ! else 0" in one.mutant.planted()
    for function, before in (("amount_before", "no such code"), ("amount_before", "covers_from"), ("nowhere", "edge")):
        with pytest.raises(ValueError, match="correct the entry"):
            named_mutants(entry.format(function, before))


@pytest.mark.parametrize(
    ("reasons", "problem"), [(("",), "has no reason"), (("equal", "equal"), "is there twice")]
)  # fmt: skip
def test_an_entry_needs_a_reason_and_stands_once(reasons: tuple[str, ...], problem: str) -> None:
    entry = '[[mutant]]\nmodule = "m.py"\nfunction = "f"\nbefore = "a"\nafter = "b"\nreason = "{}"\n'
    text = "".join(entry.format(reason) for reason in reasons)
    with pytest.raises(ValueError, match=problem):
        known_mutants(text)
