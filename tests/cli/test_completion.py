"""What the shell offers after Tab, as bash asks for it."""

from collections.abc import Callable
from pathlib import Path

import pytest

import cli
from broker.cli.program import run
from tests.cli.conftest import JOB, Gpubroker

Completed = Callable[..., list[str]]


@pytest.fixture
def tab(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Completed:
    """What is offered for the last of these words; nothing else may be printed."""

    def offered(*words: str) -> list[str]:
        monkeypatch.setenv("_GPUBROKER_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(("gpubroker", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        capfd.readouterr()
        with pytest.raises(SystemExit):
            run([], cli.registries)
        monkeypatch.delenv("_GPUBROKER_COMPLETE")
        captured = capfd.readouterr()
        assert captured.err == ""
        return captured.out.split()

    return offered


def test_names_of_the_market(gpubroker: Gpubroker, tab: Completed) -> None:
    assert {"H100", "H100-PCIe"} <= set(tab("offers", "--gpu", "H10"))
    assert tab("submit", "--gpu", "A100-80") == ["A100-80GB"]
    assert tab("offers", "--where", "pri") == ["price_kind="]
    assert tab("offers", "--where", "provider=pri") == ["provider=pricebook"]
    assert "provider=aws" in tab("prices", "history", "-w", "provider=a")
    assert tab("offers", "-w", "provider=aws,region=us-east-1") == ["provider=aws,region=us-east-1"]
    assert tab("prices", "history", "-w", "capacity_type=o") == ["capacity_type=owned", "capacity_type=on-demand"]


def test_jobs_by_name_and_id(gpubroker: Gpubroker, tab: Completed, home: Path) -> None:
    assert tab("status", "t") == []
    (home.parent / "job.yaml").write_text(JOB)
    assert gpubroker("submit", "job.yaml", "--yes", "--detach").code == 0
    name, id = tab("status", "ti")
    assert (name, id.startswith("tiny-")) == ("tiny", True)
    assert tab("jobs", "list", "--where", "array=tiny-") == [f"array={id}"]
    assert tab("jobs", "list", "--where", "state=succ") == ["state=succeeded"]


def test_what_cannot_be_read_offers_nothing(home: Path, tab: Completed) -> None:
    (home / "gpubroker.db").write_bytes(b"no database" * 1000)
    assert tab("cancel", "t") == []
    assert tab("offers", "-w", "provider=a") == []
