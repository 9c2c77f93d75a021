"""How rules put their answers. Every rule is a `broker.core.ports.Rule`, and the same only as itself (``eq=False``).

A plan asks about hundreds of placements and most rules have no objection to most of them, so what they then say is
made once and kept.
"""

from __future__ import annotations

from functools import lru_cache

from broker.core.policy import Answer, Verdict
from broker.core.ports import Rule

OUT_OF_SCOPE = "out_of_scope"


def allow(rule: Rule, code: str, message: str, **figures: object) -> Verdict:
    return _verdict(rule, Answer.ALLOW, code, message, figures) if figures else _plainly(rule, code, message)


def deny(rule: Rule, code: str, message: str, **figures: object) -> Verdict:
    return _verdict(rule, Answer.DENY, code, message, figures)


def out_of_scope(rule: Rule) -> Verdict:
    return _plainly(rule, OUT_OF_SCOPE, "is not about this job")


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
        figures={name: str(figure) for name, figure in figures.items()},
    )
