"""Configurations of dstack as people write them."""

import os
import subprocess
from datetime import UTC, datetime
from math import inf
from typing import Any

import pytest

from broker.core.documents import print_document
from broker.core.errors import InvalidInput
from broker.core.job.file import parse_job
from broker.core.job.foreign import convert
from broker.core.market.accelerators import lookup
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
        "--nnodes=$SKYPILOT_NUM_NODES --node-rank=$SKYPILOT_NODE_RANK", (),
    ),
    (
        f"type: task\n{RUN}resources:\n  gpu: {{name: [A10G, L4], count: 1}}\nbackends: [aws, gcp]\n"
        f"regions: [us-east-1]\n",
        {"alternatives": 2}, SCRIPT, (),
    ),
    (f"type: task\n{RUN}env: [A=1]\nresources: {{gpu: 'amd:80GB..:8'}}\n", {"machine": None}, SCRIPT, ()),
    (f"type: task\n{RUN}resources: {{gpu: 'amd:8'}}\n", {}, SCRIPT, ("any of 16 GB or more",)),
    ("type: task\nimage: vendor/server:1\nports: [8000]\nresources: {gpu: '16GB..24GB'}\n",
     {"image": "docker:vendor/server:1"}, "exit 1\n",
     ("the command is the image's own", "ports: [8000], which dstack forwards", "16GB..24GB: larger cards")),
    ("type: task\ncommands: ['mpirun --hostfile $DSTACK_MPI_HOSTFILE t.py ${{ run.args }}']\n",
     {}, "mpirun --hostfile $DSTACK_MPI_HOSTFILE t.py \n", ("DSTACK_MPI_HOSTFILE", "${{ run.args }} in the commands")),
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


@pytest.mark.parametrize(("gpu", "vendors", "memory"), [
    ("24GB", {"nvidia"}, (24, 24)), ("24GB..", {"nvidia"}, (24, inf)), ("amd:80GB..:8", {"amd"}, (80, inf)),
    ("{memory: 64GB, vendor: amd}", {"amd"}, (64, 64)), ("amd:8", {"amd"}, (16, inf)), ("1..8", {"nvidia"}, (16, inf)),
])  # fmt: skip
def test_cards_are_of_the_vendor_and_of_the_memory(gpu: str, vendors: set[str], memory: tuple[float, float]) -> None:
    job = parse_job(print_document(convert(f"type: task\n{RUN}resources: {{gpu: {gpu}}}\n", "a.yml").job), file="j",
                    now=datetime(2026, 11, 30, tzinfo=UTC))  # fmt: skip
    cards = [lookup(machine.accelerator or "") for machine in job.resources]
    assert {card.vendor for card in cards} == vendors
    assert all(memory[0] <= card.memory_gb <= memory[1] for card in cards)


def test_alternatives_are_in_no_order() -> None:
    text = f"type: task\n{RUN}resources: {{gpu: 'A10G,L4:2'}}\n"
    assert convert(text, "a.yml").job["resources"] == {"accelerators": {"A10G": 2, "L4": 2}}


def test_every_node_knows_the_first_one_and_how_many_cards_there_are() -> None:
    text = """\
type: task
nodes: 2
commands: ['echo "$DSTACK_MASTER_NODE_IP of $DSTACK_GPUS_NUM"', 'echo "$DSTACK_NODES_IPS" | tail -n1']
"""
    conversion = convert(text, "a.yml")
    variables = {
        "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
        "SKYPILOT_NUM_NODES": "2",
        "SKYPILOT_NUM_GPUS_PER_NODE": "8",
    }
    done = subprocess.run(
        ["bash", "-c", conversion.job["run"]], env=os.environ | variables, capture_output=True, text=True, check=True
    )
    assert (done.stdout, conversion.lost) == ("10.0.0.1 of 16\n10.0.0.2\n", [])


@pytest.mark.parametrize(("text", "problem", "hint"), [
    ("type: task\n", "has no `commands:`", ""),
    ("type: dev-environment\nimage: x\nide: vscode\n", "is a session", "gpubroker dev"),
])  # fmt: skip
def test_one_without_commands_is_refused(text: str, problem: str, hint: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as refused:
        convert(text, "a.dstack.yml")
    assert hint in (refused.value.hint or "")


@pytest.mark.parametrize("gpu", ["n150", "n300:2", "{vendor: tenstorrent, count: 2}", "tenstorrent:P150b", "Wormhole"])
def test_cards_of_tenstorrent_are_refused_by_name(gpu: str) -> None:
    with pytest.raises(InvalidInput, match="cards of Tenstorrent are not supported"):
        convert(f"type: task\n{RUN}resources: {{gpu: {gpu if gpu[0] == '{' else repr(gpu)}}}\n", "t.dstack.yml")
