"""Jobs that name a model are sized by the arithmetic of `advise size`, and the plan says how."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.app.advise.model_job import size_job
from broker.app.jobs.preview import preview
from broker.app.jobs.submit import submit
from broker.app.policy import policies
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.core.job.jobs import Constraints, Job, Model, Work
from broker.core.market.accelerators import lookup
from broker.economics.kinds import Method
from broker.economics.memory import ModelUse, ParallelLayout, estimate, usable_gib
from tests.actors import ANN


def job(parameters: float = 7e9, method: str = "qlora", **changes: Any) -> Job:
    extra = changes.pop("extra", {})
    model = Model(parameters=parameters, method=method, sequence_length=4096, batch_size=1, extra=extra)
    return Job(**{"name": "llama", "run": "python train.py", "model": model} | changes)


def test_every_machine_holds_the_model() -> None:
    found, how = size_job(job())
    assert how.total_gib == pytest.approx(9.0, abs=0.1)
    assert {"L4:1", "A10G:1", "RTX4090:1"} <= set(how.machines)
    assert [request.machine for request in found.resources] == list(how.machines)
    needs = estimate(ModelUse(7e9, Method.QLORA, batch=1, context=4096))
    for request in found.resources:
        assert request.accelerator is not None
        share = needs.on(ParallelLayout(request.count, tensor=request.count))
        assert share <= usable_gib(lookup(request.accelerator).memory_gib, 0.1)


def test_what_no_machine_holds_is_spread_over_several() -> None:
    found, how = size_job(job(400e9, "adamw"))
    assert how.nodes == found.num_nodes > 1
    assert all(request.count == 8 for request in found.resources)


def test_the_number_of_machines_is_kept_when_the_job_gives_it() -> None:
    found, how = size_job(job(70e9, "adamw", num_nodes=4))
    assert found.num_nodes == how.nodes == 4
    assert "H100:8" in how.machines
    _, two = size_job(job(70e9, "adamw", num_nodes=2))
    assert "H100:8" not in two.machines, "1,283 GiB on 16 cards are 80 GiB each"


def test_smaller_cards_on_more_machines_are_pointed_out() -> None:
    _, how = size_job(job(70e9, "adamw"))
    assert any("with `num_nodes: 2`" in note for note in how.notes)


def test_tokens_become_work_unless_the_job_says_how_much() -> None:
    found, how = size_job(job(extra={"tokens": 50e6}))
    assert found.work is not None
    assert found.work.accelerator in {machine.split(":")[0] for machine in how.machines}
    assert how.work == found.work.duration > timedelta(hours=1)
    said = Work(duration=timedelta(hours=2))
    kept, how = size_job(job(extra={"tokens": 50e6}, work=said))
    assert (kept.work, how.work) == (said, None)


def test_the_architecture_counts() -> None:
    shape = {"layers": 32, "hidden_size": 4096, "heads": 32, "kv_heads": 8}
    _, full = size_job(job(method="lora", extra=shape | {"activation_checkpointing": True}))
    _, none = size_job(job(method="lora", extra=shape | {"activation_checkpointing": False}))
    assert full.activations_gib < none.activations_gib
    _, serving = size_job(job(8e9, "inference", extra=shape))
    assert serving.kv_cache_gib == pytest.approx(0.5)  # 4096 tokens at 128 KiB


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"parameters": 1e15}, "parameters: expected"),
        ({"parameters": 1e14, "method": "adamw"}, "no accelerator holds"),
        ({"extra": {"hidden_size": 4096}}, "number of layers is missing"),
        ({"method": "adamw", "extra": {"precision": "int4"}}, "cannot do it in int4"),
    ],
)
def test_models_that_make_no_sense_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as refused:
        size_job(job(**wrong))
    assert refused.value.exit_code == 2
    assert str(refused.value).startswith("llama: model: ")


def test_the_plan_says_how_and_the_job_that_is_submitted_has_machines(broker: Broker) -> None:
    wanted = job(extra={"tokens": 1e6}, constraints=Constraints(providers=("sandbox",)))
    seen = preview(broker, wanted, by=ANN)
    assert seen.sizing is not None
    assert seen.plan.placements
    assert seen.plan.notes[0].startswith("sized from the model: 7B qlora needs 9.0 GiB")
    view = submit(broker, seen.job, agreed_preview=seen, by=ANN)
    assert view.job.model == wanted.model
    assert view.job.resources == seen.job.resources != ()


def test_the_rules_of_thumb_of_the_active_policy_size_it(broker: Broker, tmp_path: Path) -> None:
    wanted = job(constraints=Constraints(providers=("sandbox",)))
    file = tmp_path / "mine.yaml"
    file.write_text("version: 1\npolicy: mine\nassumptions: {memory_headroom: 0.7}\n", encoding="utf-8")
    before = preview(broker, wanted, by=ANN).sizing
    policies.apply(broker, [file], by=ANN)
    seen = preview(broker, wanted, by=ANN)
    assert before is not None
    assert seen.sizing is not None
    assert "L4:1" in before.machines
    assert "L4:1" not in seen.sizing.machines, "9.0 GiB do not fit into 30% of 24 GB"
    assert "sized by assumptions of the policies: memory_headroom 0.7" in seen.plan.notes


def test_a_job_with_machines_is_left_alone(new_broker: Callable[[], Broker]) -> None:
    wanted = Job(name="plain", run="true")
    seen = preview(new_broker(), wanted, by=ANN)
    assert (seen.job, seen.sizing) == (wanted, None)
