"""Reads and writes the YAML files that people edit, with the position of every value.

Built on PyYAML's safe parser, for a subset of YAML: one document, a mapping at the top, no tags, no duplicate keys,
bounded size, depth and number of values (aliases counted each time). Plain scalars are read more strictly than in YAML
1.1: ``true`` and ``false`` are booleans, decimal numbers are numbers, ``null``, ``~`` and nothing are null; ``no``,
``on``, ``12:30``, ``017`` and ``2026-12-01`` stay text. Keys are always text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from broker.core.errors import InvalidInput, Problem, known_names_suffix

Path = tuple[str | int, ...]

MAX_BYTES = 1_000_000
MAX_VALUES = 20_000
MAX_DEPTH = 32

# The C parser where it is built in: ten times as fast, same events.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?[0-9]{1,18}(?:\.[0-9]{0,18})?(?:[eE][-+]?[0-9]{1,2})?")
_CONSTANTS = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip

# PyYAML's message (either parser), advice, and whether the error is where the unclosed element was opened.
_ADVICE = (
    ("mapping values are not allowed", "there is a second ': ' in this line, or its indentation does not fit; put a"
     " value that contains ': ' in quotes", False),
    ("tab character", "a tab cannot be used here; indent with spaces only", False),
    ("cannot start any token", "a value cannot start with this character; put values that start with @, ` or % in"
     " quotes, and indent with spaces, not tabs", False),
    ("undefined alias", "a value that starts with * refers to an earlier &name in YAML; put it in quotes if it is"
     " plain text", False),
    ("alphabetic or numeric character", "a value that starts with * or & is a reference in YAML; put it in quotes",
     False),
    ("unexpected end of stream", "a quote that is opened here is never closed", True),
    ("expected ',' or", "a bracket that is opened here is not closed, or a comma is missing", True),
    ("node content", "a bracket that is opened here is not closed, or something is missing in it", True),
    ("expected key", "the indentation does not fit the lines above, or a quote is not closed", False),
    ("expected <block end>", "the indentation does not fit the lines above, or a quote is not closed", False),
    ("expected ':'", "a key without ':' after it", False),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Document:
    """A file's content as plain data (dict, list, str, int, float, bool, None) and the position of each part.

    ``texts``: the source text of each scalar, before conversion. Positions are 1-based (line, column).
    """

    file: str
    kind: str
    data: dict[str, Any] = field(repr=False)
    values: Mapping[Path, tuple[int, int]] = field(repr=False)
    keys: Mapping[Path, tuple[int, int]] = field(repr=False)
    texts: Mapping[Path, str] = field(repr=False)

    def problem(
        self, path: Path, message: str, *, at_key: bool = False, unknown_key: bool = False, known: Sequence[str] = ()
    ) -> Problem:
        """A finding about the value at ``path``, or (``at_key``) about the key itself, possibly an ``unknown_key``. A
        path that is not in the file gets the position of its nearest ancestor. ``known``: the names to list after the
        ``message``.
        """
        line, column = self._place(path, at_key or unknown_key)
        text = message + (known_names_suffix(known) if known else "")
        return Problem(line, column, path_text(path), text, unknown_key, tuple(known))

    def _place(self, path: Path, at_key: bool) -> tuple[int, int]:
        value, key = self.values.get(path), self.keys.get(path)
        if value and not at_key and (key is None or key[0] == value[0]):
            return value
        if key or value:
            return key or value or (1, 1)
        return self._place(path[:-1], True) if path else (1, 1)

    def refuse(self, problems: Sequence[Problem]) -> NoReturn:
        """Raises `InvalidInput` with these findings, sorted by place."""
        raise invalid_input(self.file, self.kind, problems)


def path_text(path: Path) -> str:
    """``resources.any_of[1].cpus``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def invalid_input(file: str, kind: str, problems: Sequence[Problem]) -> InvalidInput:
    """The error for a file with these findings; each is listed once, sorted by place."""
    unique = sorted(set(problems))
    return InvalidInput(f"this {kind} has {_mistake_count(len(unique))}", where=file, problems=unique, document=kind)


def read_document(text: str | bytes, *, file: str, kind: str = "file") -> Document:
    """Read one YAML document. ``file`` and ``kind`` ("job file") are for messages only; nothing is opened.

    Bytes are UTF-8. Raises `InvalidInput` for anything that is not a safe, bounded mapping; the place is the line
    where reading stopped.
    """
    return read_documents(text, file=file, kind=kind, max_documents=1)[0]


