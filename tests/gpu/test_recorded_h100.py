"""What an H100 answered (`h100.json`): our code reads it, and the double of NVML answers in the same forms."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from broker.agent.gpu import Sample, parse
from broker.core.market.local_gpus import LocalGpu, local_gpus
from tests.engines.test_local_parts import Nvml
from tests.gpu.recording import as_json
from tests.providers.test_owned import Card, FakeNvml

RECORD = json.loads(Path(__file__).with_name("h100.json").read_text("utf-8"))
WORDS = RECORD["nvidia_smi"]


class ReplayedNvml:
    """The binding as it was recorded: each call's answers in their order, the last one again."""

    NVMLError = pynvml.NVMLError

    def __init__(self) -> None:
        self._answers: dict[str, list[Any]] = defaultdict(list)
        for answer in RECORD["answers"]:
            self._answers[answer["call"]].append(answer)

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            left = self._answers[name]
            answer = left.pop(0) if len(left) > 1 else left[0]
            if "error" in answer:
                raise pynvml.NVMLError(answer["error"]["number"])
            value = answer["value"]
            return SimpleNamespace(**value) if isinstance(value, dict) else value

        return call


def test_the_h100_is_found_as_it_answered() -> None:
    assert local_gpus(ReplayedNvml()) == ([LocalGpu(0, "H100", linked=False)], [])


def test_errors_are_those_that_the_binding_raises() -> None:
    told = [answer["error"] for answer in RECORD["answers"] if "error" in answer]
    raised = [pynvml.NVMLError(one["number"]) for one in told]
    assert [(type(one).__name__, str(one)) for one in raised] == [(one["class"], one["text"]) for one in told]


@pytest.mark.parametrize("double", [FakeNvml([Card(mig=False)]), Nvml()], ids=["provider's", "engine's"])
def test_the_doubles_answer_in_the_same_forms(double: Any) -> None:
    for answer in RECORD["answers"]:
        if "error" in answer or "System" in answer["call"]:
            continue
        of_a_gpu = answer["call"] not in ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount")
        of_one = answer["arguments"] or [double.nvmlDeviceGetHandleByIndex(0)]
        said = getattr(double, answer["call"])(*(of_one if of_a_gpu else []))
        if answer["kind"] in ("int", "str", "list", "NoneType"):
            assert type(said).__name__ == answer["kind"], answer["call"]
            assert as_json(said) is None or type(as_json(said)) is type(answer["value"])
        elif answer["value"]:
            assert isinstance(said.total, int), answer["call"]


def test_what_nvidia_smi_printed_is_read() -> None:
    assert parse(WORDS["idle"]) == [Sample(0, 0.0, 0.0, 81559.0, 72.52)]
    assert parse(WORDS["busy"]) == [Sample(0, 100.0, 1615.0, 81559.0, 575.42)]
    assert parse(WORDS["idle"].replace("72.52", WORDS["without_a_figure"].split(", ")[1].strip()))[0].power is None
    assert parse(WORDS["unknown_field"]) == []
