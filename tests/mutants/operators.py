"""The single changes that make a mutant: most of them mutmut's, and a few for what money code can get wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import libcst as cst
import libcst.matchers as m
from mutmut.mutation import mutators as theirs

# Takes a node of the kinds that stand beside it in OPERATORS.
Operator = Callable[[Any], Iterable[cst.CSTNode]]


def is_prose(node: cst.CSTNode) -> bool:
    """Whether it is text for people. Tests compare figures and typed fields, not sentences, so text is not mutated."""
    match node:
        case cst.SimpleString():
            return " " in node.value or node.value.startswith(('"""', "'''"))
        case cst.FormattedString():
            return any(isinstance(part, cst.FormattedStringText) and " " in part.value for part in node.parts)
        case cst.ConcatenatedString():
            return is_prose(node.left) or is_prose(node.right)
    return False


def _name(node: cst.SimpleString) -> Iterator[cst.CSTNode]:
    """Text that is a name (of a field, a code, a kind of entry) becomes another name."""
    quote = node.value.index(node.quote)
    inside = node.value[quote + len(node.quote) : -len(node.quote)]
    yield node.with_changes(value=f"{node.value[: quote + len(node.quote)]}XX{inside}XX{node.quote}")


def _arguments(node: cst.Call) -> Iterator[cst.CSTNode]:
    """Each argument becomes None, and each is left out; text for people stays."""
    for index, arg in enumerate(node.args):
        if is_prose(arg.value) or m.matches(node, m.Call(m.Name("timedelta"), [m.Arg(m.Integer("0"))])):
            continue  # a time of nothing stays one without its 0
        before, after = node.args[:index], node.args[index + 1 :]
        if arg.star == "" and not m.matches(arg.value, m.Name("None")):
            yield node.with_changes(args=[*before, arg.with_changes(value=cst.Name("None")), *after])
        rest = [*before, *after]
        if rest:
            rest[-1] = rest[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        yield node.with_changes(args=rest)


def forced(test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """A condition that is always or never met."""
    if not m.matches(test, m.Name("True") | m.Name("False") | m.Name("TYPE_CHECKING")):
        yield cst.Name("True")
        yield cst.Name("False")


def _operand(node: cst.BooleanOperation) -> Iterator[cst.CSTNode]:
    """One side of ``and`` or ``or`` is forgotten."""
    yield node.left
    yield node.right


def _extreme(node: cst.Call) -> Iterator[cst.CSTNode]:
    """The least becomes the greatest."""
    for name, other in (("min", "max"), ("max", "min"), ("any", "all"), ("all", "any")):
        if m.matches(node.func, m.Name(name)):
            yield node.with_changes(func=cst.Name(other))


def _effect(node: cst.Expr) -> Iterator[cst.CSTNode]:
    """A call made for its effect is left out."""
    if isinstance(node.value, cst.Call):
        yield cst.Pass()


_HAVE_OPERATORS = (cst.BinaryOperation, cst.UnaryOperation, cst.BooleanOperation, cst.ComparisonTarget, cst.AugAssign)

OPERATORS: tuple[tuple[type[cst.CSTNode] | tuple[type[cst.CSTNode], ...], Operator], ...] = (
    (cst.BaseNumber, theirs.operator_number),
    (cst.Name, theirs.operator_name),
    ((cst.Assign, cst.AnnAssign), theirs.operator_assignment),
    (cst.AugAssign, theirs.operator_augmented_assignment),
    (cst.UnaryOperation, theirs.operator_remove_unary_ops),
    (cst.Call, theirs.operator_symmetric_string_methods_swap),
    (cst.Call, theirs.operator_unsymmetrical_string_methods_swap),
    (cst.Lambda, theirs.operator_lambda),
    (cst.CSTNode, theirs.operator_keywords),
    (_HAVE_OPERATORS, theirs.operator_swap_op),
    (cst.SimpleString, _name),
    (cst.Call, _arguments),
    (cst.BooleanOperation, _operand),
    (cst.Call, _extreme),
    (cst.Expr, _effect),
)
