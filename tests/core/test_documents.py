"""YAML files: safe, bounded, located, and without the surprises of YAML 1.1."""

from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from broker.core import documents
from broker.core.documents import MAX_BYTES, Document, print_document, read_document
from broker.core.errors import InvalidInput, Problem


@pytest.fixture(params=["C", pytest.param("Python", marks=pytest.mark.system)])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of PyYAML's parsers: the C one is not built in everywhere."""
    monkeypatch.setattr(documents, "_Loader", yaml.CSafeLoader if request.param == "C" else yaml.SafeLoader)


def read(text: str | bytes) -> Document:
    return read_document(text, file="team.yaml", kind="policy file")


def refused(text: str | bytes) -> Problem:
    with pytest.raises(InvalidInput) as caught:
        read(text)
    assert caught.value.where == "team.yaml"
    assert caught.value.exit_code == 2
    (problem,) = caught.value.problems
    return problem


def test_data_and_the_place_of_everything(loader: None) -> None:
    document = read("a: 1\nb:\n  - x\n  - {c: 2.50, d: null}\ne: |\n  text\n")
    assert document.data == {"a": 1, "b": ["x", {"c": 2.5, "d": None}], "e": "text\n"}
    at = {path: str(document.problem(path, "!")) for path in [("a",), ("b",), ("b", 0), ("b", 1, "c"), ("e",)]}
    assert at == {
        ("a",): "line 1: a: !",
        ("b",): "line 2: b: !",
        ("b", 0): "line 3: b[0]: !",
        ("b", 1, "c"): "line 4: b[1].c: !",
        ("e",): "line 5: e: !",
    }
    assert document.problem(("b", 1, "c"), "!").column == 9
    assert document.problem(("b", 1, "c"), "!", at_key=True).column == 6
    assert document.texts["b", 1, "c"] == "2.50"


def test_a_path_that_is_not_there_has_the_place_of_what_contains_it() -> None:
    assert read("a: 1\nb:\n  c: 2\n").problem(("b", "gone", 3), "!").line == 2


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("no", "no"), ("on", "on"), ("yes", "yes"), ("12:30", "12:30"), ("1:2:3", "1:2:3"), ("017", "017"),
        ("0x1F", "0x1F"), ("1_000", "1_000"), ("2026-12-01", "2026-12-01"), (".nan", ".nan"), (".inf", ".inf"),
        ("1e999", "1e999"), ("=", "="), ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
        ("12", 12), ("-3", -3), ("1.10", 1.1), ("1e3", 1000.0), ("2.", 2.0), ('"12"', "12"), ("'true'", "true"),
        ("9" * 5000, "9" * 5000),
    ],
)  # fmt: skip
def test_what_plain_words_mean(loader: None, written: str, meant: object) -> None:
    value = read(f"key: {written}").data["key"]
    assert value == meant
    assert type(value) is type(meant)


def test_keys_are_text(loader: None) -> None:
    assert list(read("on: 1\nno: 2\n8: 3\nnull: 4\ntrue: 5\n1.10: 6").data) == ["on", "no", "8", "null", "true", "1.10"]


def test_aliases_and_merges_are_read(loader: None) -> None:
    document = read("a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3\ne: [*x]\nf: {<<: [*x, {b: 9, g: 4}]}")
    assert document.data["d"] == {"b": 1, "c": 3}
    assert document.data["e"] == [{"b": 1, "c": 2}]
    assert document.data["f"] == {"b": 1, "c": 2, "g": 4}
    assert document.texts["d", "b"] == "1"


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("", 0, "is empty"),
        ("# only a comment\n", 0, "is empty"),
        ("---\n", 0, "is empty"),
        ("- a\n- b\n", 1, "expected lines of the form 'key: value', got a list"),
        ("just words", 1, "expected lines of the form 'key: value', got a single value"),
        ("a: 1\nb: 2\na: 3\n", 3, "the key 'a' is given twice (first in line 1)"),
        ("a: {b: 1, b: 2}", 1, "the key 'b' is given twice"),
        ("a: 1\n---\nb: 2\n", 2, "holds several YAML documents"),
        (
            "a: !!python/object/apply:os.system [ls]",
            1,
            "tags such as 'tag:yaml.org,2002:python/object/apply:os.system'",
        ),
        ("a: !secret x", 1, "tags such as '!secret' are not allowed"),
        ("a: !!str 1", 1, "tags such as"),
        ("{{ name }}: 1", 1, "a key must be a plain word"),
        ("[a]: 1", 1, "a key must be a plain word"),
        ("a: 1\nb: *.txt", 2, "put it in quotes"),
        ("a: *base", 1, "put it in quotes"),
        ("a: 1\nb: x: y", 2, "a second ': ' in this line"),
        ("a: @home", 1, "a value cannot start with this character"),
        ("a:\n  b: 1\n c: 2\n", 3, "the indentation does not fit"),
        ("a: 1\nb: [1, 2\nc: 3\n", 2, "a bracket that is opened here is not closed"),
        ("a: 1\nb: 'x\nc: 3\n", 2, "a quote that is opened here is never closed"),
        ("a: 1\n\tb: 2", 2, "tab"),
        ("a: \0", 0, "control character"),
        (b"a: \xff", 0, "is not UTF-8 text"),
        ("a: \ud800", 0, "is not UTF-8 text"),
        ("a: &a [*a]", 1, "an alias contains itself"),
        ("a: &a {<<: *a}", 1, "merges with '<<'"),
        ("a: {<<: [1]}", 1, "'<<' merges a mapping"),
        ("a: " + "[" * 40 + "]" * 40, 1, "nested more than 32 levels deep"),
    ],
)
def test_what_is_not_read(loader: None, text: str | bytes, line: int, expected: str) -> None:
    problem = refused(text)
    assert expected in problem.message
    assert problem.line == line


def test_a_large_file_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "parse", lambda *_: pytest.fail("was parsed"))
    assert "larger than 1 MB" in refused("a: " + "x" * 10_000_000).message
    assert "larger than 1 MB" in refused(b"a: " + b"x" * 10_000_000).message
    assert "larger than 1 MB" in refused("é" * (MAX_BYTES // 2 + 1)).message


def test_deep_nesting_stops_early(loader: None) -> None:
    assert "levels deep" in refused("[" * 900_000).message


def test_alias_bombs_are_refused(loader: None) -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert "counting each use of an alias" in refused("\n".join(lines)).message
    merged = ["a0: &a0 {k: 1}"]
    merged += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 25)]
    assert "merges with '<<'" in refused("\n".join(merged)).message


def test_masses_of_values_are_refused(loader: None) -> None:
    assert "more than 20,000 values" in refused("a: [" + "1," * 30_000 + "]").message


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert read("\ufeffa: 1").data == {"a": 1}
    assert read(b"\xef\xbb\xbfa: 1").data == {"a": 1}


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats(-1e15, 1e15).map(lambda x: round(x, 6))
    | st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["no", "1e3", "017", "null", "<<", "="]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), PLAIN, min_size=1, max_size=4))
def test_what_is_printed_is_read_back(data: dict[str, Any]) -> None:
    assert read(print_document(data)).data == data


def test_texts_of_several_lines_are_printed_as_blocks() -> None:
    assert print_document({"run": "cd x\npython train.py\n"}) == "run: |\n  cd x\n  python train.py\n"


@given(st.text() | st.binary())
def test_whatever_comes_in_only_invalid_input_comes_out(text: str | bytes) -> None:
    with suppress(InvalidInput):
        read(text)
