"""What earlier versions wrote about why jobs wait and end, in the form of today's events and views.

Up to format 2 a sentence was kept. It becomes `EarlierWords`, which decides nothing; the command line shows it as it
is. Documents are JSON objects without the number of their format.
"""

from __future__ import annotations

from typing import Any

# The ends that a constant told, and nothing else.
_ENDS = {("succeeded", "completed"): "completed", ("cancelled", "cancelled"): "cancelled"}


def event(document: dict[str, Any]) -> dict[str, Any]:
    """An event's body of format 1 or 2 as this version writes it."""
    kept = dict(document)
    match document.get("kind"):
        case "nothing_feasible":
            counts, denied = kept.pop("reasons", {}), kept.pop("denied", "")
            kept["reason"] = _words(denied) or {"kind": "nothing_fits", "counts": counts}
        case "paused" | "launch_delayed":
            kept["reason"] = {"kind": "earlier_words", "text": kept.pop("because", "")}
        case "job_ended":
            kept["reason"] = _end(kept.get("state"), kept.pop("because", ""))
    return kept


def view(document: dict[str, Any]) -> dict[str, Any]:
    """A kept view of format 1 or 2 as this version keeps it."""
    kept = dict(document)
    kept["waiting"] = _words(kept.pop("waiting_because", ""))
    kept["ending"] = _end(kept.get("state"), kept.pop("because", ""))
    return kept


def _end(state: Any, text: str) -> dict[str, Any] | None:
    kind = _ENDS.get((state, text))
    return _words(text) if kind is None else {"kind": kind}


def _words(text: str) -> dict[str, Any] | None:
    return {"kind": "earlier_words", "text": text} if text else None
