"""The table of captured answers, on what the fakes answer."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.server import encode
from tests.market.payloads import reading
from tests.providers import test_runpod


def test_rows_read_offered_and_skipped_are_counted(tmp_path: Path) -> None:
    body = test_runpod.answers().body
    body["data"]["gpuTypes"].append({**body["data"]["gpuTypes"][0], "id": "NVIDIA X900", "displayName": "X900"})
    file = tmp_path / "captured.json"
    file.write_bytes(encode(body))
    found = reading(file)
    assert (found.adapter, found.rows, dict(found.skipped)) == ("runpod", 6, {"unknown_accelerator": 1})
    assert found.offers > 50
    assert "X900" in found.examples[0]


def test_what_nobody_reads_is_listed(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"a": 1}')
    assert reading(tmp_path / "other.json").error == "no list of prices that an adapter reads"
