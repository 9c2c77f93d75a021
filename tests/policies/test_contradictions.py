"""Several owners' lists of what is allowed: which of them leave nothing together, and are told so."""

from __future__ import annotations

import pytest

from policies.loader import load


def found(one: str, other: str) -> list[str]:
    files = {
        name: f"version: 1\nguardrails:\n  - {{name: {name}, {rule}}}\n"
        for name, rule in zip("ab", (one, other), strict=True)
    }
    return list(load(files).warnings)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (
            "allowed_locations: {providers: [aws]}",
            "allowed_locations: {providers: [gcp, azure]}",
            "a:3:34: allows no provider but aws, and b:3:34 none but gcp, azure: together they allow none",
        ),
        (
            "allowed_locations: {regions: [us-east-1]}, scope: {team: nlp}",
            "allowed_locations: {regions: [aws/eu-west-1]}, scope: {team: nlp}",
            "a:3:34: allows no region but us-east-1, and b:3:34 none but aws/eu-west-1: together they allow none to"
            " team nlp",
        ),
        (
            "capacity_types: [spot]",
            "capacity_types: {allow: [owned]}",
            "a:3:31: allows no capacity type but spot, and b:3:31 none but owned: together they allow none",
        ),
        (
            "accelerators: [H100]",
            "accelerators: [L4]",
            "a:3:29: allows no accelerator but H100, and b:3:29 none but L4: together they allow none",
        ),
    ],
)
def test_lists_without_a_common_name_are_told_with_both_places(one: str, other: str, said: str) -> None:
    assert found(one, other) == [said]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("allowed_locations: {providers: [aws, gcp]}", "allowed_locations: {providers: [GCP]}"),
        ("allowed_locations: {providers: [aws]}", "allowed_locations: {providers: ['g*']}"),
        ("allowed_locations: {providers: [aws]}", "allowed_locations: {providers: {deny: [gcp]}}"),
        ("allowed_locations: {providers: [aws]}", "allowed_locations: {regions: [us-east-1]}"),
        ("allowed_locations: {regions: [us-east-1]}", "allowed_locations: {regions: [aws/us-east-1]}"),
        ("allowed_locations: {providers: [aws]}", "allowed_locations: {providers: [gcp]}, scope: {team: nlp}"),
        ("capacity_types: [spot]", 'capacity_types: [owned], when: "job.nodes > 1"'),
        ("capacity_types: [spot]", "capacity_types: [owned], action: ask, approvers: [olga]"),
        ("capacity_types: [spot]", "accelerators: [L4]"),
    ],
)
def test_lists_that_may_leave_something_are_not(one: str, other: str) -> None:
    assert found(one, other) == []
