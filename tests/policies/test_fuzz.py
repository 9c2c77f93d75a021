"""Whatever is done to a policy file: a located error or a set of rules, never anything else, never an open gate."""

import re
import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.documents import print_document
from broker.core.errors import InvalidInput
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import ActionKind, Answer, Facts, Verdict
from broker.core.values.money import Money
from policies.loader import load
from tests.contracts.rule_contract import NOW, action, live
from tests.counts import FULL

ROOT = Path(__file__).parents[2]
FILES = [
    path.read_text("utf-8")
    for path in sorted((ROOT / "policies/library").glob("*.yaml"))
    if not path.name.endswith(".test.yaml")
]
EVERYTHING = Path(__file__).with_name("everything.yaml").read_text("utf-8")
FILES += [EVERYTHING] * 4  # every kind of rule is in it
FILES.append((ROOT / "examples/policy.yaml").read_text("utf-8"))
WORDS = """
    : - { } [ ] , # ' " | > &a *a << --- ... null ~ true no 0 -1 1e9 $ $0 $-1 $1,000 900 1.5 NaN .inf 24h 2026-01-01
    é 💸 * ? [! default H100 scope team name version budgets guardrails allow deny UTC ../.. month sandbox cash
"""
WORDS += """
    && || == != <= in ( ) "nlp" 'nlp' 5% 101% 24:00 8:00 2026-12-24 fixed spot forbidden on_premises when has(
    job.max_cost spend.asked job.nope offer.price 1.0 == 1 "a" !job.sensitive duration("1h") nvlink stop from: to: for:
"""
FRAGMENTS = ["", " ", "  ", "\n", "\t", "\x00", "\u2028", ": ", "- ", "a" * 300, "!!python/object:os.system "]
FRAGMENTS += WORDS.split()


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """One of our files with a few words, lines or characters changed."""
    text = draw(st.sampled_from(FILES))
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["line", "word", "cut", "insert", "swap"]))
        lines = text.split("\n")
        row = draw(st.integers(0, len(lines) - 1))
        fragment = draw(st.sampled_from(FRAGMENTS) | st.text(max_size=6))
        if kind == "line":
            lines[row : row + 1] = draw(
                st.sampled_from([[], [lines[row], lines[row]], [fragment], ["  " + lines[row]]])
            )
        elif kind == "word":
            words = lines[row].split(" ")
            words[draw(st.integers(0, len(words) - 1))] = fragment
            lines[row] = " ".join(words)
        elif kind == "swap":
            other = draw(st.integers(0, len(lines) - 1))
            lines[row], lines[other] = lines[other], lines[row]
        text = "\n".join(lines)
        if kind in ("cut", "insert"):
            start = draw(st.integers(0, len(text)))
            text = text[:start] + (fragment if kind == "insert" else "") + text[start + (kind == "cut") :]
    return text


def check(text: str) -> None:
    try:
        policies = load({"mutated.yaml": text})
    except InvalidInput as error:
        assert (error.where, bool(error.problems)) == ("mutated.yaml", True)  # noqa: PT017 # either outcome is right
        # The line after the last one is where something that is missing would stand.
        rows = len(re.findall("[\n\r\x85\u2028\u2029]", text)) + 2
        assert all(0 <= problem.line <= rows for problem in error.problems)  # noqa: PT017
        assert all(problem.message.strip() for problem in error.problems)  # noqa: PT017
        return
    assert all(told.startswith("mutated.yaml:") for told in policies.warnings)
    assert all(name.source.column for name in policies.names)
    asked = action(hold={MoneyKind.CASH: Money.usd(10**9)})
    verdicts = policies.judge(asked, Facts(NOW))
    assert any(verdict.answer is Answer.DENY for verdict in verdicts), "a thousand million dollars went through"
    for other in (action(), action(ActionKind.CONTINUE, window=None), action(placement=None)):
        assert all(isinstance(verdict, Verdict) for verdict in policies.judge(other, Facts(NOW, (live(8),))))


@given(mutated())
@settings(max_examples=200 if FULL else 20, suppress_health_check=[HealthCheck.too_slow])
def test_a_mutated_file_is_refused_or_still_holds(text: str) -> None:
    check(text)


@pytest.mark.system
@given(mutated())
@settings(max_examples=1000 if FULL else 150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_thousands_of_mutated_files_are_refused_or_still_hold(text: str) -> None:
    check(text)


@given(st.text(alphabet=string.printable, max_size=60) | st.text(max_size=20))
@settings(max_examples=300 if FULL else 30)
def test_any_condition_at_all_is_refused_with_its_place_or_can_be_asked(text: str) -> None:
    entry = {"name": "g", "max_concurrent_gpus": 1, "when": text}
    try:
        policies = load({"p.yaml": print_document({"version": 1, "guardrails": [entry]})})
    except InvalidInput as error:
        assert error.problems  # noqa: PT017 # either outcome is right
        assert all(problem.line >= 1 for problem in error.problems)  # noqa: PT017
        return
    assert policies.judge(action(), Facts(NOW))


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_anything_at_all_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        load({"noise.yaml": text})
