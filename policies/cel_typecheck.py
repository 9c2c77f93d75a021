"""Type-checks a CEL expression against declared variables: names, types, and a boolean result. Pure.

The CEL library finds type errors only at evaluation, one branch at a time. A policy must not fail in operation, so its
expressions are checked when the file is loaded, with the column of each error. Supported: literals, variables and their
fields, ``has()``, ``&& || ! == != < <= > >= in + - * / % ?:``, lists, and the functions in `_METHODS` and `_FUNCTIONS`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from broker.core.errors import did_you_mean

MAX_LENGTH = 1000
_MAX_DEPTH = 40

# Variables: a type's name, or a mapping of fields. A type is bool, int, double, string, timestamp, duration, null, any,
# or "list of" one of these; with "?" after it, the field may be absent.
Declarations = Mapping[str, "str | Mapping[str, str]"]

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>\d+\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\d+)
      | (?P<string>[rR]?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]])
    )""",
    re.VERBOSE,
)
_LEVELS = (("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">=", "in"), ("+", "-"), ("*", "/", "%"))
_NUMBERS = ("int", "double")
_ORDERED = (*_NUMBERS, "string", "timestamp", "duration")
_SUMS = {
    ("timestamp", "+", "duration"): "timestamp",
    ("timestamp", "-", "duration"): "timestamp",
    ("timestamp", "-", "timestamp"): "duration",
    ("duration", "+", "duration"): "duration",
    ("duration", "-", "duration"): "duration",
    ("string", "+", "string"): "string",
}
# By method: types of the receiver, types of the arguments, type of the result.
_METHODS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "startsWith": (("string",), ("string",), "bool"),
    "endsWith": (("string",), ("string",), "bool"),
    "contains": (("string",), ("string",), "bool"),
    "matches": (("string",), ("string",), "bool"),
    "size": (("string", "list"), (), "int"),
    **{f"get{part}": (("timestamp",), (), "int") for part in ("FullYear", "Month", "Date", "DayOfWeek", "DayOfYear")},
    **{f"get{part}": (("timestamp", "duration"), (), "int") for part in ("Hours", "Minutes", "Seconds")},
}
_FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "size": (("string", "list"), "int"),
    "int": (("int", "double"), "int"),
    "double": (("int", "double"), "double"),
    "string": (("int", "double", "string"), "string"),
    "timestamp": (("string",), "timestamp"),
    "duration": (("string",), "duration"),
    # Added to CEL: the hour (0 to 23) and the day ("mon" to "sun") of now in a time zone.
    "hour_in": (("string",), "int"),
    "weekday_in": (("string",), "string"),
}
_TIMEZONE_FUNCTIONS = ("hour_in", "weekday_in")


class ExpressionError(ValueError):
    """An error in an expression. ``at``: number of characters before it."""

    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at = at


@dataclass(frozen=True, slots=True)
class CheckedExpression:
    """A valid expression. ``uses``: its variables and fields, such as ``spend.asked``. ``literals``: calls with one
    literal, and their offsets, so that the literal can be tried out. ``unasked``: optional fields used without a
    guarding ``has()``, and the offset of the first use. ``names``: each literal text that a variable is compared with:
    the variable, the operator or method, the literal, its offset.
    """

    text: str
    uses: frozenset[str]
    literals: tuple[tuple[str, str, int], ...]
    unasked: tuple[tuple[str, int], ...] = ()
    names: tuple[tuple[str, str, str, int], ...] = ()


