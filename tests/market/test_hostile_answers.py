"""After a hostile answer, what was known stays, marked, and no job starts on a suspect row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.market.hostile import answers_of, case, cases, outcome


@pytest.mark.parametrize("kind", ["half", "cut", "set back"])
def test_what_was_known_stays_marked(kind: str, tmp_path: Path) -> None:
    of = case(*answers_of("vast"))
    assert outcome(of, kind, tmp_path).faults == ()


@pytest.mark.system
def test_so_it_is_for_every_adapter(tmp_path: Path) -> None:
    for name, of in cases():
        (tmp_path / name).mkdir()
        for kind in of.hostile:
            assert outcome(of, kind, tmp_path / name).faults == (), f"{name}: {kind}"


def test_a_row_that_vanished_and_is_not_marked_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.market.suspicion.Suspicion.incomplete", lambda judge, answer: "")
    assert outcome(case(*answers_of("vast")), "half", tmp_path).faults
