"""Rules of thumb of the active policies: what their `rules_of_thumb:` sections say in place of the defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broker.core.errors import InvalidInput
from broker.economics.rules import DEFAULTS, RulesOfThumb, replaced
from broker.store import glance

if TYPE_CHECKING:
    from broker.app.wiring import Broker

SECTION = "rules_of_thumb"


def active(store_url: str, broker: Callable[[], Broker]) -> RulesOfThumb:
    """Those of the policies in force. ``broker`` is asked for only where the quick way does not do; a store that is not
    there yet has no policies, and is not made for the sake of advice."""
    if glance.is_missing(store_url):
        return DEFAULTS
    files: Mapping[str, str] | None = glance.policy_files(store_url)
    if files is None:
        version = broker().store.active_policy()
        files = version.files if version else {}
    return of_files(files)


def of_files(files: Mapping[str, str]) -> RulesOfThumb:
    """Those of policy files (text by name), the defaults where no file says anything. Raises InvalidInput for a rule
    or a value that makes no sense, and for files that do not say the same."""
    rules, said = DEFAULTS, dict[str, tuple[str, object]]()
    for file, text in sorted(files.items()):
        if SECTION not in text:
            continue  # most have none, and reading them takes a while
        from broker.core.documents import read_document  # and so does importing the reader

        section = read_document(text, file=file, kind="policy file").data.get(SECTION)
        if not isinstance(section, Mapping):
            continue  # none, or a mistake of form that the policy's loader tells
        values = {str(name): value for name, value in section.items()}
        for name, value in values.items():
            where, before = said.setdefault(name, (file, value))
            if before != value:
                raise InvalidInput(f"{SECTION}.{name}: {value!r} here, and {before!r} in {where}", where=file)
        rules = replaced(values, where=file, base=rules)
    return rules