def check(text: str, declared: Declarations) -> CheckedExpression:
    """Raises `ExpressionError` for an expression that cannot be parsed, has a type error, or is not boolean."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(0, f"is longer than {MAX_LENGTH} characters; split it into several rules")
    parser = _Parser(text, declared)
    result_type = parser.ternary()
    if parser.kind != "end":
        hint = {"and": "; write &&", "or": "; write ||", "is": "; write =="}.get(parser.word.lower(), "")
        parser.stop(f"expected an operator such as && or ==, or the end; got {parser.word!r}{hint}")
    if result_type != "bool":
        raise ExpressionError(
            0, f"expected a condition that is true or false, such as {_EXAMPLE}; this is {_describe(result_type)}"
        )
    unguarded: dict[str, int] = {}
    for name, at in parser.unasked:
        unguarded.setdefault(name, at)
    return CheckedExpression(
        text, frozenset(parser.uses), tuple(parser.literals), tuple(unguarded.items()), tuple(parser.names)
    )


_EXAMPLE = "spend.asked > 100.0"


@dataclass(frozen=True, slots=True)
class _Presence:
    """Optional fields known to be present if an expression is true, and if it is false."""

    true: frozenset[str] = frozenset()
    false: frozenset[str] = frozenset()

    def joined(self, sign: str, right: _Presence) -> _Presence:
        if sign == "&&":
            return _Presence(self.true | right.true, self.false & (self.true | right.false))
        return _Presence(self.true & (self.false | right.true), self.false | right.false)


@dataclass(frozen=True, slots=True)
class _Value:
    """What an expression may be: one of these variables, or of these literal texts, with their offsets."""

    variables: tuple[str, ...] = ()
    texts: tuple[tuple[str, int], ...] = ()

    def __or__(self, other: _Value) -> _Value:
        return _Value(self.variables + other.variables, self.texts + other.texts)


class _Parser:
    """Parses from left to right; every method returns the type of what it parsed. ``known``: optional fields that are
    present at this place; ``guarantees``: fields that the last parsed expression guarantees; ``value``: its variables
    and texts, if it was nothing else.
    """

    def __init__(self, text: str, declared: Declarations) -> None:
        self.text, self.declared = text, declared
        self.position = self.at = 0
        self.kind = self.word = ""
        self.uses: set[str] = set()
        self.literals: list[tuple[str, str, int]] = []
        self.unasked: list[tuple[str, int]] = []
        self.known: frozenset[str] = frozenset()
        self.guarantees = _Presence()
        self.value = _Value()
        self.names: list[tuple[str, str, str, int]] = []
        self.depth = 0
        self.next()

    def stop(self, message: str, at: int | None = None) -> NoReturn:
        raise ExpressionError(self.at if at is None else at, message)

    def next(self) -> None:
        remaining = self.text[self.position :]
        self.at = self.position + len(remaining) - len(remaining.lstrip())
        if not remaining.strip():
            self.kind, self.word = "end", "the end"
            return
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            sign = self.text[self.at]
            hint = "; write == to compare" if sign == "=" else f"; write {sign * 2}" if sign in "&|" else ""
            self.stop(f"expected a value or an operator; got {sign!r}{hint}")
        self.kind, self.word = match.lastgroup or "", match[match.lastgroup or 0]
        self.position = match.end()

    def accept(self, *tokens: str) -> str | None:
        if self.kind in ("sign", "name") and self.word in tokens:
            token = self.word
            self.next()
            return token
        return None

    def expect(self, token: str) -> None:
        if self.accept(token) is None:
            self.stop(f"expected {token!r}, got {self.word if self.kind == 'end' else repr(self.word)}")

    def ternary(self) -> str:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.stop("is nested too deep")
        start = self.at
        result = self.binary(0)
        if self.accept("?"):
            if result != "bool":
                self.stop(f"expected a condition before ?; got {_describe(result)}", start)
            known_before, condition = self.known, self.guarantees
            self.known = known_before | condition.true
            when_true, value = self.ternary(), self.value
            self.expect(":")
            self.known = known_before | condition.false
            when_false = self.ternary()
            self.known, self.guarantees, self.value = known_before, _Presence(), value | self.value
            result = self.joined(when_true, when_false, start)
        self.depth -= 1
        return result

    def joined(self, left: str, right: str, at: int) -> str:
        if left != right:
            self.stop(f"both outcomes need the same type; got {_describe(left)} and {_describe(right)}", at)
        return left

    def binary(self, level: int) -> str:
        if level == len(_LEVELS):
            return self.unary()
        start, first = self.at, len(self.unasked)
        left = self.binary(level + 1)
        while self.kind in ("sign", "name") and self.word in _LEVELS[level]:
            sign, at, operand = self.word, self.at, self.value
            self.next()
            if sign in ("&&", "||"):
                right = self.beside(sign, first)
            else:
                right, self.guarantees = self.binary(level + 1), _Presence()
            if sign in ("==", "!=", "in"):
                self.compare(operand, sign, self.value)
                self.compare(self.value, sign, operand)
            self.value = _Value()
            left = self.operation(left, sign, right, start, at)
        return left

    def compare(self, first: _Value, sign: str, second: _Value) -> None:
        """Note the texts that a variable is compared with."""
        self.names += [(variable, sign, text, at) for variable in first.variables for text, at in second.texts]

    def beside(self, sign: str, first: int) -> str:
        """The right side of && or ||. Fields that the left side checks are known on the right. CEL evaluates both sides
        in either order, so a check on the right guards the left side too.
        """
        known_before, left_facts, left_end = self.known, self.guarantees, len(self.unasked)
        self.known = known_before | (left_facts.true if sign == "&&" else left_facts.false)
        result = self.binary(_LEVELS.index((sign,)) + 1)
        guarded = self.guarantees.true if sign == "&&" else self.guarantees.false
        self.unasked[first:left_end] = [use for use in self.unasked[first:left_end] if use[0] not in guarded]
        self.known, self.guarantees = known_before, left_facts.joined(sign, self.guarantees)
        return result

    def operation(self, left: str, sign: str, right: str, start: int, at: int) -> str:
        if sign in ("&&", "||"):
            for side in (left, right):
                if side != "bool":
                    self.stop(f"{sign} joins conditions; one side is {_describe(side)}", start if side == left else at)
            return "bool"
        is_compatible = left == right or (left in _NUMBERS and right in _NUMBERS)
        if sign == "in":
            inner = right.removeprefix("list of ")
            is_same_type = left == inner or (left in _NUMBERS and inner in _NUMBERS)
            if not right.startswith("list") or not is_same_type:
                self.stop(
                    f"expected {_describe(left)} in a list of the same type; got {_describe(left)} in "
                    f"{_describe(right)}",
                    at,
                )
            return "bool"
        if sign in ("==", "!="):
            if not is_compatible:
                self.stop(f"{_describe(left)} never equals {_describe(right)}", at)
            return "bool"
        if sign in ("<", "<=", ">", ">="):
            if not is_compatible or left not in _ORDERED:
                self.stop(f"{_describe(left)} cannot be compared with {_describe(right)}{_hint(left, right)}", at)
            return "bool"
        if (left, sign, right) in _SUMS:
            return _SUMS[left, sign, right]
        if left != right or left not in _NUMBERS or (sign == "%" and left == "double"):
            advice = "; write whole amounts with a decimal point, such as 2.0" if is_compatible else ""
            swapped = f"; write {_describe(right)} {sign} {_describe(left)}" if (right, sign, left) in _SUMS else ""
            self.stop(f"{sign} does not work with {_describe(left)} and {_describe(right)}{advice or swapped}", at)
        return left

    def unary(self) -> str:
        at = self.at
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.stop("is nested too deep")
        if self.accept("!"):
            result = self.unary()
            if result != "bool":
                self.stop(f"! needs a condition; got {_describe(result)}", at)
            self.guarantees = _Presence(self.guarantees.false, self.guarantees.true)
        elif self.accept("-"):
            result = self.unary()
            if result not in _NUMBERS:
                self.stop(f"- needs a number; got {_describe(result)}", at)
        else:
            result = self.primary()
        self.depth -= 1
        return result

    def primary(self) -> str:
        kind, word, at = self.kind, self.word, self.at
        self.next()
        self.guarantees, self.value = _Presence(), _Value()
        result: str
        if kind == "number":
            result = "int" if word.isdigit() else "double"
            if result == "int" and int(word) >= 2**63:
                self.stop("is too large a number", at)
        elif kind == "string":
            result, self.value = "string", _Value(texts=((word, at),))
        elif kind == "name" and word in ("true", "false", "null"):
            result = "null" if word == "null" else "bool"
        elif kind == "name" and self.accept("("):
            result = self.function(word, at)
        elif kind == "name":
            result = self.variable(word, at)
        elif word == "(":
            result = self.ternary()
            self.expect(")")
        elif word == "[":
            result = self.items(at)
        else:
            self.stop(f"expected a value, got {word if kind == 'end' else repr(word)}", at)
        while self.accept("."):
            result, self.guarantees = self.method(result), _Presence()
        return result

    def items(self, at: int) -> str:
        kinds: list[str] = []
        value = _Value()
        while not self.accept("]"):
            if kinds:
                self.expect(",")
            kinds.append(self.ternary())
            value |= self.value
        self.value = value
        if not kinds:
            self.stop("is an empty list", at)
        if len(set(kinds)) > 1:
            self.stop(f"a list holds values of one type; got {' and '.join(map(_describe, sorted(set(kinds))))}", at)
        return f"list of {kinds[0]}"

    def variable(self, name: str, at: int) -> str:
        fields = self.declared.get(name)
        if fields is None:
            known_names = f"; known are {', '.join(self.declared)}"
            self.stop(f"unknown variable {name!r}{did_you_mean(name, self.declared) or known_names}", at)
        if isinstance(fields, str):
            self.uses.add(name)
            self.value = _Value((name,))
            return fields
        if not self.accept("."):
            self.stop(f"{name} is a group: expected one of its fields, such as {name}.{next(iter(fields))}", at)
        field, field_at = self.word, self.at
        if self.kind != "name" or field not in fields:
            known_names = f"; known are {', '.join(fields)}"
            self.stop(f"{name} has no field {field!r}{did_you_mean(field, fields) or known_names}", field_at)
        self.next()
        self.value = _Value((f"{name}.{field}",))
        self.uses.add(f"{name}.{field}")
        if fields[field].endswith("?") and f"{name}.{field}" not in self.known:
            self.unasked.append((f"{name}.{field}", at))
        return fields[field].removesuffix("?")

    def function(self, name: str, at: int) -> str:
        if name == "has":
            if self.kind != "name" or self.word not in self.declared:
                self.stop("has() checks that a field is present: expected has(job.max_cost)")
            group, start, uses_before = self.word, self.at, len(self.unasked)
            self.next()
            if self.variable(group, self.at) and not isinstance(self.declared[group], Mapping):
                self.stop("has() checks that a field is present: expected has(job.max_cost)", at)
            del self.unasked[uses_before:]  # has() guards this use
            self.guarantees = _Presence(frozenset({"".join(self.text[start : self.at].split())}))
            self.expect(")")
            self.value = _Value()
            return "bool"
        if name not in _FUNCTIONS:
            self.stop(f"unknown function {name!r}{did_you_mean(name, _FUNCTIONS)}", at)
        accepted, result = _FUNCTIONS[name]
        if name in _TIMEZONE_FUNCTIONS and self.kind != "string":
            self.stop(f"{name}() takes the name of a time zone in quotes")
        self.argument(name, accepted)
        self.expect(")")
        self.value = _Value(("time.weekday",) if name == "weekday_in" else ())
        return result

    def method(self, of: str) -> str:
        name, at, owner = self.word, self.at, self.value
        if self.kind != "name":
            self.stop(f"expected a name after the dot, got {self.word!r}")
        self.next()
        if name not in _METHODS or not self.accept("("):
            self.stop(f"{_describe(of)} has no {name!r}{did_you_mean(name, _METHODS)}", at)
        owners, argument_types, result = _METHODS[name]
        if of.split(" ")[0] not in owners:
            self.stop(f"{name}() needs {' or '.join(map(_describe, owners))}; got {_describe(of)}", at)
        for expected in argument_types:
            self.argument(name, (expected,))
            self.compare(owner, name, self.value)
        self.expect(")")
        self.value = _Value()
        return result

    def argument(self, name: str, accepted: tuple[str, ...]) -> None:
        at, kind, literal = self.at, self.kind, self.word
        actual = self.ternary()
        if actual.split(" ")[0] not in accepted:
            self.stop(f"{name}() takes {' or '.join(map(_describe, accepted))}; got {_describe(actual)}", at)
        if kind == "string" and self.text[at : self.at].strip().removesuffix(")").strip() == literal:
            self.literals.append((name, literal, at))


_WORDS = {
    "bool": "a condition", "int": "a whole number", "double": "a number", "string": "a text", "null": "null",
    "timestamp": "a time", "duration": "a duration", "list": "a list",
}  # fmt: skip


def _describe(kind: str) -> str:
    """A type in words."""
    inner = _WORDS.get(kind.removeprefix("list of "), "")
    if kind.startswith("list of ") and inner:
        return f"a list of {inner.removeprefix('a ')}s"
    return _WORDS.get(kind, "a list")


def _hint(left: str, right: str) -> str:
    if "string" in (left, right) and {left, right} & {*_NUMBERS}:
        return "; write numbers without quotes"
    return ""
