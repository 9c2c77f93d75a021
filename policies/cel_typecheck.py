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
Declared = Mapping[str, "str | Mapping[str, str]"]

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
    ("duration", "+", "timestamp"): "timestamp",
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
_OF_A_ZONE = ("hour_in", "weekday_in")


class Mistake(ValueError):
    """An error in an expression. ``at``: number of characters before it."""

    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at = at


@dataclass(frozen=True, slots=True)
class CheckedExpression:
    """A valid expression. ``uses``: its variables and fields, such as ``spend.asked``. ``literals``: calls with one
    literal, and their offsets, so that the literal can be tried out. ``unasked``: optional fields used without a
    guarding ``has()``, and the offset of the first use.
    """

    text: str
    uses: frozenset[str]
    literals: tuple[tuple[str, str, int], ...]
    unasked: tuple[tuple[str, int], ...] = ()


def check(text: str, declared: Declared) -> CheckedExpression:
    """Raises `Mistake` for an expression that cannot be parsed, has a type error, or is not boolean."""
    if len(text) > MAX_LENGTH:
        raise Mistake(0, f"is longer than {MAX_LENGTH} characters; split it into several rules")
    parser = _Parser(text, declared)
    found = parser.ternary()
    if parser.kind != "end":
        meant = {"and": "; write &&", "or": "; write ||", "is": "; write =="}.get(parser.word.lower(), "")
        parser.stop(f"expected an operator such as && or ==, or the end; got {parser.word!r}{meant}")
    if found != "bool":
        raise Mistake(0, f"expected a condition that is true or false, such as {_EXAMPLE}; this is {_a(found)}")
    unasked: dict[str, int] = {}
    for name, at in parser.unasked:
        unasked.setdefault(name, at)
    return CheckedExpression(text, frozenset(parser.uses), tuple(parser.literals), tuple(unasked.items()))


_EXAMPLE = "spend.asked > 100.0"


@dataclass(frozen=True, slots=True)
class _Known:
    """Optional fields known to be present if an expression is true, and if it is false."""

    true: frozenset[str] = frozenset()
    false: frozenset[str] = frozenset()

    def joined(self, sign: str, right: _Known) -> _Known:
        if sign == "&&":
            return _Known(self.true | right.true, self.false & (self.true | right.false))
        return _Known(self.true & (self.false | right.true), self.false | right.false)


