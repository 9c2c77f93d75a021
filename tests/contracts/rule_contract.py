"""What every rule promises (`broker.core.ports.Rule`), as a suite.

A rule's own test file subclasses `RuleContract`, names the registered rule that it tests, and defines a case::

    class TestMaxConcurrentGpus(RuleContract):
        plugin = "max_concurrent_gpus"

        @pytest.fixture
        def case(self):
            return Case(rule, stopped=(action, facts), passed=(action, facts))

The rule of the case applies to `TEAM` alone. ``stopped`` is an action to which it objects, ``passed`` a similar one
that it passes. The functions below that create jobs, placements and actions are for these cases.
"""

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType, Interconnect, MoneyKind, Offer
from broker.core.policy.approvals import max_run_time, total_of
from broker.core.policy.facts import covers
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, LiveAttempt, Verdict
from broker.core.ports import Rule
from broker.core.values.money import Money

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
TEAM = "nlp"
CODE = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Case:
    """A rule for `TEAM`, an action that it stops, and a similar one that it passes."""

    rule: Rule
    stopped: tuple[Action, Facts]
    passed: tuple[Action, Facts]


def job(**changes: Any) -> Job:
    return Job(**{"name": "train", "run": "python train.py", "team": TEAM} | changes)


def placement(price: str = "32", *, nodes: int = 1, **changes: Any) -> Placement:
    """Eight H100 at a cloud, on demand, at ``price`` USD per hour and machine."""
    offer = Offer(
        provider="aws",
        region="us-east-1",
        zone=None,
        instance_type="p5.48xlarge",
        accelerator="H100",
        count=8,
        capacity_type=CapacityType.ON_DEMAND,
        price=Money.usd(price),
        as_of=NOW,
        source="test",
    )
    offer = replace(offer, **changes)
    rate = (offer.price or Money.ZERO) * nodes
    return Placement(offer, nodes, rate, rate, (), None, None, 1.0, 1.0, 0.0)


def action(kind: ActionKind = ActionKind.LAUNCH, **changes: Any) -> Action:
    """A launch by ann of team nlp, for the next ten hours."""
    said: dict[str, Any] = {
        "job": job(),
        "user": "ann",
        "placement": placement(),
        "window": (NOW, NOW + timedelta(hours=10)),
    }
    return Action(kind, **said | changes)


def live(gpus: int, **changes: Any) -> LiveAttempt:
    """An attempt of bob of team nlp that uses ``gpus`` GPUs."""
    attempt = LiveAttempt("j-1", "bob", TEAM, None, "training", None, gpus, "H100", "aws", MoneyKind.CASH)
    return replace(attempt, **changes)


def _said(verdict: Verdict) -> tuple[str, dict[str, str]]:
    """The objection and its figures, without the name of the offer."""
    return verdict.code, {name: figure for name, figure in verdict.figures.items() if name != "offer"}


def _beyond_limits(other: Action, approved: Action) -> bool:
    """Whether the action needs more money, time or GPUs than was approved: then a new approval is needed, whatever the
    rule judges.
    """
    longer = (max_run_time(other) or timedelta(0)) > (max_run_time(approved) or timedelta(0))
    gpus = [one.placement.gpus if one.placement else 0 for one in (other, approved)]
    return total_of(other) > total_of(approved) or longer or gpus[0] > gpus[1]


Change = Callable[[Action, Facts], tuple[Action, Facts]]


def _offer(**changes: Any) -> Change:
    def change(act: Action, facts: Facts) -> tuple[Action, Facts]:
        assert act.placement is not None
        return replace(act, placement=replace(act.placement, offer=replace(act.placement.offer, **changes))), facts

    return change


def _dearer(act: Action, facts: Facts) -> tuple[Action, Facts]:
    assert act.placement is not None
    price = act.placement.offer.price
    return _offer(price=Money.usd(5000) if price is None else price * 10)(act, facts)


def _data(**changes: Any) -> Change:
    def change(act: Action, facts: Facts) -> tuple[Action, Facts]:
        data = act.job.data.model_copy(update=changes)
        return replace(act, job=act.job.model_copy(update={"data": data})), facts

    return change


def _beside(**changes: Any) -> Change:
    more = live(64, job_id="j-more", **changes)
    return lambda act, facts: (act, replace(facts, live=(*facts.live, more)))


def _dirtier(act: Action, facts: Facts) -> tuple[Action, Facts]:
    assert act.placement is not None
    kg = (act.placement.kg_co2e_per_hour or 10.0) * 10
    return replace(act, placement=replace(act.placement, kg_co2e_per_hour=kg)), facts


def _spent(act: Action, facts: Facts) -> tuple[Action, Facts]:
    used = {
        name: tuple(replace(use, spent=use.spent + Money.usd(1000)) for use in uses)
        for name, uses in facts.budgets.items()
    }
    return act, replace(facts, budgets=used)


