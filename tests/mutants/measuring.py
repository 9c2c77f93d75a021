"""Which tests run which lines of the rooms, and how long each test takes; kept between runs for what did not change."""

import pickle
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from tests.mutants.rooms import ROOT

# Where it is kept; no part of the repository.
KEPT = ROOT / ".mutants" / "coverage.pickle"


@dataclass
class Test:
    """A test by its id: whether it passed, how many seconds it took, and the lines that it ran of each module."""

    nodeid: str
    passed: bool
    seconds: float
    lines: dict[str, set[int]] = field(default_factory=dict)

    __test__ = False  # not for pytest


class Coverage:
    """What is known of the tests of each file. A file is measured anew when it or anything but other tests changed."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = tuple(modules)
        self._common = _digest(
            path
            for folder in ("broker", "policies", "providers", "tests")
            for path in sorted((ROOT / folder).rglob("*.py"))
            if not path.name.startswith("test_") and path.parent != Path(__file__).parent
        )
        self.tests: dict[str, Test] = {}
        self._files: dict[str, tuple[str, list[Test]]] = {}
        if KEPT.exists():
            self._files = pickle.loads(KEPT.read_bytes())

    def unknown(self, files: Sequence[str]) -> list[str]:
        """Those of the test files that must be measured. What is known of the others is taken."""
        missing = []
        for file in files:
            digest, tests = self._files.get(file, ("", []))
            if digest == self._key(file):
                self.tests.update({test.nodeid: test for test in tests})
            else:
                missing.append(file)
        return missing

    def add(self, file: str, tests: list[Test]) -> None:
        """What was measured of a file."""
        self._files[file] = self._key(file), tests
        self.tests.update({test.nodeid: test for test in tests})

    def keep(self) -> None:
        """Write it down for the next run."""
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_bytes(pickle.dumps(self._files))

    def by_line(self) -> dict[tuple[str, int], list[Test]]:
        """The tests that ran each line of a module."""
        found: dict[tuple[str, int], list[Test]] = defaultdict(list)
        for test in self.tests.values():
            for module, lines in test.lines.items():
                for line in lines:
                    found[module, line].append(test)
        return found

    def _key(self, file: str) -> str:
        return f"{self._common} {self._modules} {_digest([ROOT / file])}"


def nearness(file: str, modules: Collection[str]) -> int:
    """How much a file of tests seems to be about these modules: whether it is named after one, and how often it names
    them. For the order in which files are measured."""
    text = (ROOT / file).read_text("utf-8")
    stems = [(Path(module).stem, module.removesuffix(".py").replace("/", ".")) for module in modules]
    return sum(
        1000 * (Path(file).stem == f"test_{stem}") + 10 * (name in text) + (stem in text) for stem, name in stems
    )


def _digest(files: Iterable[Path]) -> str:
    found = sha256()
    for path in files:
        found.update(path.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()
