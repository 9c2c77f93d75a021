"""The fields that every rule of a policy file has.

Builds the rules' verdicts. A rule is a `broker.core.ports.Rule` and equals only itself (``eq=False``).

A plan judges hundreds of placements and most rules allow most of them, so allowances are cached.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, ClassVar, Generic, TypeVar, get_args

from pydantic import BaseModel

from broker.core.policy.coverage import read_facts
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, Answer, Facts, OpenAsk, Source, Verdict
from broker.core.ports import Rule
from broker.core.values.money import Money
from broker.core.values.units import print_duration
from policies.scope import ApprovalConfig, Scope, as_approval_request


def duration_text(duration: timedelta) -> str:
    """A duration for a sentence, to the second."""
    return print_duration(timedelta(seconds=max(round(duration.total_seconds()), 0)))


def pending_text(requests: Sequence[OpenAsk], team: str | None) -> str:
    """Money held for pending requests, for a sentence: requester, approvers, deadline of the first two of ``team``;
    those of other teams are only counted. Empty without any."""
    if not requests:
        return ""
    total = sum((request.held for request in requests), Money.ZERO).rounded(2)
    descriptions = [
        f"{f'{request.held.rounded(2)} for ' if len(requests) > 1 else ''}{request.user}'s {request.job_id} (to be "
        f"approved by {' or '.join(request.approvers) or 'nobody'}"
        f"{f' before {request.until:%Y-%m-%d %H:%M} UTC' if request.until else ''})"
        for request in [request for request in requests if request.team == team][:2]
    ]
    rest = len(requests) - len(descriptions)
    remainder = [f"{rest} {'more' if descriptions else 'of other teams'}"] if rest else []
    return f", {total} of it for requests that await approval: {'; '.join([*descriptions, *remainder])}"


OUT_OF_SCOPE = "out_of_scope"


def allow(rule: Rule, code: str, message: str, **figures: object) -> Verdict:
    if figures:
        return _verdict(rule, Answer.ALLOW, code, message, figures)
    return _cached_allowance(rule, code, message)  # type: ignore[arg-type] # rules compare by identity, so they are hashable


def deny(rule: Rule, code: str, message: str, **figures: object) -> Verdict:
    return _verdict(rule, Answer.DENY, code, message, figures)


def require_approval(rule: Rule, approval: ApprovalConfig, code: str, message: str, **figures: object) -> Verdict:
    """Require an approval by one of these approvers."""
    return as_approval_request(deny(rule, code, message, **figures), approval)


def out_of_scope(rule: Rule) -> Verdict:
    return allow(rule, OUT_OF_SCOPE, "does not apply to this job")


@lru_cache(maxsize=16_384)
def _cached_allowance(rule: Rule, code: str, message: str) -> Verdict:
    return _verdict(rule, Answer.ALLOW, code, message, {})


def _verdict(rule: Rule, answer: Answer, code: str, message: str, figures: dict[str, object]) -> Verdict:
    return Verdict(
        answer=answer,
        rule=rule.kind,
        code=code,
        message=message,
        source=rule.source,
        name=rule.name,
        figures={name: f.as_json() if isinstance(f, Money) else str(f) for name, f in figures.items()},
    )


ConfigT = TypeVar("ConfigT", bound=BaseModel)


@dataclass(frozen=True, eq=False)
class BoundRule(ABC, Generic[ConfigT]):
    """A rule (`broker.core.ports.Rule`) with its name, configuration, scope and place in the file. ``per``: ``user``,
    ``team`` or ``project`` if it limits each of them by itself. It equals only itself. A subclass is registered with
    `guardrail`; its ``Config`` is the type in brackets, whose docstring is the text of the JSON Schema. It defines
    ``_judge``, and ``reads`` or ``looks_at``. ``reads``: the aspects that an approval of it covers."""

    name: str
    config: ConfigT
    scope: Scope
    source: Source
    per: str = ""

    kind: ClassVar[str]
    Config: ClassVar[type[Any]]
    reads: ClassVar[tuple[Aspect, ...]] = ()
    counts_per: ClassVar[bool] = False  # it limits what runs at once, so it may do so ``per`` user, team or project
    never_asks: ClassVar[str] = ""  # why ``action: ask`` does not apply
    never_warns: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        configs = (config for base in cls.__dict__.get("__orig_bases__", ()) for config in get_args(base))
        cls.Config = next((config for config in configs if isinstance(config, type)), BaseModel)

    def judge(self, action: Action, facts: Facts) -> Verdict:
        """The verdict; what is outside the scope is allowed."""
        return self._judge(action, facts) if self.scope.covers(action) else out_of_scope(self)

    @abstractmethod
    def _judge(self, action: Action, facts: Facts) -> Verdict:
        """The verdict on an action within the scope."""

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        """The facts that an approval of it covers."""
        return read_facts(action, *self.reads)


RULES: dict[str, type[BoundRule[Any]]] = {}
"""The rules by the key that they have in policy files; `policies.rules` registers all of them."""

RuleT = TypeVar("RuleT", bound=BoundRule[Any])


def guardrail(kind: str) -> Callable[[type[RuleT]], type[RuleT]]:
    """Registers a rule under its key in policy files."""

    def register(rule: type[RuleT]) -> type[RuleT]:
        rule.kind = kind
        RULES[kind] = rule
        return rule

    return register
