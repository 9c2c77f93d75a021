"""Approval settings shared by every rule that can require an approval: the approvers and the expiry."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import timedelta
from fnmatch import fnmatchcase

from pydantic import StrictBool, model_validator

from broker.core.policy.policy import Answer, Verdict
from broker.core.validation import each
from broker.core.values.units import PositiveDuration
from policies.fields import PATTERN_SIGNS, Patterns, PolicyPart


class ApprovalConfig(PolicyPart):
    """``approvers``: operating-system user names or patterns; any one of them decides. A request without a decision
    ends after ``expires``. ``own_requests``: whether approvers may approve their own requests.
    """

    approvers: Patterns
    expires: PositiveDuration = timedelta(hours=24)
    own_requests: StrictBool = False


class MayAsk(PolicyPart):
    """A budget or a guardrail. ``approvers``, ``expires`` and ``own_requests`` are those of `ApprovalConfig` and apply
    to ``action: ask`` only.
    """

    action: str = "deny"
    approvers: Patterns = ()
    expires: PositiveDuration | None = None
    own_requests: StrictBool = False

    @model_validator(mode="after")
    def _somebody_to_ask(self) -> MayAsk:
        if self.action == "ask" and not self.approvers:
            each([("action", None)], _nobody_to_ask)
        said = {"approvers": self.approvers, "expires": self.expires, "own_requests": self.own_requests}
        only_for("ask", self.action, (key for key, value in said.items() if value))
        return self

    @property
    def asking(self) -> ApprovalConfig | None:
        """Approval settings, or None if the action is not ``ask``."""
        if self.action != "ask":
            return None
        more = {"expires": self.expires} if self.expires else {}
        return ApprovalConfig(approvers=self.approvers, own_requests=self.own_requests, **more)


def among(approvers: Iterable[str], people: Collection[str]) -> tuple[str, ...]:
    """Approvers limited to ``people`` (names or patterns that teams list).

    A pattern wider than the lists becomes the listed names it matches. Without ``people`` the approvers are returned
    unchanged.
    """
    if not people:
        return tuple(approvers)
    found: list[str] = []
    for approver in approvers:
        listed = any(within(approver, one) for one in people)
        found += [approver] if listed else [one for one in people if within(one, approver)]
    return tuple(dict.fromkeys(found))


def within(inner: str, outer: str) -> bool:
    """Whether ``outer`` matches every name that ``inner`` matches. Between two patterns, True only if that is certain,
    so that nobody becomes an approver by mistake.
    """
    told = not PATTERN_SIGNS.intersection(inner) or not ("[" in inner or "?" in outer or "[" in outer)
    return inner == outer or (told and fnmatchcase(inner, outer))


def _nobody_to_ask(*_: object) -> None:
    raise ValueError("`ask` needs `approvers`, such as approvers: [ann, bob]")


def only_for(meant: str, action: str, keys: Iterable[str]) -> None:
    """Raises a finding for each of these keys unless the action is ``meant``."""

    def misplaced(key: str, _: object) -> None:
        if action != meant:
            raise ValueError(f"is for `action: {meant}` only; the action here is {action}")

    each([(key, None) for key in keys], misplaced)


def asks_instead(verdict: Verdict, asking: ApprovalConfig) -> Verdict:
    """The verdict with `ASK` as its answer and the approvers to ask."""
    return replace(
        verdict, answer=Answer.ASK, approvers=asking.approvers, expires=asking.expires, own_requests=asking.own_requests
    )
