"""Handles of engines whose machines are processes on this machine."""

from pathlib import Path

import pytest

from broker.core.ports import EngineState
from broker.engines.handles import Handles


@pytest.mark.parametrize("engine", ["local", "lab2", "my-lab", "my_lab"])
def test_a_handle_is_read_whatever_its_engine_is_called(tmp_path: Path, engine: str) -> None:
    here, there = Handles(engine, tmp_path / "here"), Handles(engine, tmp_path / "there")
    handle = here.of("job-1")
    slot, elsewhere = here.slot(handle), there.elsewhere(handle)
    assert slot is not None
    assert slot.folder == tmp_path / "here" / "job-1"
    assert here.elsewhere(handle) is None
    assert there.slot(handle) is None
    assert elsewhere is not None
    assert elsewhere.state is EngineState.ELSEWHERE
