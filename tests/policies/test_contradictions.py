"""Rules that leave nothing together: in one file they are refused, between several owners' files they are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.core.errors import InvalidInput
from policies.loader import load

REFERENCE = Path(__file__).parents[2] / "policies/REFERENCE.md"


def between(*rules: str) -> list[str]:
    """What is told of files with one rule each."""
    files = {
        name: f"version: 1\nguardrails:\n  - {{name: {name}, {rule}}}\n"
        for name, rule in zip("abc", rules, strict=False)
    }
    return list(load(files).warnings)


def inside(*rules: str) -> list[str]:
    """What is wrong with one file with all of them; empty where it is right."""
    lines = [f"  - {{name: {name}, {rule}}}" for name, rule in zip("abc", rules, strict=False)]
    try:
        load({"p": "\n".join(["version: 1", "guardrails:", *lines, ""])})
    except InvalidInput as error:
        return [f"{one.line}:{one.column} {one.key}: {one.message}" for one in error.problems]
    return []


NLP = ", scope: {team: nlp}"


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (
            "allowed_locations: {providers: [aws]}",
            "allowed_locations: {providers: [gcp, azure]}",
            "a:3:34: allows only provider aws, and b:3:34 allows only provider gcp, azure: together they allow nothing",
        ),
        (
            f"allowed_locations: {{regions: [us-east-1]}}{NLP}",
            f"allowed_locations: {{regions: [aws/eu-west-1]}}{NLP}",
            "a:3:34: allows only region us-east-1, and b:3:34 allows only region aws/eu-west-1: together "
            "they allow nothing to team nlp",
        ),
        (
            "allowed_locations: {providers: [aws]}",
            f"allowed_locations: {{providers: [gcp]}}{NLP}",
            "a:3:34: allows only provider aws, and b:3:34 allows only provider gcp: together they allow "
            "nothing to team nlp",
        ),
        (
            "capacity_types: [spot]",
            "capacity_types: {allow: [owned]}",
            "a:3:31: allows only capacity type spot, and b:3:31 allows only capacity type owned: together "
            "they allow nothing",
        ),
        (
            "accelerators: [H100]",
            "accelerators: [L4]",
            "a:3:29: allows only accelerator H100, and b:3:29 allows only accelerator L4: together they allow nothing",
        ),
    ],
)
def test_several_owners_who_leave_nothing_are_told_with_both_places(one: str, other: str, said: str) -> None:
    assert between(one, other) == [said]


CONTRADICTIONS = [
    # same scope, other scope that is within it, one that overlaps it
    (
        "accelerators: [L4]", "accelerators: [A100]",
        "4:29 guardrails[1].accelerators: allows only accelerator A100, and p:3:29 allows only accelerator "
            "L4: together they allow nothing",
    ),
    (
        "allowed_locations: {providers: [aws]}", f"allowed_locations: {{providers: [gcp]}}{NLP}",
        "4:34 guardrails[1].allowed_locations: allows only provider gcp, and p:3:34 allows only provider "
            "aws: together they allow nothing to team nlp",
    ),
    (
        "capacity_types: [owned], scope: {team: [nlp, x]}", "capacity_types: [spot], scope: {team: [nlp, y]}",
        "4:31 guardrails[1].capacity_types: allows only capacity type spot, and p:3:31 allows only capacity "
            "type owned: together they allow nothing to team nlp",
    ),
    # allowed and denied
    (
        "allowed_locations: {providers: [aws]}", f"allowed_locations: {{providers: {{deny: 'a*'}}}}{NLP}",
        "4:34 guardrails[1].allowed_locations: denies a*, and p:3:34 allows only provider aws: together they "
            "allow nothing to team nlp",
    ),
    (
        "max_concurrent_jobs: 3", "allowed_locations: {regions: {allow: [aws/us-east-1], deny: [us-east-1]}}",
        "4:34 guardrails[1].allowed_locations: allows only region aws/us-east-1 and denies us-east-1: it "
            "allows nothing",
    ),
    (
        "spot: {use: forbidden}", "capacity_types: [spot]",
        "4:31 guardrails[1].capacity_types: allows only capacity type spot, and p:3:21 denies spot: together "
            "they allow nothing",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "said"), CONTRADICTIONS)
def test_a_file_that_contradicts_itself_is_refused_with_both_places(one: str, other: str, said: str) -> None:
    assert inside(one, other) == [said]


def test_three_rules_that_leave_nothing_are_found_where_no_two_do() -> None:
    some, denied = "allowed_locations: {providers: [aws, gcp]}", "allowed_locations: {providers: {deny: %s}}%s"

    assert between(some, denied % ("aws", ""), denied % ("gcp", "")) == [
        "a:3:34: allows only provider aws, gcp, and b:3:34 denies aws, and c:3:34 denies gcp: together they "
        "allow nothing"
    ]
    assert inside(some, denied % ("aws", NLP), denied % ("gcp", ", scope: {team: [nlp, x]}")) == [
        "5:34 guardrails[2].allowed_locations: denies gcp, and p:3:34 allows only provider aws, gcp, and "
        "p:4:34 denies aws: together they allow nothing to team nlp"
    ]
    assert inside(some, denied % ("aws", NLP), denied % ("gcp", ", scope: {team: x}")) == []


LEAVE_SOMETHING = [
    ("allowed_locations: {providers: [aws, gcp]}", f"allowed_locations: {{providers: [GCP]}}{NLP}"),
    ("allowed_locations: {providers: ['a*']}", f"allowed_locations: {{providers: ['g*']}}{NLP}"),
    ("allowed_locations: {providers: [aws]}", f"allowed_locations: {{providers: {{deny: [gcp]}}}}{NLP}"),
    ("allowed_locations: {providers: [aws]}", "allowed_locations: {regions: [us-east-1]}"),
    ("allowed_locations: {regions: [us-east-1]}", f"allowed_locations: {{regions: [aws/us-east-1]}}{NLP}"),
    ("allowed_locations: {regions: [us-east-1]}", f"allowed_locations: {{regions: ['aws/us-*']}}{NLP}"),
    ("allowed_locations: {regions: [us-east-1]}", f"allowed_locations: {{regions: {{deny: aws/us-east-1}}}}{NLP}"),
    (f"allowed_locations: {{providers: [aws]}}{NLP}", "allowed_locations: {providers: [gcp]}, scope: {team: vision}"),
    ("capacity_types: [spot], scope: {workload: batch}", f"capacity_types: [owned]{NLP}"),
    ("capacity_types: [spot]", 'capacity_types: [owned], when: "job.nodes > 1"'),
    ("capacity_types: [spot]", "capacity_types: [owned], action: ask, approvers: [olga]"),
    ("capacity_types: [spot]", "accelerators: [L4]"),
    ("capacity_types: [on_demand]", "spot: {min_share: 100%}"),  # no job is eligible for spot
    ("spot: {use: forbidden}", "capacity_types: [on_demand]"),
]


@pytest.mark.parametrize(("one", "other"), LEAVE_SOMETHING)
def test_rules_that_may_leave_something_are_right(one: str, other: str) -> None:
    assert between(one, other) == []
    assert inside(one, other) == []
    assert inside(other, one) == []


def test_several_mistakes_are_all_told_and_what_follows_from_one_is_not() -> None:
    locations, types = "allowed_locations: {providers: [%s]}", "capacity_types: [%s]"
    found = inside(locations % "aws", f"{locations % 'gcp'}{NLP}", f"{locations % 'azure'}, scope: {{team: vision}}")
    assert [one.partition(":")[0] for one in found] == ["4", "5"]
    assert len(inside(types % "spot", types % "owned")) == 1  # and not that they are about the same jobs, too
    assert ["list" in one or "expected" in one for one in inside(types % "spot", types % "ownd")] == [True]


DURATIONS = "version: 1\npolicy: {0}\n{1}guardrails: [{{name: {0}-length, max_job_duration: {2}{3}}}]\n"


@pytest.mark.parametrize(
    ("default", "limit", "more", "told"),
    [
        ("3h", "1h", "", ["p.yaml:4:49: denies every job without `max_duration`: the default is 3h by"
         " p.yaml:3, and the limit "
            "is 1h"]),
        ("1h", "1h", "", []),
        ("3h", "1h", NLP, []),  # a shorter limit for some is an exception, and they are told
        ("3h", "1h", ", when: 'job.nodes > 1'", []),
        ("3h", "1h", ", action: ask, approvers: [olga]", []),
        ("", "1h", "", []),  # no file says what a job lasts that does not
    ],
)  # fmt: skip
def test_a_default_above_the_limit_is_told(default: str, limit: str, more: str, told: list[str]) -> None:
    defaults = f"defaults: {{max_duration: {default}}}\n" if default else ""
    assert load({"p.yaml": DURATIONS.format("p", defaults, limit, more)}).warnings == told


def test_another_owners_shorter_default_mends_it() -> None:
    one = DURATIONS.format("p", "defaults: {max_duration: 3h}\n", "1h", "")
    other = "version: 1\npolicy: q\ndefaults: {max_duration: 30m}\n"
    assert load({"p.yaml": one, "q.yaml": other}).warnings == []


def test_the_reference_says_so() -> None:
    text = " ".join(REFERENCE.read_text("utf-8").split())
    for sentence in (
        "are an error in one file",
        "a warning between files",
    ):
        assert sentence in text, sentence
