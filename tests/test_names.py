"""Functions and classes are named by nouns and verbs: no name at module level is a bare participle or pronoun."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTICIPLE = re.compile(
    "begun|bought|built|chosen|done|drawn|felt|found|given|gone|heard|hidden|held|kept|known|left|lost|made|met|paid|said"
    r"|seen|sent|shown|sold|spent|taken|told|written|\w+ed"
)
PRONOUN = re.compile("each|here|it|mine|one|others?|that|there|these|they|this|those|what|where|who|why")
NOT_PARTICIPLES = frozenset({"embed", "exceed", "feed", "need", "seed", "shed", "speed"})
# What happened is named by a participle: events of jobs and purchases, an agent's states, errors.
EVENTS = ("broker/core/events/", "broker/core/purchases/purchase_events.py", "broker/core/errors.py", "broker/agent/")
ALLOWED = {
    "broker/cli/billing/report_billed.py": {"billed"},  # a command
    "broker/cli/lazy.py": {"Escaped"},
    "broker/cli/render/tables.py": {"Trimmed"},
    "broker/ledger/journal.py": {"Posted"},
    "broker/reconciler/controllers/arrays.py": {"committed"},
    "broker/reconciler/settlement/settlement.py": {"Settled"},
    "broker/engines/runfolder/mailbox.py": {"Dated"},
    "broker/app/use_cases/money.py": {"billed"},  # the id of an API operation
    "broker/store/ledger/ledger.py": {"held"},  # money that is held
    "broker/store/ledger/spent_sums.py": {"spent"},  # money that is spent
    "policies/rules/places.py": {"Where"},  # the title of its schema
    "providers/owned.py": {"Owned"},  # a provider
}


def is_bare(name: str) -> bool:
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+", name)]
    if len(words) != 1:
        return False
    (word,) = words
    return bool(PRONOUN.fullmatch(word) or PARTICIPLE.fullmatch(word)) and word not in NOT_PARTICIPLES


def test_names_at_module_level_are_nouns_and_verbs() -> None:
    bare = {}
    for folder in ("broker", "providers", "policies"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            body = ast.parse(path.read_bytes()).body
            names = {node.name for node in body if isinstance(node, definitions) and is_bare(node.name)}
            if names and not place.startswith(EVENTS):
                bare[place] = names
    assert bare == ALLOWED


def test_the_check_sees_participles_and_pronouns() -> None:
    assert [name for name in ("told", "_Kept", "colored", "Where", "speed", "read_file", "Seed") if is_bare(name)] == [
        "told",
        "_Kept",
        "colored",
        "Where",
    ]
