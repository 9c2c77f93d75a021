"""No decision depends on the text of a message: texts for people are no state. Such decisions need a code or a field.

Examines the syntax of every module for comparisons of texts that are written for people, by the names of their fields:
with ``==``, ``in`` and the methods that search a text. The remaining ones are listed, with the reason.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROSE = frozenset(
    {"because", "waiting_because", "message", "hint", "evidence", "detail", "why", "denied", "note", "told"}
)
LOOKS_INTO = frozenset({"startswith", "endswith", "partition", "rpartition", "find", "index", "count", "split"})
ERRORS = frozenset({"error", "mistake", "failure", "caught", "exception"})

ALLOWED = {
    # Only about how something is shown.
    ("broker/cli/render/errors.py", "problem.message not in error.message"),
    ("broker/cli/jobs/plan_view.py", "source in verdict.message"),
    # Whether it was logged already: the same error is logged once.
    ("broker/app/market/watches.py", "last_error != str(error)"),
    ("broker/reconciler/controllers/enforcement.py", "self._trouble != str(error)"),
    ("broker/reconciler/worklist.py", "self._logged_reasons.get(job.job_id) != job.because"),
    # Messages of external programs or libraries that have no code.
    ("providers/azure/errors.py", "'CERTIFICATE_VERIFY_FAILED' in str(error)"),
    ("providers/azure/errors.py", "str(error).partition('To mitigate this issue')"),
    ("providers/runpod.py", "_REFUSED_QUERY.search(error.message)"),
    ("providers/runpod.py", "_REFUSED_FIELD.findall(error.message)"),
}


def is_prose(node: ast.expr) -> bool:
    """Whether it is a text for people: a field of such a name, or an error as text."""
    if isinstance(node, ast.Attribute):
        return node.attr in PROSE
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("str", "repr"):
        return any(isinstance(one, ast.Name) and one.id in ERRORS for one in node.args)
    return False


def comparisons(tree: ast.AST) -> Iterator[ast.expr]:
    """The places where a text for people is compared with something other than the empty text, or searched."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            empty = any(isinstance(side, ast.Constant) and not side.value for side in sides)
            compared = any(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops)
            if compared and not empty and any(map(is_prose, sides)):
                yield node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            looked_at = [node.func.value] if node.func.attr in LOOKS_INTO and node.args else []
            if node.func.attr in ("search", "match", "fullmatch", "findall", "finditer"):
                looked_at = node.args
            if any(map(is_prose, looked_at)):
                yield node


# How a text for people appears in source code; a module without one is not parsed.
WRITTEN = re.compile(rf"\.\s*({'|'.join(PROSE)})\b|\b(str|repr)\([^)]*\b({'|'.join(ERRORS)})\b")


def found_in(text: str) -> list[str]:
    return [ast.unparse(node) for node in comparisons(ast.parse(text))] if WRITTEN.search(text) else []


def test_no_decision_reads_a_sentence() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), comparison)
        for room in ("broker", "policies", "providers")
        for path in sorted((ROOT / room).rglob("*.py"))
        for comparison in found_in(path.read_text("utf-8"))
    }
    assert found == ALLOWED
