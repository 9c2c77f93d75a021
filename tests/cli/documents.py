"""What a command prints with ``--json``, held to the JSON Schema that `gpubroker schema` prints."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from jsonschema_rs import Draft202012Validator

from broker.app.documents import Result
from broker.app.use_cases.catalogue import DOCUMENTS, JOB_FILE, document_class, schema_of

# Commands whose documents are not called as they are; `approvals grant` has two.
OF_OTHER_NAME = {
    "approvals-grant": ("submit", "standing-grant", "capacity-purchase"),
    "approvals-refuse": ("submit", "capacity-purchase"),
    "approvals-revoke": ("standing-grant",),
    "cancel": ("submit", "jobs-list"),
    "capacity-add": ("capacity-record",),
    "capacity-buy": ("capacity-purchase", "capacity-buy-preview", "capacity-purchases"),
    "capacity-propose": ("capacity-proposal",),
    "capacity-undo": ("capacity-purchase", "capacity-undo"),
    "capacity-purchases": ("capacity-purchases", "capacity-purchase", "capacity-purchase-history"),
    "capacity-remove": ("capacity-record",),
    "dev": ("submit", "plan"),
    "jobs-extend": ("submit",),
    "jobs-resume": ("submit",),
    "login": ("whoami",),
    **{f"people-{name}": ("person",) for name in ("grant", "withdraw", "disable")},
    "plan": ("plan", "plan-together"),
    "policy-explain": ("policy-explain", "policy-decisions"),
    "policy-rollback": ("policy-apply", "policy-apply-preview"),
    "prices-export": ("prices-history",),
    "prices-watch": ("watch-add", "watch-list", "watch-remove"),
    "report-charges": ("charges",),
    "status": ("jobs-list", "status", "status-attempts"),
    "submit": ("submit", "submit-refused"),
    "tokens-revoke": ("token",),
}


def names_of(command: Sequence[str]) -> tuple[str, ...]:
    """The documents that a command may print, if it succeeds; none for schemas, which are documents of their own."""
    words = [word for word in command[:2] if not word.startswith("-")]
    for name in ("-".join(words), words[0] if words else ""):
        if name in OF_OTHER_NAME:
            return OF_OTHER_NAME[name]
        found = tuple(one for one in DOCUMENTS if one == name or (one.startswith(f"{name}-") and name not in _GROUPS))
        if found:
            return found
    return ()


_GROUPS = {name.partition("-")[0] for name in DOCUMENTS if name.partition("-")[0] not in DOCUMENTS}


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(schema_of(name))


def check(name: str, document: Any) -> None:
    """Fails unless the document is as that schema says."""
    check_any([name], document)


def check_any(names: Sequence[str], document: Any) -> None:
    """Fails unless the document is as one of the schemas says, or no schema is named; and unless the result that is
    read from it is the document again: a command reads the answers of a team server in this way."""
    fitting = [name for name in names if _validator(name).is_valid(document)]
    if names and not fitting:
        found = {name: [str(error) for error in _validator(name).iter_errors(document)][:5] for name in names}
        raise AssertionError(found)
    for name in fitting if JOB_FILE not in names else ():
        kind = document_class(name)
        if issubclass(kind, Result):  # advice is never read back
            assert kind.model_validate(document).document() == document
