"""Rules of thumb of the active policies: their `rules_of_thumb:` sections replace defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broker.core.errors import POLICY_FILE, InvalidInput, UnknownName
from broker.economics.assumptions import DEFAULTS, Assumptions, replaced
from broker.store import quick_queries

if TYPE_CHECKING:
    from broker.app.wiring import Broker
    from broker.store.jobs.reading import StoreReading

SECTION = "rules_of_thumb"


def active(store_url: str, broker: Callable[[], Broker]) -> Assumptions:
    """The rules of thumb of the policies in force. ``broker`` is called only if the quick query cannot answer; advice
    does not create a store. Raises InvalidInput as `of_files`."""
    if quick_queries.is_missing(store_url):
        return DEFAULTS
    files: Mapping[str, str] | None = quick_queries.policy_files(store_url)
    if files is None:
        version = broker().store.active_policy()
        files = version.files if version else {}
    return of_files(files)


def of_store(look: StoreReading) -> Assumptions:
    """The rules of thumb of the policies in force at that view of the store. Raises InvalidInput as `of_files`."""
    version = look.active_policy()
    return of_files(version.files if version else {})


def of_files(files: Mapping[str, str]) -> Assumptions:
    """The rules of thumb of policy files (text by name), else the defaults. Raises InvalidInput, with the position of
    each problem, for the first file with unknown rules, invalid values, or values that contradict an earlier file."""
    rules, said = DEFAULTS, dict[str, tuple[str, object]]()
    for file, text in sorted(files.items()):
        if SECTION not in text:
            continue  # most files have none, and reading YAML is slow
        from broker.core.documents import read_document  # importing it is slow, too

        document = read_document(text, file=file, kind=POLICY_FILE)
        section, problems = document.data.get(SECTION), []
        if not isinstance(section, Mapping):
            continue  # none, or a mistake of form that the policy loader reports
        for name, value in section.items():
            place = f"{file}:{document.problem((SECTION, name), '').line}"
            where, before = said.setdefault(name, (place, value))
            try:
                if before != value:
                    raise InvalidInput(f"contradicts {where}: {value!r} here, and {before!r} there")
                rules = replaced({name: value}, base=rules)
            except (InvalidInput, UnknownName) as error:
                message = error.message.removeprefix(f"{name}: ") + (f"; {error.hint}" if error.hint else "")
                unknown = isinstance(error, UnknownName)
                problems.append(document.problem((SECTION, name), message, at_key=unknown))
        if problems:
            document.refuse(problems)
    return rules
