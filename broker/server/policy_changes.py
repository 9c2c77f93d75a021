"""Changes of policies through the API and the page: first previewed, then applied once and recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping

from broker.app.access.once import ChangeAnswer, once
from broker.app.policy import answers, policies
from broker.app.results.policy_preview import PolicyPreviewResult
from broker.core.errors import InvalidInput
from broker.server.callers import Caller
from broker.server.changes import one_line, request_of
from broker.store.records import PolicyVersion

MOST_FILES = 40
_NAME = 300  # characters


def seen_before(by: Caller, files: Mapping[str, str], *, past: bool = True) -> PolicyPreviewResult:
    """As `answers.seen_before`, for files with valid names."""
    check_names(files)
    return answers.seen_before(by.broker, files, past=past)


def apply(by: Caller, files: Mapping[str, str], note: str, key: str, base: int | None = None) -> ChangeAnswer:
    """Make these files the active policy. ``base``: the version that the caller has seen; None: any. Raises
    `InvalidInput` for invalid files, and if another version is active."""
    check_names(files)
    broker, note = by.broker, one_line(note)
    before = broker.store.active_policy()
    number = before.number if before else 0
    said = json.dumps(["policy.apply", dict(files), note, base], sort_keys=True)
    asked = request_of(by, key, ("policy.apply", "policy"), said, f"version {number}" if before else "no policy")
    return once(
        broker,
        asked,
        lambda: answers.apply(broker, files, note, by=by.actor, base=base),
        lambda done: ChangeAnswer.of(done, f"version {done.number}"),
    )


def earlier(by: Caller, number: int | None) -> PolicyVersion:
    """The version with that number; None: the last one that differs from the active one. Raises `InvalidInput`."""
    return policies.version_before(by.broker, number)


def check_names(files: Mapping[str, str]) -> None:
    """Raises `InvalidInput` for more files than a policy may have, and for invalid names of files."""
    if not files or len(files) > MOST_FILES:
        raise InvalidInput(f"expected 1 to {MOST_FILES} files, found {len(files)}", where="files")
    for name in files:
        if not name.isprintable() or not 0 < len(name) <= _NAME:  # the name is only displayed; no such file is opened
            raise InvalidInput(f"{name!r} is not the name of a file", where="files", hint="such as team.yaml")