def read_documents(text: str | bytes, *, file: str, kind: str = "file", max_documents: int) -> list[Document]:
    """Read the YAML documents of a file that ``---`` separates: at least one, and at most ``max_documents``; empty ones
    are left out. As `read_document` otherwise; the positions are those in the file."""

    def stop(message: str, mark: yaml.Mark | None = None) -> NoReturn:
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise invalid_input(file, kind, [Problem(line, column, "", message)])

    if len(text) > MAX_BYTES or (isinstance(text, str) and len(text.encode(errors="replace")) > MAX_BYTES):
        stop(f"is larger than {MAX_BYTES // 1_000_000} MB; a {kind} is a few lines of YAML, so this is another file")
    content = _decode(text, stop)
    try:
        _check_events(content, stop, max_documents)
        roots = list(yaml.compose_all(content, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        reason = error.problem or str(error.context)
        advice, at_opening = next(((advice, at) for sign, advice, at in _ADVICE if sign in reason), (reason, False))
        mark = error.context_mark if at_opening and error.context_mark else error.problem_mark
        stop(f"is not valid YAML: {advice}", mark)
    except yaml.YAMLError:
        stop("contains a control character; is this a text file?")
    roots = [root for root in roots if not (root is None or (isinstance(root, ScalarNode) and not root.value))]
    if not roots:
        stop(f"is empty; expected a {kind}: lines of the form 'key: value'")
    return [_document(root, file, kind, stop) for root in roots]


def _document(root: Node, file: str, kind: str, stop: Stop) -> Document:
    if not isinstance(root, MappingNode):
        stop(f"expected lines of the form 'key: value', got {_kind_of(root)}", root.start_mark)
    reading = _TreeExpander(stop)
    data = reading.value(root, ())
    return Document(file, kind, data, reading.values, reading.keys, reading.texts)


def print_document(data: Mapping[str, Any]) -> str:
    """YAML for plain data, keys in the order given, that `read_document` reads back as the same data."""
    return yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


Stop = Callable[..., NoReturn]


def _decode(text: str | bytes, stop: Stop) -> str:
    """The text without byte-order mark. Calls ``stop`` if it is not valid UTF-8."""
    try:
        content = text.decode() if isinstance(text, bytes) else text
        content.encode()
    except UnicodeError:
        stop("is not UTF-8 text; save it as UTF-8")
    return content.removeprefix("\ufeff")


def _check_events(content: str, stop: Stop, max_documents: int) -> None:
    """Reject tags, depth, size and more than ``max_documents`` documents before anything is built."""
    depth = documents = 0
    for count, event in enumerate(yaml.parse(content, Loader=_Loader)):
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > max_documents:
                excess = (
                    "several YAML documents; only one is expected"
                    if max_documents == 1
                    else f"more than {max_documents} YAML documents"
                )
                stop(f"holds {excess}: split the file at '---'", event.start_mark)
        tag = getattr(event, "tag", None)
        if tag is not None:
            stop(f"tags such as {tag!r} are not allowed; write the plain value", event.start_mark)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            stop(f"is nested more than {MAX_DEPTH} levels deep", event.start_mark)
        if count > 3 * MAX_VALUES:
            stop(f"holds more than {MAX_VALUES:,} values", event.start_mark)


class _TreeExpander:
    """Expands a composed document into plain data, and records the position of every part."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop
        self.count = 0
        self.values: dict[Path, tuple[int, int]] = {}
        self.keys: dict[Path, tuple[int, int]] = {}
        self.texts: dict[Path, str] = {}

    def value(self, node: Node, path: Path) -> Any:
        # Aliases share nodes: without this limit, a small file could expand to any size.
        self.count += 1
        if self.count > MAX_VALUES:
            self.stop(f"holds more than {MAX_VALUES:,} values, counting each use of an alias", node.start_mark)
        if len(path) > MAX_DEPTH:
            self.stop(f"is nested more than {MAX_DEPTH} levels deep, or an alias contains itself", node.start_mark)
        self.values[path] = _place_of(node)
        if isinstance(node, MappingNode):
            return {key: self.value(value, (*path, key)) for key, value in self._entries(node, path).items()}
        if isinstance(node, SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        text: str = node.value
        self.texts[path] = text
        return resolve(text) if _is_plain(node) else text

    def _entries(self, node: MappingNode, path: Path) -> dict[str, Node]:
        """Keys to value nodes: merged ones (``<<: *base``) first, so that a mapping's own keys take precedence."""
        own: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                self.stop("a key must be a plain word; put a value that starts with { or [ in quotes", key.start_mark)
            name = key.value
            if name == "<<" and _is_plain(key):
                for base in value.value if isinstance(value, SequenceNode) else [value]:
                    merged = {**self._merge(base, path), **merged}
                continue
            if name in own:
                first = self.keys[(*path, name)][0]
                self.stop(f"the key {name!r} is given twice (first in line {first}); keep one", key.start_mark)
            own[name] = value
            self.keys[(*path, name)] = _place_of(key)
        return {**merged, **own}

    def _merge(self, base: Node, path: Path) -> dict[str, Node]:
        if not isinstance(base, MappingNode):
            self.stop("'<<' merges a mapping that was given a name with '&' before", base.start_mark)
        self.count += len(base.value)
        if len(path) > MAX_DEPTH or self.count > MAX_VALUES:
            self.stop("merges with '<<' too deep or too much", base.start_mark)
        expander = _TreeExpander(self.stop)
        expander.count = self.count
        entries = expander._entries(base, (*path, "<<"))
        self.count = expander.count
        return entries


def resolve(text: str) -> str | int | float | bool | None:
    """The value of a plain (unquoted) word."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and not re.fullmatch(r"[-+]?[0-9]+", text):
        return float(text)
    return text


def nulls(data: object, path: Path = ()) -> Iterator[Path]:
    """The paths of all nulls: keys that are written down without a value."""
    if data is None:
        yield path
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from nulls(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from nulls(value, (*path, index))


def _is_plain(node: Node) -> bool:
    return not getattr(node, "style", None)


def _place_of(node: Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _kind_of(node: Node) -> str:
    return "a list" if isinstance(node, SequenceNode) else "a single value"


def _mistake_count(count: int) -> str:
    return "a mistake" if count == 1 else f"{count} mistakes"


class _Dumper(yaml.SafeDumper):
    """Quotes every text that `resolve` would read as something else; several lines as a block."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> ScalarNode:
        # PyYAML would write U+0085 and the like as line breaks.
        escaped = not isinstance(resolve(text), str) or not text.replace("\n", "").isprintable()
        style = '"' if escaped else "|" if "\n" in text else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    def represent_items(self, items: list[Any]) -> SequenceNode:
        short = all(isinstance(item, str | int | float) for item in items)
        return self.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=short)


_Dumper.add_representer(str, _Dumper.represent_text)
_Dumper.add_representer(list, _Dumper.represent_items)
