"""Tests of the rule contract itself: a faulty rule must fail it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, Source, Verdict
from broker.core.values.money import Money
from tests.contracts.rule_contract import NOW, TEAM, Case, RuleContract, action, live

LIMIT = Money.usd(100)


class DoubleRule:
    """A small correct rule: a job of the team may hold up to a hundred dollars of cash."""

    kind = "double"
    name = "at-most-100"
    source = Source("team.yaml", 7)

    def judge(self, action: Action, facts: Facts) -> Any:
        asked = (action.hold or {}).get(MoneyKind.CASH, Money.ZERO)
        if action.job.team != TEAM or asked <= LIMIT:
            return self.verdict(Answer.ALLOW, "within_limit", "at most $100", {})
        figures = {"asked": asked.as_json(), "limit": LIMIT.as_json()}
        return self.verdict(Answer.DENY, "above_limit", f"{asked} asked, the limit is {LIMIT}", figures)

    def looks_at(self, action: Action, facts: Facts) -> Any:
        return ()

    def verdict(self, answer: Answer, code: str, message: str, figures: dict[str, str]) -> Any:
        return Verdict(answer, self.kind, code, message, self.source, self.name, figures)


def case_of(rule: Any) -> Case:
    def asking(dollars: int) -> tuple[Action, Facts]:
        return action(hold={MoneyKind.CASH: Money.usd(dollars)}), Facts(NOW, live=(live(8),))

    return Case(rule, stopped=asking(101), passed=asking(100))


class MisnamedRule(DoubleRule):
    kind = "someone_else"


class Nameless(DoubleRule):
    name = ""


class Placeless(DoubleRule):
    source = Source("team.yaml", 0)


class Blind(DoubleRule):
    """Objects to a place, and an approval of it covers every other place."""

    def judge(self, action: Action, facts: Facts) -> Any:
        place = action.placement.offer.location if action.placement else "nowhere"
        asked = (action.hold or {}).get(MoneyKind.CASH, Money.ZERO)
        if action.job.team != TEAM or asked <= LIMIT:
            return self.verdict(Answer.ALLOW, "fine", "is fine", {})
        return self.verdict(Answer.DENY, "not_there", f"not at {place}", {"place": place})


class Toothless(DoubleRule):
    def judge(self, action: Action, facts: Facts) -> Any:
        return replace(super().judge(action, facts), answer=Answer.ALLOW)


class Strict(DoubleRule):
    def judge(self, action: Action, facts: Facts) -> Any:
        return replace(super().judge(action, facts), answer=Answer.DENY)


class OnEverybody(DoubleRule):
    def judge(self, action: Action, facts: Facts) -> Any:
        return super().judge(replace(action, job=action.job.model_copy(update={"team": TEAM})), facts)


class OnTheTeamless(DoubleRule):
    def judge(self, action: Action, facts: Facts) -> Any:
        team = action.job.team or TEAM
        return super().judge(replace(action, job=action.job.model_copy(update={"team": team})), facts)


class Remembering(DoubleRule):
    """Stops counting once it has objected."""

    stopped = 0

    def judge(self, action: Action, facts: Facts) -> Any:
        verdict = super().judge(action, facts)
        self.stopped += verdict.answer is Answer.DENY
        return replace(verdict, answer=Answer.ALLOW) if self.stopped > 1 else verdict


class Spending(DoubleRule):
    """Empties the hold of the action that it judges."""

    def judge(self, action: Action, facts: Facts) -> Any:
        verdict = super().judge(action, facts)
        if isinstance(action.hold, dict):
            action.hold.clear()
        return verdict


class PlainRule(DoubleRule):
    def judge(self, action: Action, facts: Facts) -> Any:
        return super().judge(action, facts).answer is Answer.ALLOW


class Fragile(DoubleRule):
    def judge(self, action: Action, facts: Facts) -> Any:
        if action.kind is ActionKind.RESERVE:
            raise KeyError(action.kind)
        return super().judge(action, facts)


class CountsUnasked(DoubleRule):
    """Objects only while other attempts run, and does not declare that it needs them."""

    def judge(self, action: Action, facts: Facts) -> Any:
        verdict = super().judge(action, facts)
        return verdict if facts.live else replace(verdict, answer=Answer.ALLOW)


class NeedsPlace(DoubleRule):
    def judge(self, action: Action, facts: Facts) -> Any:
        assert action.placement is not None
        return super().judge(action, facts)


def saying(**changes: Any) -> Callable[[], DoubleRule]:
    """A rule with each verdict changed in this way."""

    class Saying(DoubleRule):
        def verdict(self, answer: Answer, code: str, message: str, figures: dict[str, str]) -> Any:
            return replace(super().verdict(answer, code, message, figures), **changes)

    return Saying


LIES: dict[str, tuple[Callable[[], DoubleRule], str]] = {
    "another kind": (MisnamedRule, "registered_kind"),
    "no name": (Nameless, "place_in_a_file"),
    "no line": (Placeless, "place_in_a_file"),
    "no objection, ever": (Toothless, "objects"),
    "an objection to everything": (Strict, "near_twin"),
    "a scope that is not kept": (OnEverybody, "not_about"),
    "jobs without a team taken for the team's": (OnTheTeamless, "not_about"),
    "a memory": (Remembering, "same_verdict"),
    "a hand in the till": (Spending, "changes_nothing"),
    "yes or no": (PlainRule, "counted"),
    "an answer of its own": (saying(answer="maybe"), "counted"),
    "a code nobody can count": (saying(code="Too much!"), "counted"),
    "no code": (saying(code=""), "counted"),
    "another rule's verdict": (saying(rule="budget"), "counted"),
    "another rule's name": (saying(name="other"), "counted"),
    "another file": (saying(source=Source("other.yaml", 1)), "counted"),
    "no sentence": (saying(message=""), "read"),
    "a whole page": (saying(message="no\nand no"), "read"),
    "no figures": (saying(figures={}), "figures"),
    "figures that are not said": (saying(message="that is too much"), "figures"),
    "figures that are not text": (saying(figures={"asked": 101}), "figures"),
    "a kind of action it does not know": (Fragile, "every_kind"),
    "an approval that covers too much": (Blind, "nothing_worse"),
    "others counted without a word": (CountsUnasked, "gathered"),
    "a placement taken for granted": (NeedsPlace, "every_kind"),
}


class DoubleRuleContract(RuleContract):
    plugin = "double"


@cache
def failures(make: Callable[[], DoubleRule]) -> frozenset[str]:
    """The checks of the contract that the rule fails."""
    failed = set()
    for check in dir(RuleContract):
        if check.startswith("test_"):
            try:
                getattr(DoubleRuleContract(), check)(case=case_of(make()))
            except (AssertionError, AttributeError, TypeError, KeyError):  # a wrong type may raise within the check
                failed.add(check)
    return frozenset(failed)


def test_an_honest_rule_passes() -> None:
    assert failures(DoubleRule) == set()


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_caught(lie: str) -> None:
    make, where = LIES[lie]
    assert any(where in check for check in failures(make)), f"{lie}: nothing said so"


def test_every_check_catches_some_lie() -> None:
    idle = [
        check
        for check in dir(RuleContract)
        if check.startswith("test_") and not any(check in failures(make) for make, _ in LIES.values())
    ]
    assert not idle, f"checks that no lie fails: {idle}"
