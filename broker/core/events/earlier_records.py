"""Converts records of earlier versions to the current events and views.

Up to format 2 a sentence gave the reason why jobs wait and end. It becomes `EarlierWords`, on which no decision
depends; the command line prints it unchanged. Up to format 3 the name of an egress cost said what is moved. Up to
format 5 sentences gave the reason of a stop, and why a hold was judged again. Documents are JSON objects without their
format number; current ones stay unchanged.
"""

from __future__ import annotations

from typing import Any

from broker.core.job.placements import Moved

# Reasons of ends that were always the same sentence.
_ENDS = {("succeeded", "completed"): "completed", ("cancelled", "cancelled"): "cancelled"}

# Why a hold was judged again.
_TRIGGERS = {
    "its money nears its end": "ends",
    "it is used up faster than was judged": "faster",
    "the clock was set back since it was judged": "clock_rewind",
}


def event(document: dict[str, Any]) -> dict[str, Any]:
    """An event's body of format 1 to 5 as this version writes it."""
    kept = dict(document)
    match document.get("kind"):
        case "nothing_feasible" if "reasons" in kept:
            counts, denied = kept.pop("reasons", {}), kept.pop("denied", "")
            kept["reason"] = _words(denied) or {"kind": "nothing_fits", "counts": counts}
        case "paused" | "launch_delayed" if "because" in kept:
            kept["reason"] = {"kind": "earlier_words", "text": kept.pop("because", "")}
        case "job_ended" if "because" in kept:
            kept["reason"] = _end(kept.get("state"), kept.pop("because", ""))
        case "launch_requested":
            kept["placement"] = _placement(kept.get("placement"))
        case "stop_requested" if "why" in kept:
            kept["reason"] = _words(kept.pop("why"))
        case "hold_dated" if "because" in kept:
            kept["trigger"] = _TRIGGERS.get(kept.pop("because"))
    return kept


def view(document: dict[str, Any]) -> dict[str, Any]:
    """A kept view of format 1 to 5 as this version keeps it."""
    kept = dict(document)
    if "waiting_because" in kept:
        kept["waiting"] = _words(kept.pop("waiting_because"))
        kept["ending"] = _end(kept.get("state"), kept.pop("because", ""))
    if isinstance(attempts := kept.get("attempts"), list):
        kept["attempts"] = [_attempt(attempt) for attempt in attempts]
    return kept


def _attempt(attempt: Any) -> Any:
    if not isinstance(attempt, dict):
        return attempt  # the reader reports the error
    kept = attempt | {"placement": _placement(attempt.get("placement"))}
    if "stop_why" in kept:
        kept["stop_reason"] = _words(kept.pop("stop_why"))
    return kept


def _placement(placement: Any) -> Any:
    """Adds what is moved to egress costs, whose names began with it: ``data egress``."""
    if not isinstance(placement, dict) or not isinstance(terms := placement.get("terms"), list):
        return placement
    return placement | {"terms": [_term(term) for term in terms]}


def _term(term: Any) -> Any:
    if not isinstance(term, dict) or "moves" in term or not isinstance(name := term.get("name"), str):
        return term
    moved, _, kind = name.partition(" ")
    return term | {"moves": moved} if kind == "egress" and moved in set(Moved) else term


def _end(state: Any, text: str) -> dict[str, Any] | None:
    kind = _ENDS.get((state, text))
    return _words(text) if kind is None else {"kind": kind}


def _words(text: str) -> dict[str, Any] | None:
    return {"kind": "earlier_words", "text": text} if text else None