class _Parser:
    """Parses from left to right; every method returns the type of what it parsed. ``known``: optional fields that are
    present at this place; ``tells``: fields that the last parsed expression guarantees.
    """

    def __init__(self, text: str, declared: Declared) -> None:
        self.text, self.declared = text, declared
        self.position = self.at = 0
        self.kind = self.word = ""
        self.uses: set[str] = set()
        self.literals: list[tuple[str, str, int]] = []
        self.unasked: list[tuple[str, int]] = []
        self.known: frozenset[str] = frozenset()
        self.tells = _Known()
        self.depth = 0
        self.next()

    def stop(self, message: str, at: int | None = None) -> NoReturn:
        raise Mistake(self.at if at is None else at, message)

    def next(self) -> None:
        rest = self.text[self.position :]
        self.at = self.position + len(rest) - len(rest.lstrip())
        if not rest.strip():
            self.kind, self.word = "end", "the end"
            return
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            sign = self.text[self.at]
            meant = "; write == to compare" if sign == "=" else f"; write {sign * 2}" if sign in "&|" else ""
            self.stop(f"expected a value or an operator; got {sign!r}{meant}")
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
        found = self.binary(0)
        if self.accept("?"):
            if found != "bool":
                self.stop(f"expected a condition before ?; got {_a(found)}", start)
            before, asked = self.known, self.tells
            self.known = before | asked.true
            one = self.ternary()
            self.expect(":")
            self.known = before | asked.false
            other = self.ternary()
            self.known, self.tells = before, _Known()
            found = self.joined(one, other, start)
        self.depth -= 1
        return found

    def joined(self, one: str, other: str, at: int) -> str:
        if one != other:
            self.stop(f"both outcomes need the same type; got {_a(one)} and {_a(other)}", at)
        return one

    def binary(self, level: int) -> str:
        if level == len(_LEVELS):
            return self.unary()
        start, first = self.at, len(self.unasked)
        left = self.binary(level + 1)
        while self.kind in ("sign", "name") and self.word in _LEVELS[level]:
            sign, at = self.word, self.at
            self.next()
            if sign in ("&&", "||"):
                right = self.beside(sign, first)
            else:
                right, self.tells = self.binary(level + 1), _Known()
            left = self.operation(left, sign, right, start, at)
        return left

    def beside(self, sign: str, first: int) -> str:
        """The right side of && or ||. Fields that the left side checks are known on the right. CEL evaluates both sides
        in either order, so a check on the right guards the left side too.
        """
        before, asked, doubtful = self.known, self.tells, len(self.unasked)
        self.known = before | (asked.true if sign == "&&" else asked.false)
        found = self.binary(_LEVELS.index((sign,)) + 1)
        settled = self.tells.true if sign == "&&" else self.tells.false
        self.unasked[first:doubtful] = [one for one in self.unasked[first:doubtful] if one[0] not in settled]
        self.known, self.tells = before, asked.joined(sign, self.tells)
        return found

    def operation(self, left: str, sign: str, right: str, start: int, at: int) -> str:
        if sign in ("&&", "||"):
            for side in (left, right):
                if side != "bool":
                    self.stop(f"{sign} joins conditions; one side is {_a(side)}", start if side == left else at)
            return "bool"
        fits = left == right or (left in _NUMBERS and right in _NUMBERS)
        if sign == "in":
            inner = right.removeprefix("list of ")
            alike = left == inner or (left in _NUMBERS and inner in _NUMBERS)
            if not right.startswith("list") or not alike:
                self.stop(f"expected {_a(left)} in a list of the same type; got {_a(left)} in {_a(right)}", at)
            return "bool"
        if sign in ("==", "!="):
            if not fits:
                self.stop(f"{_a(left)} never equals {_a(right)}", at)
            return "bool"
        if sign in ("<", "<=", ">", ">="):
            if not fits or left not in _ORDERED:
                self.stop(f"{_a(left)} cannot be compared with {_a(right)}{_hint(left, right)}", at)
            return "bool"
        if (left, sign, right) in _SUMS:
            return _SUMS[left, sign, right]
        if left != right or left not in _NUMBERS or (sign == "%" and left == "double"):
            advice = "; write whole amounts with a decimal point, such as 2.0" if fits else ""
            self.stop(f"{sign} does not work with {_a(left)} and {_a(right)}{advice}", at)
        return left

    def unary(self) -> str:
        at = self.at
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.stop("is nested too deep")
        if self.accept("!"):
            found = self.unary()
            if found != "bool":
                self.stop(f"! needs a condition; got {_a(found)}", at)
            self.tells = _Known(self.tells.false, self.tells.true)
        elif self.accept("-"):
            found = self.unary()
            if found not in _NUMBERS:
                self.stop(f"- needs a number; got {_a(found)}", at)
        else:
            found = self.primary()
        self.depth -= 1
        return found

    def primary(self) -> str:
        kind, word, at = self.kind, self.word, self.at
        self.next()
        self.tells = _Known()
        found: str
        if kind == "number":
            found = "int" if word.isdigit() else "double"
            if found == "int" and int(word) >= 2**63:
                self.stop("is too large a number", at)
        elif kind == "string":
            found = "string"
        elif kind == "name" and word in ("true", "false", "null"):
            found = "null" if word == "null" else "bool"
        elif kind == "name" and self.accept("("):
            found = self.function(word, at)
        elif kind == "name":
            found = self.variable(word, at)
        elif word == "(":
            found = self.ternary()
            self.expect(")")
        elif word == "[":
            found = self.items(at)
        else:
            self.stop(f"expected a value, got {word if kind == 'end' else repr(word)}", at)
        while self.accept("."):
            found, self.tells = self.method(found), _Known()
        return found

    def items(self, at: int) -> str:
        kinds: list[str] = []
        while not self.accept("]"):
            if kinds:
                self.expect(",")
            kinds.append(self.ternary())
        if not kinds:
            self.stop("is an empty list", at)
        if len(set(kinds)) > 1:
            self.stop(f"a list holds values of one type; got {' and '.join(map(_a, sorted(set(kinds))))}", at)
        return f"list of {kinds[0]}"

    def variable(self, name: str, at: int) -> str:
        known = self.declared.get(name)
        if known is None:
            listed = f"; known are {', '.join(self.declared)}"
            self.stop(f"unknown variable {name!r}{did_you_mean(name, self.declared) or listed}", at)
        if isinstance(known, str):
            self.uses.add(name)
            return known
        if not self.accept("."):
            self.stop(f"{name} is a group: expected one of its fields, such as {name}.{next(iter(known))}", at)
        field, where = self.word, self.at
        if self.kind != "name" or field not in known:
            listed = f"; known are {', '.join(known)}"
            self.stop(f"{name} has no field {field!r}{did_you_mean(field, known) or listed}", where)
        self.next()
        self.uses.add(f"{name}.{field}")
        if known[field].endswith("?") and f"{name}.{field}" not in self.known:
            self.unasked.append((f"{name}.{field}", at))
        return known[field].removesuffix("?")

    def function(self, name: str, at: int) -> str:
        if name == "has":
            if self.kind != "name" or self.word not in self.declared:
                self.stop("has() checks that a field is present: expected has(job.max_cost)")
            group, start, doubtful = self.word, self.at, len(self.unasked)
            self.next()
            if self.variable(group, self.at) and not isinstance(self.declared[group], Mapping):
                self.stop("has() checks that a field is present: expected has(job.max_cost)", at)
            del self.unasked[doubtful:]  # has() guards this use
            self.tells = _Known(frozenset({"".join(self.text[start : self.at].split())}))
            self.expect(")")
            return "bool"
        if name not in _FUNCTIONS:
            self.stop(f"unknown function {name!r}{did_you_mean(name, _FUNCTIONS)}", at)
        takes, gives = _FUNCTIONS[name]
        if name in _OF_A_ZONE and self.kind != "string":
            self.stop(f"{name}() takes the name of a time zone in quotes")
        self.argument(name, takes)
        self.expect(")")
        return gives

    def method(self, of: str) -> str:
        name, at = self.word, self.at
        if self.kind != "name":
            self.stop(f"expected a name after the dot, got {self.word!r}")
        self.next()
        if name not in _METHODS or not self.accept("("):
            self.stop(f"{_a(of)} has no {name!r}{did_you_mean(name, _METHODS)}", at)
        owners, takes, gives = _METHODS[name]
        if of.split(" ")[0] not in owners:
            self.stop(f"{name}() needs {' or '.join(map(_a, owners))}; got {_a(of)}", at)
        for expected in takes:
            self.argument(name, (expected,))
        self.expect(")")
        return gives

    def argument(self, name: str, takes: tuple[str, ...]) -> None:
        at, kind, literal = self.at, self.kind, self.word
        found = self.ternary()
        if found.split(" ")[0] not in takes:
            self.stop(f"{name}() takes {' or '.join(map(_a, takes))}; got {_a(found)}", at)
        if kind == "string" and self.text[at : self.at].strip().removesuffix(")").strip() == literal:
            self.literals.append((name, literal, at))


_WORDS = {
    "bool": "a condition", "int": "a whole number", "double": "a number", "string": "a text", "null": "null",
    "timestamp": "a time", "duration": "a duration", "list": "a list",
}  # fmt: skip


def _a(kind: str) -> str:
    """A type in words."""
    inner = _WORDS.get(kind.removeprefix("list of "), "")
    if kind.startswith("list of ") and inner:
        return f"a list of {inner.removeprefix('a ')}s"
    return _WORDS.get(kind, "a list")


def _hint(left: str, right: str) -> str:
    if "string" in (left, right) and {left, right} & {*_NUMBERS}:
        return "; write numbers without quotes"
    return ""
