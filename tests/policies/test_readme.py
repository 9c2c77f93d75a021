"""What the documents of policies show can be written as it stands there, and nothing that there is goes unsaid."""

import re
from pathlib import Path

import pytest

from policies.loader import load
from policies.rules import GUARDRAILS, RULES

DOCS = Path(__file__).parents[2] / "docs"
TABLE = (DOCS / "policies.md").read_text("utf-8").partition("| guardrail | how it is written")[2].partition("\n\n")[0]
SNIPPETS = [said for said in re.findall(r"`([a-z_0-9]+: [^`]+)`", TABLE) if said.partition(":")[0] in GUARDRAILS]


@pytest.mark.parametrize("said", SNIPPETS)
def test_what_the_table_shows_is_right(said: str) -> None:
    (rule,) = load({"p.yaml": f"version: 1\nguardrails: [{{name: g, {said}}}]"}).rules

    assert rule.kind == said.partition(":")[0]


def test_the_table_shows_every_guardrail() -> None:
    assert {said.partition(":")[0] for said in SNIPPETS} == set(RULES) - {"budget"}
