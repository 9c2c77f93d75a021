"""All mutants of a file: its source with one change each, where the change stands, and how it is planted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import ndiff
from itertools import accumulate

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider

from tests.mutants.operators import OPERATORS, forced, is_prose

# What is done when a module is imported, without being a decision: names for types, loggers, how models are built.
_SETTINGS = frozenset({"log", "model_config", "__all__", "__slots__"})


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    ``function``: the qualified name of the outermost function that holds the change, and ``first`` its line (that of
    its first decorator); an empty name stands for code that runs when the module is imported. ``lines``: those of the
    statement, or of its head. ``before``, ``after``: the lines that differ, without their indentation. ``edit``: from
    which character to which the source becomes which text.
    """

    module: str
    function: str
    first: int
    line: int
    lines: range
    before: str
    after: str
    source: str = field(repr=False)
    edit: tuple[int, int, str]

    def planted(self) -> str:
        """The source with the change in it."""
        start, end, text = self.edit
        return self.source[:start] + text + self.source[end:]


def mutants_of(module: str, source: str) -> list[Mutant]:
    """Every mutant of a file's source, in the order in which they stand there; none twice."""
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    seen: dict[object, Mutant] = {}
    for mutant in _FunctionFinder(module, source, wrapper).found():
        if mutant.before != mutant.after:
            seen.setdefault(mutant.edit, mutant)
    return sorted(seen.values(), key=lambda mutant: mutant.line)


class _FunctionFinder:
    def __init__(self, module: str, source: str, wrapper: MetadataWrapper) -> None:
        self._module, self._source, self._tree = module, source, wrapper.module
        self._places = wrapper.resolve(PositionProvider)
        self._starts = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]

    def found(self) -> Iterator[Mutant]:
        yield from self._within(self._tree.body, "", 0)

    def _within(self, body: Iterable[cst.CSTNode], prefix: str, first: int) -> Iterator[Mutant]:
        for node in body:
            if isinstance(node, cst.FunctionDef):
                yield from self._function(node, prefix)
            elif isinstance(node, cst.ClassDef):
                yield from self._within(node.body.body, f"{prefix}{node.name.value}.", first)
            elif not _declares(node):
                yield from self._walk(node, "", 0, self._lines(node))

    def _function(self, node: cst.FunctionDef, prefix: str) -> Iterator[Mutant]:
        first = self._places[node.decorators[0] if node.decorators else node].start.line
        if not node.decorators:
            first = self._places[node.name].start.line
        for parameter in (*node.params.params, *node.params.kwonly_params):
            if parameter.default is not None:
                yield from self._walk(parameter.default, "", 0, self._lines(node.params))
        yield from self._walk(node.body, prefix + node.name.value, first, range(0))

    def _walk(self, node: cst.CSTNode, function: str, first: int, lines: range) -> Iterator[Mutant]:
        if _is_left_alone(node):
            return
        if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement | cst.MatchCase):
            lines = self._lines(node)
        for kinds, operator in OPERATORS:
            if isinstance(node, kinds):
                for changed in operator(node):
                    yield self._mutant(node, self._code(changed, node), function, first, lines)
        if isinstance(node, cst.If | cst.IfExp | cst.CompIf | cst.While):
            for condition in forced(node.test):
                if not (isinstance(node, cst.While) and m.matches(condition, m.Name("True"))):
                    yield self._mutant(node.test, self._code(condition, node.test), function, first, lines)
        if isinstance(node, cst.Match) and len(node.cases) > 1:
            for case in node.cases:
                yield self._mutant(case, "", function, first, self._lines(case))
        for child in node.children:
            yield from self._walk(child, function, first, lines)

    def _lines(self, node: cst.CSTNode) -> range:
        """Those of a simple statement; those of the head of a compound one, whose body has its own."""
        place = self._places[node]
        body = getattr(node, "body", None)
        last = place.end.line if not isinstance(body, cst.CSTNode) else self._places[body].start.line
        if isinstance(body, cst.IndentedBlock):
            last = max(place.start.line, self._places[body.body[0]].start.line - 1)
        return range(place.start.line, last + 1)

    def _code(self, changed: cst.CSTNode, node: cst.CSTNode) -> str:
        """The text of what takes a node's place. The node's own parentheses stay where they are."""
        if getattr(node, "lpar", ()) and getattr(changed, "lpar", ()) == getattr(node, "lpar", ()):
            changed = changed.with_changes(lpar=(), rpar=())
        return self._tree.code_for_node(changed).strip()

    def _mutant(self, node: cst.CSTNode, text: str, function: str, first: int, lines: range) -> Mutant:
        place = self._places[node]
        start = self._starts[place.start.line - 1] + place.start.column
        end = self._starts[place.end.line - 1] + place.end.column
        old = self._source[start:end]  # some nodes begin or end with the space around them
        text = old[: len(old) - len(old.lstrip())] + text + old[len(old.rstrip()) :]
        begin, stop = self._starts[place.start.line - 1], self._starts[place.end.line]
        gone, come = self._source[begin:stop], self._source[begin:start] + text + self._source[end:stop]
        return Mutant(
            self._module, function, first, place.start.line, lines, _plain(gone), _plain(come), self._source,
            (start, end, text),
        )  # fmt: skip


def _plain(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines())


def diff(mutant: Mutant) -> str:
    """The change as lines with ``-`` and ``+``."""
    lines = ndiff(mutant.before.splitlines(), mutant.after.splitlines())
    return "\n".join(f"    {line}" for line in lines if line[0] in "+-")


_LOGS = m.Call(m.Attribute(m.Name("log")))
_DOCUMENTS_OR_LOGS = m.Expr(m.SimpleString() | m.ConcatenatedString() | _LOGS) | m.Call(
    m.Attribute(m.Name("log")) | m.Name("cast")
)


def _is_left_alone(node: cst.CSTNode) -> bool:
    """Annotations, text for people, what is logged, and assertions, which are checks themselves."""
    if isinstance(node, cst.Annotation | cst.Assert | cst.Decorator) or is_prose(node):
        return True
    return isinstance(node, cst.Expr | cst.Call) and m.matches(node, _DOCUMENTS_OR_LOGS)


def _declares(node: cst.CSTNode) -> bool:
    """Whether a statement at the top of a module or class imports, names a type, or sets up what is no decision."""
    if m.matches(node, m.If(test=m.Name("TYPE_CHECKING"))):
        return True
    if not isinstance(node, cst.SimpleStatementLine):
        return False
    (statement, *_) = node.body
    if isinstance(statement, cst.Import | cst.ImportFrom | cst.Expr):
        return True
    if not isinstance(statement, cst.Assign):
        return False
    (target, *_) = statement.targets
    types = m.Subscript() | m.BinaryOperation(operator=m.BitOr()) | m.Call(m.Name("TypeVar"))
    names_a_type = m.matches(statement.value, types)
    return names_a_type or (isinstance(target.target, cst.Name) and target.target.value in _SETTINGS)
