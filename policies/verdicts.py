"""How rules put their answers. Every rule is a `broker.core.ports.Rule`, and the same only as itself (``eq=False``).

A plan asks about hundreds of placements and most rules have no objection to most of them, so what they then say is
made once and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache

from broker.core.policy.policy import Answer, OpenAsk, Verdict
from broker.core.ports import Rule
from broker.core.values.money import Money
from broker.core.values.units import print_duration
from policies.approval_config import Asking, asks_instead


def length(duration: timedelta) -> str:
    """A length of time for a sentence, to the second."""
    return print_duration(timedelta(seconds=max(round(duration.total_seconds()), 0)))


def undecided(asks: Sequence[OpenAsk], most: int = 2) -> str:
    """What of the money is held for requests that nobody has decided, for a sentence: whose, who may, until when. Empty
    where there is none; ``most``: how many are named."""
    if not asks:
        return ""
    total = sum((one.held for one in asks), Money.ZERO).rounded(2)
    named = [
        f"{f'{one.held.rounded(2)} for ' if len(asks) > 1 else ''}{one.user}'s {one.job_id} (to be decided by"
        f" {' or '.join(one.approvers) or 'nobody'}{f' before {one.until:%Y-%m-%d %H:%M} UTC' if one.until else ''})"
        for one in asks[:most]
    ]
    more = [f"{len(asks) - most} more"] if len(asks) > most else []
    return f", {total} of it for what waits for approval: {'; '.join([*named, *more])}"


OUT_OF_SCOPE = "out_of_scope"


def allow(rule: Rule, code: str, message: str, **figures: object) -> Verdict:
    if figures:
        return _verdict(rule, Answer.ALLOW, code, message, figures)
    return _plainly(rule, code, message)  # type: ignore[arg-type] # rules are themselves only, so they can be keys


def deny(rule: Rule, code: str, message: str, **figures: object) -> Verdict:
    return _verdict(rule, Answer.DENY, code, message, figures)


def ask(rule: Rule, asking: Asking, code: str, message: str, **figures: object) -> Verdict:
    """Somebody of those named is to be asked first."""
    return asks_instead(deny(rule, code, message, **figures), asking)


def out_of_scope(rule: Rule) -> Verdict:
    return allow(rule, OUT_OF_SCOPE, "is not about this job")


@lru_cache(maxsize=16_384)
def _plainly(rule: Rule, code: str, message: str) -> Verdict:
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
