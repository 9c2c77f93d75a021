"""The record of a decision: request, inputs, verdicts. Stored for every admission and move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import cache
from hashlib import sha256
from json import dumps
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from broker.core.job.placements import Placement
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, LiveAttempt, Verdict

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class Decision:
    """One judgment at the gate. ``facts_hash``: SHA-256 over all inputs (`inputs_hash`), to recognize the same inputs;
    ``seen``: a summary, and under ``inputs`` all inputs, so that they can be judged again (`inputs_of`)."""

    at: datetime
    action: ActionKind
    user: str
    job_name: str
    answer: Answer
    policy_version: str
    facts_hash: str
    job_id: str | None = None
    attempt: int | None = None
    pool: str | None = None
    verdicts: tuple[Verdict, ...] = ()
    seen: Mapping[str, object] = field(default_factory=dict)


def seal(
    inputs: Mapping[str, Any],
    action: Action,
    answer: Answer,
    verdicts: tuple[Verdict, ...],
    policy_version: str,
    **details: Any,
) -> Decision:
    """The record of a judgment with all its inputs, sealed by their hash. ``details``: other fields of `Decision`."""
    return Decision(
        action=action.kind,
        user=action.user,
        job_name=action.job.name,
        answer=answer,
        policy_version=policy_version,
        facts_hash=inputs_hash(inputs, policy_version),
        pool=action.placement.offer.pool if action.placement is not None else None,
        verdicts=verdicts,
        **{**details, "seen": {**details.get("seen", {}), "inputs": inputs}},
    )


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a judgment. ``others``: placements ranked after the judged one. ``live_kept``: False if no rule
    counted running attempts, so they were not kept.
    """

    action: Action
    facts: Facts
    others: tuple[Placement, ...] = ()
    live_kept: bool = True


# Further placements kept with a decision.
MAX_OTHERS = 5


def dump_inputs(
    action: Action, facts: Facts, alternatives: Sequence[Placement] = (), *, counts_live: bool = True
) -> dict[str, Any]:
    """The inputs as plain data for JSON; `inputs_of` restores them.

    Running attempts are kept where ``counts_live``: compressed to a few bytes each, as most are alike.
    """
    inputs = Inputs(action, replace(facts, live=()), tuple(alternatives)[:MAX_OTHERS], counts_live)
    data: dict[str, Any] = _adapter().dump_python(inputs, mode="json")
    if counts_live and facts.live:
        kinds: dict[tuple[Any, ...], int] = {}
        jobs = [[attempt.job_id, kinds.setdefault(_kind_of(attempt), len(kinds))] for attempt in facts.live]
        data["facts"]["live"] = {"kinds": [list(kind) for kind in kinds], "jobs": jobs}
    return data


_LIVE_FIELDS = tuple(field.name for field in fields(LiveAttempt) if field.name != "job_id")


_kind_of = attrgetter(*_LIVE_FIELDS)  # all fields but the job


def _expand_live(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    live = stored["facts"]["live"]
    if not isinstance(live, Mapping):
        return stored
    kinds = [dict(zip(_LIVE_FIELDS, kind, strict=False)) for kind in live["kinds"]]
    return {**stored, "facts": {**stored["facts"], "live": [{"job_id": job, **kinds[k]} for job, k in live["jobs"]]}}


def inputs_hash(inputs: Mapping[str, Any], policy_version: str) -> str:
    """The hash over serialized inputs and the version of the policy that judged them."""
    text = dumps(inputs, sort_keys=True, separators=(",", ":"))
    return sha256(f"{text}\n{policy_version}".encode()).hexdigest()


def inputs_of(decision: Decision) -> Inputs | None:
    """The inputs of the judgment; None for decisions recorded without them. Raises ValueError if they do not match the
    hash.
    """
    stored = decision.seen.get("inputs")
    if not isinstance(stored, Mapping):
        return None
    if inputs_hash(stored, decision.policy_version) != decision.facts_hash:
        raise ValueError(f"the decision of {decision.at.isoformat()} on {decision.job_name} was altered")
    return _adapter().validate_python(_expand_live(stored))


@cache
def _adapter() -> TypeAdapter[Inputs]:
    from pydantic import TypeAdapter

    return TypeAdapter(Inputs)
