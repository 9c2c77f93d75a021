"""Plants each fault of `tests.money.faults` and reports what finds it: ``python -m tests.money --planted``.

Each fault gets a separate process in which the module with the fault is imported instead of the one in the repository;
no file is changed. Nothing of the broker may be imported before that.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from tests.money.faults import FAULTS, PlantedFault

ROOT = Path(__file__).resolve().parents[2]


def source_with(fault: PlantedFault) -> str:
    """The module's text with the fault. Raises LookupError if the place does not occur exactly once."""
    text = (ROOT / fault.module).read_text(encoding="utf-8")
    if (times := text.count(fault.old)) != 1:
        raise LookupError(f"finding {fault.finding}: its place occurs {times} times in {fault.module}, expected once")
    return text.replace(fault.old, fault.new)


class _PlantedLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)


class _PlantedFinder(MetaPathFinder):
    def __init__(self, fault: PlantedFault) -> None:
        self._name = fault.module.removesuffix(".py").replace("/", ".")
        self._file, self._source = str(ROOT / fault.module), source_with(fault)

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        loader = _PlantedLoader(fullname, self._file, self._source)
        return importlib.util.spec_from_file_location(fullname, self._file, loader=loader)


def by_property(scripts: int) -> tuple[int, str] | None:
    """The number of scripts after which the promise was broken, and the broken part; None if it was not."""
    import logging

    from tests.money.play import drawn, replay
    from tests.money.stores import sqlite_store

    logging.disable(logging.CRITICAL)
    with sqlite_store() as stage:
        for seed in range(scripts):
            if found := replay(stage, drawn(seed)):
                return seed + 1, found[0].rule
    return None


def by_test(names: Sequence[str]) -> str | None:
    """The first of these tests that fails; None if all pass."""
    import pytest

    class FailureRecorder:
        name: str | None = None

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed and self.name is None:
                self.name = report.nodeid

    failures = FailureRecorder()
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", *names], plugins=[failures])
    return failures.name


def tried(fault: PlantedFault, way: str) -> str:
    """What finds that fault in this process, in words; empty if nothing does. ``way``: property or tests."""
    sys.meta_path.insert(0, _PlantedFinder(fault))
    if way == "tests":
        return by_test(fault.tests) or ""
    script = by_property(fault.scripts) if fault.scripts else None
    return f"script {script[0]} (`{script[1]}`)" if script else ""


def _apart(fault: PlantedFault, way: str) -> str:
    """`tried` in a separate process. Raises RuntimeError if that process fails."""
    command = [sys.executable, "-m", "tests.money.planted", fault.finding, way]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"finding {fault.finding} could not be tried:\n{done.stderr[-2000:]}")
    return str(json.loads(done.stdout.strip().splitlines()[-1]))


def all_of_them(findings: Sequence[str]) -> int:
    """Plant each fault in turn; print the table. Returns 1 if one is not found."""
    missed = []
    print(
        "| finding | fault | planted in | found by the property | found by a test |\n|---|---|---|---|---|", flush=True
    )
    for fault in FAULTS:
        if findings and fault.finding not in findings:
            continue
        script, test = _apart(fault, "property"), _apart(fault, "tests")
        by = script or ("-" if not fault.scripts else f"not in {fault.scripts} scripts")
        print(f"| {fault.finding} | {fault.what} | `{fault.module}` | {by} | {test or 'no'} |", flush=True)
        if not script and not test:
            missed.append(fault.finding)
    print("each is found" if not missed else f"nothing finds {', '.join(missed)}")
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.money.planted", description="Plant one fault and try it.")
    parser.add_argument("finding", choices=[fault.finding for fault in FAULTS])
    parser.add_argument("way", choices=("property", "tests"))
    asked = parser.parse_args()
    fault = next(one for one in FAULTS if one.finding == asked.finding)
    print(json.dumps(tried(fault, asked.way)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