# Each change makes the action different or worse.
WORSE: Mapping[str, Change] = {
    "another provider": _offer(provider="elsewhere"),
    "another region": _offer(region="xx-far-9"),
    "another zone": _offer(zone="xx-far-9z"),
    "another machine": _offer(instance_type="other.large"),
    "another accelerator": _offer(accelerator="B200"),
    "smaller machines": _offer(count=1),
    "spot": _offer(capacity_type=CapacityType.SPOT),
    "on demand": _offer(capacity_type=CapacityType.ON_DEMAND),
    "reserved": _offer(capacity_type=CapacityType.RESERVED),
    "a higher price": _dearer,
    "no price": _offer(price=None),
    "no interconnect": _offer(interconnect=Interconnect.NONE),
    "an unknown interconnect": _offer(interconnect=None),
    "an older price": _offer(as_of=NOW - timedelta(days=90)),
    "a reference price of somebody else": _offer(reference=True, source="hearsay"),
    "data elsewhere": _data(location="elsewhere/xx-far-9"),
    "sensitive data": _data(sensitive=True, location="aws/us-east-1"),
    "more emissions": _dirtier,
    "more of others": _beside(),
    "more on demand of others": _beside(capacity_type=CapacityType.ON_DEMAND),
    "more reserved of the team": _beside(capacity_type=CapacityType.RESERVED),
    "more attempts": lambda act, facts: (replace(act, attempts=act.attempts + 5), facts),
    "more spent by others": _spent,
}

# Facts that are collected only for rules that require them, by the attribute by which a rule does, and the same action
# without them.
GATHERED: Mapping[str, Change] = {
    "counts_live": lambda act, facts: (act, replace(facts, live=())),
    "needs_usage": lambda act, facts: (replace(act, usage=()), facts),
    "needs_anomalies": lambda act, facts: (act, replace(facts, unusual=None)),
    "needs_holdings": lambda act, facts: (act, replace(facts, in_hand={})),
}


class RuleContract:
    """Subclass it, set ``plugin``, and define the fixture ``case``."""

    plugin: ClassVar[str]

    def test_it_judges_whom_it_is_about(self, case: Case) -> None:
        rule, (act, facts) = case.rule, case.stopped
        assert rule.kind == self.plugin, f"calls itself {rule.kind!r}, is registered as {self.plugin!r}"
        assert rule.name.strip(), "no name"
        assert rule.source.file.strip(), "no file"
        assert rule.source.line >= 1, "no line"
        assert rule.judge(act, facts).answer is not Answer.ALLOW
        assert rule.judge(*case.passed).answer is Answer.ALLOW, rule.judge(*case.passed).message
        for team in ("vision", None):
            other = replace(act, job=act.job.model_copy(update={"team": team}))
            verdict = rule.judge(other, facts)
            assert verdict.answer is Answer.ALLOW, f"for team {team}: {verdict.message}"

    def test_a_verdict_can_be_counted_traced_and_read(self, case: Case) -> None:
        for question in (case.stopped, case.passed):
            before = deepcopy(question)
            verdict = case.rule.judge(*question)
            assert question == before, "the arguments were changed"
            assert verdict == case.rule.judge(*before), "another verdict for the same arguments"
            assert isinstance(verdict, Verdict), f"answers {verdict!r}"
            assert isinstance(verdict.answer, Answer), f"answers {verdict.answer!r}"
            assert CODE.fullmatch(verdict.code), f"a code that cannot be counted: {verdict.code!r}"
            assert (verdict.rule, verdict.name) == (case.rule.kind, case.rule.name), "speaks for another rule"
            assert verdict.source == case.rule.source, f"points at {verdict.source}"
            message = verdict.message
            assert message.strip() == message != "", "no sentence for people"
            assert "\n" not in message, "more than a sentence"

    def test_an_objection_has_its_figures_in_it(self, case: Case) -> None:
        verdict = case.rule.judge(*case.stopped)
        assert verdict.figures, "no figures for programs"
        said = verdict.message.replace(",", "")
        assert any(figure.removesuffix(".00") in said for figure in verdict.figures.values()), verdict.message

    def test_an_approval_covers_what_it_was_asked_about_and_nothing_worse(self, case: Case) -> None:
        """If the rule's objection would differ from the one that was approved, a new approval is needed."""
        act, facts = case.stopped
        approved, said = case.rule.looks_at(act, facts), case.rule.judge(act, facts)
        assert covers(approved, approved), f"{approved} does not cover itself"
        for name, change in WORSE.items():
            other, seen = change(act, facts)
            verdict = case.rule.judge(other, seen)
            if verdict.answer is Answer.ALLOW or _said(verdict) == _said(said) or _beyond_limits(other, act):
                continue
            asked = case.rule.looks_at(other, seen)
            assert not covers(approved, asked), f"{said.message!r} was approved; {name}: {verdict.message!r} is covered"

    def test_it_says_what_must_be_gathered_for_it(self, case: Case) -> None:
        """Facts that no active rule requires are not read: without the attribute, the rule would judge without them."""
        for attribute, without in GATHERED.items():
            if getattr(case.rule, attribute, False):
                continue
            for act, facts in (case.stopped, case.passed):
                same = case.rule.judge(*without(act, facts)) == case.rule.judge(act, facts)
                assert same, f"judges by what is gathered only for a rule with `{attribute}: ClassVar[bool] = True`"

    def test_it_has_an_answer_to_every_kind_of_action(self, case: Case) -> None:
        act, facts = case.stopped
        for kind in ActionKind:
            for question in (
                replace(act, kind=kind),
                replace(act, kind=kind, placement=None),
                replace(act, kind=kind, hold=None, window=None),
                replace(act, kind=kind, placement=placement("3", accelerator=None, count=0), job_id="j-7"),
            ):
                verdict = case.rule.judge(question, facts)
                assert isinstance(verdict, Verdict), f"{kind}: {verdict!r}"
