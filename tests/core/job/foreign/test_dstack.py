"""Configurations of dstack as people write them."""

from typing import Any

import pytest

from broker.core.errors import InvalidInput
from broker.core.job.foreign import convert
from tests.core.job.foreign.read_back import read_back

RUN = "commands:\n  - pip install -r requirements.txt\n  - python train.py\n"
SCRIPT = "set -e\npip install -r requirements.txt\npython train.py\n"
CASES: list[tuple[str, dict[str, Any], str, tuple[str, ...]]] = [
    (
        f"type: task\nname: train\npython: '3.11'\n{RUN}resources:\n  gpu: H100:8\n  shm_size: 16GB\n",
        {"name": "train", "machine": "H100:8"}, SCRIPT, ("shm_size: 16GB", "python: 3.11"),
    ),
    (
        f"type: task\nimage: nvcr.io/nvidia/pytorch:24.05-py3\n{RUN}resources: {{gpu: 24GB, cpu: 8.., memory: "
        f"64GB.., disk: 200GB}}\n",
        {"image": "docker:nvcr.io/nvidia/pytorch:24.05-py3", "cpus": 8, "memory": 64, "machine": None}, SCRIPT, (),
    ),
    (
        f"type: task\nenv:\n  - HF_TOKEN\n  - EPOCHS=3\n{RUN}resources: {{gpu: 'A100:80GB:4'}}\nspot_policy: auto\n",
        {"machine": "A100-80GB:4", "envs": {"EPOCHS": "3"}, "secrets": ("HF_TOKEN",)}, SCRIPT, (),
    ),
    (
        "type: task\nname: dist\nnodes: 2\ncommands:\n  - "
        "torchrun --nnodes=$DSTACK_NODES_NUM --node-rank=$DSTACK_NODE_RANK"
        " --master-addr=$DSTACK_MASTER_NODE_IP t.py\nresources: {gpu: {name: H100, count: 8}}\nmax_duration: 12h\n",
        {"nodes": 2, "machine": "H100:8", "limit": "12:00:00"},
        "--nnodes=$SKYPILOT_NUM_NODES --node-rank=$SKYPILOT_NODE_RANK",
        ("DSTACK_MASTER_NODE_IP (the addresses of the nodes are in $SKYPILOT_NODE_IPS)",),
    ),
    (
        f"type: task\n{RUN}resources:\n  gpu: {{name: [A10G, L4], count: 1}}\nbackends: [aws, gcp]\n"
        f"regions: [us-east-1]\n",
        {"alternatives": 2}, SCRIPT, (),
    ),
    (f"type: task\n{RUN}max_price: 2.5\nretry: {{on_events: [no-capacity], duration: 1h}}\nmax_duration: off\n",
     {"limit": ""}, SCRIPT, ("max_price: 2.5", "retry:")),
    (f"type: task\n{RUN}working_dir: src\nports: [6006]\nfiles:\n  - .:/app\n",
     {}, "cd src\npip install", ("ports: [6006]", "files:")),
    ("type: dev-environment\nide: vscode\ninit: [pip list]\nresources: {gpu: 1}\n",
     {}, "pip list\n", ("gpubroker dev", "gpu: 1 names no model", "ide: vscode")),
    (f"type: service\nport: 8000\nmodel: llama\n{RUN}env: {{MODEL: llama, KEY: null}}\n"
        f"resources: {{gpu: '40GB..80GB:2'}}\n",
     {"envs": {"MODEL": "llama"}, "secrets": ("KEY",)}, SCRIPT, ("type: service", "port: 8000")),
    (f"type: task\n{RUN}resources: {{gpu: {{name: [L40S, H100], memory: 16GB..24GB}}}}\n",
     {"alternatives": 2}, SCRIPT, ("gpu memory 16GB..24GB: a card L40S has 48 GB", "a card H100 has 80 GB")),
    (f"type: task\n{RUN}volumes: [{{name: data, path: /data}}]\nenv: ['TOKEN=${{{{ secrets.hf }}}}']\nnodes: 1\n",
     {"nodes": 1, "secrets": ("TOKEN",)}, SCRIPT, ("volumes:",)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected", "run", "lost"), CASES)
def test_a_configuration_becomes_a_job(text: str, expected: dict[str, Any], run: str, lost: tuple[str, ...]) -> None:
    figures, command, left = read_back(text, "a dstack configuration")
    assert {name: figures[name] for name in expected} == expected
    assert run in command
    for words in lost:
        assert words in left


def test_one_without_commands_is_refused() -> None:
    with pytest.raises(InvalidInput, match="has no `commands:`"):
        convert("type: task\nimage: x\n", "a.dstack.yml")
