"""Rules of the architecture, besides the import contracts of pyproject.toml.

Every registered provider, engine and rule is tested against its contract: some test class derives from the contract
suite and names in ``plugin`` the registered name that it tests. So a new plug-in takes one file, one registry line, and
one test class whose body is a fixture; if the test class is missing, a test here fails.
"""

import ast
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.core.registry import Registry, load
from tests.conftest import slow_tests

TESTS = Path(__file__).parent


class PluginKind(NamedTuple):
    """The registry of a kind of plug-ins and its name there, the folder of its plug-ins, and the suite that they must
    pass.
    """

    module: str
    registry: str
    room: str | tuple[str, ...]
    suite: str


KINDS = {
    "provider": PluginKind("providers.registry", "PROVIDERS", "providers.", "ProviderContract"),
    "engine": PluginKind(
        "broker.engines.registry", "ENGINES", ("broker.engines.", "broker.engines.sandbox."), "EngineContract"
    ),
    "rule": PluginKind("policies.rules", "RULES", "policies.rules.", "RuleContract"),
}


def registry_of(kind: str) -> Registry:
    found: Registry = getattr(import_module(KINDS[kind].module), KINDS[kind].registry)
    return found


@cache
def text_of(file: Path) -> str:
    return file.read_text("utf-8")


@cache
def classes(file: Path) -> tuple[ast.ClassDef, ...]:
    """All classes of a file; parsed once for all tests here."""
    return tuple(node for node in ast.walk(ast.parse(text_of(file), str(file))) if isinstance(node, ast.ClassDef))


@cache
def held_to(suite: str) -> frozenset[str]:
    """The names in ``plugin`` of the test classes that derive from the suite."""
    return frozenset(
        name
        for file in TESTS.rglob("test_*.py")
        if suite in text_of(file)
        for node in classes(file)
        if node.name.startswith("Test") and suite in _bases(node)
        for name in _plugins(node)
    )


def _bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).rpartition(".")[2] for base in node.bases}


def _plugins(node: ast.ClassDef) -> Iterator[str]:
    for line in node.body:
        if (
            isinstance(line, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == "plugin" for target in line.targets)
            and isinstance(line.value, ast.Constant)
        ):
            yield str(line.value.value)


@pytest.mark.parametrize("kind", KINDS)
def test_every_plugin_is_held_to_its_contract(kind: str) -> None:
    suite = KINDS[kind].suite
    free = set(registry_of(kind)) - held_to(suite)
    assert not free, f"no test class Test…({suite}) with `plugin = …` for the {kind}: {', '.join(sorted(free))}"


@pytest.mark.parametrize("kind", KINDS)
def test_no_contract_is_about_a_plugin_that_is_not_registered(kind: str) -> None:
    assert held_to(KINDS[kind].suite) <= set(registry_of(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_registered_is_there_and_in_its_room(kind: str) -> None:
    for name, place in registry_of(kind).items():
        if isinstance(place, str):
            assert isinstance(load(registry_of(kind), name, kind), type)
        else:
            place = f"{place.__module__}:{place.__name__}"
        assert place.startswith(KINDS[kind].room), f"{kind} {name} lives at {place}"


def test_every_slow_test_is_there() -> None:
    """A test that is renamed or deleted is so in tests/slow.txt, too."""
    contracts = "".join(file.read_text() for file in (TESTS / "contracts").glob("*.py"))
    for name in slow_tests():
        path, _, test = name.partition("::")
        file = TESTS.parent / path
        defined = f"def {test.rpartition('::')[2]}("
        assert file.is_file(), f"{name} is in tests/slow.txt, but not its file"
        assert defined in file.read_text() or ("::" in test and defined in contracts), (
            f"{name}: only tests/slow.txt has it"
        )
