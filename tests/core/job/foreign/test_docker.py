"""Lines with `docker run` as people write them."""

from typing import Any

import pytest

from broker.core.errors import InvalidInput
from broker.core.job.foreign import convert
from tests.core.job.foreign.read_back import read_back

CASES: list[tuple[str, dict[str, Any], str, tuple[str, ...]]] = [
    ("docker run --rm --gpus all pytorch/pytorch:2.4.0 python train.py\n",
     {"image": "docker:pytorch/pytorch:2.4.0"}, "python train.py\n", ("--gpus all names no model",)),
    ("docker run -it --rm \\\n  --gpus 2 --shm-size=16g \\\n  -v $(pwd):/workspace -w /workspace \\\n  "
        "nvcr.io/nvidia/pytorch:24.05-py3 \\\n"
     "  python train.py --epochs 3\n",
     {"image": "docker:nvcr.io/nvidia/pytorch:24.05-py3"}, "python train.py --epochs 3\n",
     ("/workspace: the job's files",)),
    ("sudo docker run -e WANDB_MODE=offline -e HF_TOKEN --env KEY=$KEY image:1 ./run.sh\n",
     {"envs": {"WANDB_MODE": "offline"}, "secrets": ("HF_TOKEN", "KEY")}, "./run.sh\n", ()),
    ("#!/bin/bash\n# starts it\ndocker run --name tuner --cpus=4.5 -m 32g image bash -c 'cd src && make'\n",
     {"name": "tuner", "cpus": 4.5, "memory": 32}, "cd src && make\n", ()),
    ("docker run -v ./data:/data:ro -v models:/models image python a.py\n",
     {"mounts": {"/data": "./data"}}, "python a.py\n", ("./data is copied to /data", "the volume models")),
    ("docker run --gpus '\"device=0,1\"' --ipc=host --network host --ulimit memlock=-1 image python a.py\n",
     {}, "python a.py\n", ("--network host",)),
    ("docker run --gpus '\"device=MIG-a1b2c3d4-0000-1111-2222-333344445555\"' image python a.py\n",
     {}, "python a.py\n", ("each part of a card becomes a whole card",)),
    ("docker run --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=0,1 image python a.py\n",
     {"envs": {}}, "python a.py\n", ("device=0,1 names no model", "such as `H100:2`")),
    ("docker run --gpus device=0:1 image python a.py\n", {}, "python a.py\n", ("each part of a card",)),
    ("docker run -d -p 8888:8888 --restart always image jupyter lab\n", {}, "jupyter lab\n", ()),
    ("docker run --entrypoint python image -m http.server\n", {}, "python -m http.server\n", ()),
    ("nvidia-docker run --runtime=nvidia -u 1000:1000 image\n", {}, "exit 1", ("the image's own", "--user 1000:1000")),
    ("podman run --mount type=bind,source=$PWD/cfg,target=/cfg --privileged image sh -c 'echo hi'\n",
     {"mounts": {"/cfg": "./cfg"}}, "echo hi\n", ("--privileged",)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected", "run", "lost"), CASES)
def test_a_line_becomes_a_job(text: str, expected: dict[str, Any], run: str, lost: tuple[str, ...]) -> None:
    figures, command, left = read_back(text, "a `docker run` command")
    assert {name: figures[name] for name in expected} == expected
    assert run in command
    for words in lost:
        assert words in left


def test_one_without_an_image_is_refused() -> None:
    with pytest.raises(InvalidInput, match="names no image"):
        convert("docker run --rm -it\n", "a.sh")
