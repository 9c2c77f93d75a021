"""Puts a mutant into a running process: into functions that are loaded already, or into a module before its import."""

import gc
import importlib.util
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, FunctionType, ModuleType

from tests.mutants.mutant import Mutant
from tests.mutants.rooms import ROOT

# A function's file, qualified name and first line.
Place = tuple[str, str, int]


def loaded_functions(modules: Sequence[str]) -> Mapping[Place, list[FunctionType]]:
    """The functions of these modules that the process has, wrapped ones, methods and properties included. Imports the
    modules."""
    files = {str(ROOT / module): module for module in modules}
    for module in modules:
        importlib.import_module(name_of(module))
    found: dict[Place, list[FunctionType]] = defaultdict(list)
    gc.unfreeze()  # what is frozen is not listed
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and (loaded_from := files.get(thing.__code__.co_filename)):
            found[loaded_from, thing.__code__.co_qualname, thing.__code__.co_firstlineno].append(thing)
    return found


def plant(mutant: Mutant, functions: Mapping[Place, Sequence[FunctionType]]) -> None:
    """Give the function that is loaded the mutant's code. Whoever imported the function has the mutant, too."""
    code = _find(compile(mutant.planted(), str(ROOT / mutant.module), "exec", dont_inherit=True), mutant)
    for function in functions[mutant.module, mutant.function, mutant.first]:
        function.__code__ = code


def _find(code: CodeType, mutant: Mutant) -> CodeType:
    nested = [code]
    while nested:
        one = nested.pop()
        if (one.co_qualname, one.co_firstlineno) == (mutant.function, mutant.first):
            return one
        nested += [constant for constant in one.co_consts if isinstance(constant, CodeType)]
    raise LookupError(f"{mutant.module} has no function {mutant.function} at line {mutant.first}")


def plant_at_import(mutant: Mutant) -> None:
    """From now on, whoever imports the mutant's module gets the mutant. The module must not be imported yet."""
    assert name_of(mutant.module) not in sys.modules, f"{mutant.module} is imported already"
    sys.meta_path.insert(0, _MutantFinder(mutant))


class _MutantFinder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != name_of(self._mutant.module):
            return None
        file = str(ROOT / self._mutant.module)
        return importlib.util.spec_from_file_location(
            fullname, file, loader=_MutantLoader(fullname, file, self._mutant)
        )


class _MutantLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._mutant.planted(), self.path, "exec", dont_inherit=True)


def name_of(module: str) -> str:
    """``broker/ledger/holds.py`` as an import names it."""
    return module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
