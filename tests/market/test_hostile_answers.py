"""After a hostile answer, what was known stays, marked, and no job starts on a suspect row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.market.hostile import answers_of, case, cases, outcome


def test_what_was_known_stays_marked(tmp_path: Path) -> None:
    of = case(*answers_of("vast"))
    assert outcome(of, "half", tmp_path).faults == ()


@pytest.mark.system
def test_so_it_is_for_every_adapter(tmp_path: Path) -> None:
    for name, of in cases():
        (tmp_path / name).mkdir()
        for kind in of.hostile:
            assert outcome(of, kind, tmp_path / name).faults == (), f"{name}: {kind}"
