"""What pydantic finds wrong, said for people: place, key, what was expected."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, Strict

from broker.core.documents import read_document
from broker.core.validation import each, validate
from broker.core.values.units import Amount, Duration


class Level(StrEnum):
    LOW = "low"
    HIGH = "high"


class SampleBudget(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["budget"]
    limit: Amount = Field(description="the most that may be spent, such as `limit: $900`")


class SamplePrice(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["price"]
    per_hour: Amount


def _pairs(value: dict[str, object]) -> dict[str, int]:
    def pair(key: str, item: object) -> tuple[str, int]:
        if not isinstance(item, int):
            raise ValueError("expected a number here")
        return key, item

    return dict(each(value.items(), pair))


class File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    level: Level | None = None
    count: Annotated[int, Strict(), Field(ge=1)] = 1
    share: float | None = None
    on: bool = False
    after: Duration | None = None
    rules: tuple[Annotated[SampleBudget | SamplePrice, Field(discriminator="kind")], ...] = ()
    limits: dict[str, SampleBudget] = Field(default_factory=dict)
    pairs: Annotated[dict[str, int], PlainValidator(_pairs)] = Field(default_factory=dict)
    tags: list[str] = Field(default_factory=list)


def findings(text: str) -> list[str]:
    value, problems = validate(read_document(text, file="f"), File)
    assert (value is None) == bool(problems)
    return [str(problem) for problem in sorted(problems)]


def test_nothing_wrong() -> None:
    value, problems = validate(read_document("name: x\nlevel: low\non: yes\nafter: 1h", file="f"), File)
    assert value is not None
    assert (value.level, value.on, problems) == (Level.LOW, True, [])


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("nme: x", "line 2: nme: unknown key; did you mean 'name'?"),
        ("zzz: x",
         "line 2: zzz: unknown key; known here: after, count, level, limits, name, on, pairs, rules, share, tags"),
        ("level: hgh", "line 2: level: expected one of low, high; got 'hgh'; did you mean 'high'?"),
        ("level: 3", "line 2: level: expected one of low, high; got 3"),
        ("count: 0", "line 2: count: must be at least 1; got 0"),
        ("count: two", "line 2: count: expected a whole number; got 'two'"),
        ("count: true", "line 2: count: expected a whole number; got true"),
        ("count: 1.5", "line 2: count: expected a whole number; got 1.5"),
        ("share: much", "line 2: share: expected a number; got 'much'"),
        ("on: maybe", "line 2: on: expected true or false; got 'maybe'"),
        ("on: [1]", "line 2: on: expected true or false; got a list"),
        ("after: 60", "line 2: after: expected a duration with its unit, such as 90s, 12m, 48h, 1h30m or 2d; got '60'"),
        ("after:", "line 2: after: has no value; write one, or delete the line"),
        ("tags: x", "line 2: tags: expected a list, such as [a, b]; got 'x'"),
        ("tags: [a, 5]", "line 2: tags[1]: expected text; got 5; write it in quotes: \"5\""),
        ("tags: [a, null]", "line 2: tags[1]: has no value; write one, or delete the line"),
        ("limits: 5", "line 2: limits: expected lines of the form 'key: value'; got 5"),
        ("limits: {a: x}",
         "line 2: limits.a: expected lines of the form 'key: value'; got 'x'; known here: kind, limit"),
        ("pairs: {a: 1, b: x}", "line 2: pairs.b: expected a number here"),
        ("limits: {a: {kind: budget}}",
         "line 2: limits.a.limit: is missing; expected the most that may be spent, such as `limit: $900`"),
        ("rules:\n- kind: budget\n  limt: $5\n  limit: $5",
         "line 4: rules[0].limt: unknown key; did you mean 'limit'?"),
        ("rules:\n- kind: price\n  per_hour: 5",
         "line 4: rules[0].per_hour: expected an amount with currency, such as $900; got '5'"),
    ],
)  # fmt: skip
def test_one_finding_for_one_mistake(line: str, finding: str) -> None:
    assert findings(f"name: x\n{line}") == [finding]


def test_a_missing_key_is_found_where_it_should_stand() -> None:
    assert findings("level: low") == ["line 1: name: is missing"]
    assert findings("name: x\nrules:\n- kind: price") == ["line 3: rules[0].per_hour: is missing"]


def test_a_required_key_without_value_is_one_mistake() -> None:
    assert findings("name:\nlevel: low") == ["line 1: name: has no value; write one, or delete the line"]


def test_a_blank_in_a_list_does_not_move_what_comes_after() -> None:
    assert findings("name: x\ntags:\n- a\n-\n- 5") == [
        "line 4: tags[1]: has no value; write one, or delete the line",
        'line 5: tags[2]: expected text; got 5; write it in quotes: "5"',
    ]


def test_a_key_that_is_misspelt_is_not_missing_as_well() -> None:
    assert findings("nam: x") == ["line 1: nam: unknown key; did you mean 'name'?"]
    assert next(line.partition(": ")[2] for line in findings("other: x")) == "name: is missing"


def test_all_mistakes_are_found_sorted_by_line() -> None:
    lines = [finding.partition(": ")[0] for finding in findings("count: 0\npairs: {a: x, b: y}\nlevel: 1\nnam: x")]
    assert lines == ["line 1", "line 2", "line 2", "line 3", "line 4"]


def test_long_values_are_cut() -> None:
    (finding,) = findings(f"name: x\ncount: {'9' * 5000}")
    assert len(finding) < 120
