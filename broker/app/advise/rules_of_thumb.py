"""Rules of thumb of the active policies: what their `rules_of_thumb:` sections say in place of the defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broker.core.errors import POLICY_FILE, InvalidInput, UnknownName
from broker.economics.rules import DEFAULTS, RulesOfThumb, replaced
from broker.store import quick_queries

if TYPE_CHECKING:
    from broker.app.wiring import Broker

SECTION = "rules_of_thumb"


def active(store_url: str, broker: Callable[[], Broker]) -> RulesOfThumb:
    """Those of the policies in force. ``broker`` is asked for only where the quick way does not do; a store that is not
    there yet has no policies, and is not made for the sake of advice."""
    if quick_queries.is_missing(store_url):
        return DEFAULTS
    files: Mapping[str, str] | None = quick_queries.policy_files(store_url)
    if files is None:
        version = broker().store.active_policy()
        files = version.files if version else {}
    return of_files(files)


def of_files(files: Mapping[str, str]) -> RulesOfThumb:
    """Those of policy files (text by name), the defaults where no file says anything. Raises InvalidInput for the first
    file with rules or values that make no sense, or are not what an earlier file says, with the place of each."""
    rules, said = DEFAULTS, dict[str, tuple[str, object]]()
    for file, text in sorted(files.items()):
        if SECTION not in text:
            continue  # most have none, and reading them takes a while
        from broker.core.documents import read_document  # and so does importing the reader

        document = read_document(text, file=file, kind=POLICY_FILE)
        section, problems = document.data.get(SECTION), []
        if not isinstance(section, Mapping):
            continue  # none, or a mistake of form that the policy's loader tells
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
