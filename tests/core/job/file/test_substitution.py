"""Variables: values that the command line gives, and their places in paths and addresses."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from broker.core.errors import InvalidInput
from broker.core.job.file import parse_job
from broker.core.job.file.reading import JobOverrides
from broker.core.job.jobs import Job

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


def overridden(text: str, **given: str) -> Job:
    return parse_job(f"run: x\n{text}", file="x.yaml", now=NOW, overrides=JobOverrides(**given))  # type: ignore[arg-type]


def test_a_name_and_accelerators_stand_for_those_of_the_file() -> None:
    read = overridden("name: a\nresources: {gpus: L4, memory: 8}", name="b", accelerators="H100:8")
    (machine,) = read.resources
    assert (read.name, machine.machine, machine.memory_gib) == ("b", "H100:8", 8)


@pytest.mark.parametrize("text", ["resources: {any_of: [{gpus: L4}]}", "model: {parameters: 7B}"])
def test_accelerators_do_not_go_with_a_list_of_machines(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        overridden(text, accelerators="H100")
    assert "lists its own machines" in caught.value.problems[0].message
