"""Variables: values that the command line gives, and their places in paths and addresses."""

from datetime import UTC, datetime
from typing import Any

import pytest

from broker.core.errors import InvalidInput
from broker.core.job.file import parse_job
from broker.core.job.file.reading import JobOverrides
from broker.core.job.jobs import Job
from broker.core.market.offers import CapacityType
from broker.core.values.money import Money

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def job(text: str, *secrets: str, **envs: str) -> Job:
    return parse_job(f"run: x\n{text}", file="x.yaml", now=NOW, overrides=JobOverrides(envs=envs, secrets=secrets))


def problems(text: str, **envs: str) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        job(text, **envs)
    return [f"{problem.line} {problem.key}: {problem.message}" for problem in caught.value.problems]


def test_a_variable_without_a_value_takes_the_given_one() -> None:
    assert job("envs: {A: , B: b}", A="1").envs == {"B": "b", "A": "1"}


def test_a_given_value_overrides_and_adds() -> None:
    assert job("envs: {B: b}", B="", C="c=d").envs == {"B": "", "C": "c=d"}


def test_a_variable_given_as_a_secret_is_one() -> None:
    read = job("envs: {HF_TOKEN: , B: b}\nsecrets: [OTHER]", "HF_TOKEN")
    assert (read.envs, read.secrets) == ({"B": "b"}, ("OTHER", "HF_TOKEN"))


def test_an_empty_secret_may_be_missing() -> None:
    read = job('secrets: {HF_TOKEN: "", KEY: null}')
    assert (read.secrets, read.optional_secrets) == (("HF_TOKEN", "KEY"), ("HF_TOKEN",))


def test_variables_are_filled_in_in_paths_and_addresses() -> None:
    text = """envs: {NAME: mine, DIR: data, QUOTE: 'a"b'}
workdir: ~/$DIR/${NAME}
file_mounts:
  /$DIR/x: s3://${NAME}-$DIR
  /y: {name: $NAME, source: "./$QUOTE", mode: MOUNT, store: null}
"""
    read = job(text)
    assert read.workdir == "~/data/mine"
    assert read.file_mounts == {
        "/data/x": "s3://mine-data",
        "/y": {"name": "mine", "source": './a"b', "mode": "MOUNT", "store": None},
    }


def test_the_command_is_left_to_the_shell() -> None:
    assert parse_job("run: echo $A\nenvs: {A: b}", file="x.yaml", now=NOW).run == "echo $A"


def test_a_variable_that_has_no_value_is_a_mistake() -> None:
    text = "envs: {A: a}\nfile_mounts: {/x: 's3://${B}'}\nworkdir: $HOME/x"
    assert problems(text) == [
        "3 file_mounts./x: ${B} has no value: name it under `envs`, or give `--env B=VALUE`",
        "4 workdir: $HOME has no value: name it under `envs`, or give `--env HOME=VALUE`",
    ]


def test_a_variable_that_is_left_empty_is_reported_once() -> None:
    assert len(problems("envs: {B: }\nfile_mounts: {/x: 's3://${B}'}")) == 1


def test_two_variables_that_make_one_path_are_a_mistake() -> None:
    (one,) = problems("envs: {A: x, B: x}\nfile_mounts: {/$A: ./a, /$B: ./b}")
    assert "the same path" in one


def overridden(text: str, **given: Any) -> Job:
    return parse_job(f"run: x\n{text}", file="x.yaml", now=NOW, overrides=JobOverrides(**given))


def test_options_stand_for_what_the_file_says() -> None:
    text = "name: a\nmax_cost: $1\nresources: {gpus: L4, memory: 8, infra: aws/us-east-1, use_spot: false}"
    machine, constraints = {"accelerators": "H100:8"}, {"regions": ["eu-*"], "capacity_types": ["spot"]}
    read = overridden(text, name="b", keys={"max_cost": "$2"}, machine=machine, constraints=constraints)
    (request,) = read.resources
    assert (read.name, read.max_cost, request.machine, request.memory_gib) == ("b", Money.usd("2"), "H100:8", 8)
    assert (request.infra, request.capacity_types) == ("aws", ())
    assert (read.constraints.regions, read.constraints.capacity_types) == (("eu-*",), (CapacityType.SPOT,))
    elsewhere = overridden(text, constraints={"providers": ["gcp"]})
    assert (elsewhere.resources[0].infra, elsewhere.constraints.providers) == (None, ("gcp",))


@pytest.mark.parametrize("text", ["resources: {any_of: [{gpus: L4}]}", "model: {parameters: 7B}"])
def test_a_machine_does_not_go_with_a_list_of_machines(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        overridden(text, machine={"accelerators": "H100"}, options={"resources.accelerators": "--gpu"})
    assert "so --gpu cannot be given as well" in caught.value.problems[0].message
    assert overridden(text, constraints={"regions": ["eu-*"]}).constraints.regions == ("eu-*",)
