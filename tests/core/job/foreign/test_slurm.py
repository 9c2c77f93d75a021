"""Batch scripts as people write them."""

from typing import Any

import pytest

from broker.core.errors import InvalidInput
from broker.core.job.foreign import convert
from tests.core.job.foreign.read_back import read_back

CASES: list[tuple[str, dict[str, Any], str, tuple[str, ...]]] = [
    (
        "#!/bin/bash\n#SBATCH --job-name=resnet\n#SBATCH --partition=gpu\n#SBATCH --gres=gpu:a100:4\n"
        "#SBATCH --cpus-per-task=32\n#SBATCH --mem=256G\n#SBATCH --time=24:00:00\n#SBATCH --output=logs/%x-%j.out\n"
        "module load cuda/12.1\nsource venv/bin/activate\nsrun python train.py --epochs 90\n",
        {"name": "resnet", "machine": "A100:4", "cpus": 32, "memory": 256, "limit": "1 day, 0:00:00"},
        "source venv/bin/activate\npython train.py --epochs 90\n",
        ("--output=logs/%x-%j.out", "module load cuda/12.1", "--partition"),
    ),
    (
        "#!/bin/bash -l\n#SBATCH -J sweep\n#SBATCH -a 0-9%4\n#SBATCH -c 4\n#SBATCH --mem-per-cpu=2G\n#SBATCH -t 90\n"
        "#SBATCH -o out_%a.txt\npython fit.py --seed $SLURM_ARRAY_TASK_ID\n",
        {"name": "sweep", "tasks": 10, "parallel": 4, "cpus": 4, "memory": 8, "limit": "1:30:00"},
        "python fit.py --seed $SLURM_ARRAY_TASK_ID\n",
        ("--output=out_%a.txt",),
    ),
    (
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=h100:8\n"
        "#SBATCH --time=2-12:00\n#SBATCH --exclusive\nhead=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)\n"
        "srun torchrun --nnodes $SLURM_NNODES --node-rank $SLURM_NODEID --nproc-per-node 8 train.py\n",
        {"nodes": 2, "machine": "H100:8", "limit": "2 days, 12:00:00", "name": "given"},
        'head=$(echo "$SKYPILOT_NODE_IPS" | head -n1)\n'
        "torchrun --nnodes $SKYPILOT_NUM_NODES --node-rank $SKYPILOT_NODE_RANK",
        (),
    ),
    (
        "#!/bin/sh\n#SBATCH --gres=gpu:2\n#SBATCH --mem=65536\n#SBATCH --mail-type=END\n#SBATCH --mail-user=a@b.org\n"
        "python eval.py\n",
        {"memory": 64, "machine": None},
        "python eval.py\n",
        ("--gres=gpu:2 names no model", "--mail-type, --mail-user"),
    ),
    (
        "#!/bin/bash\n#SBATCH -N 1 -n 8 -G 8 --constraint=v100\n#SBATCH -A proj42 --qos=long\n#SBATCH -t 1-00\n"
        "cd $SLURM_SUBMIT_DIR\nsrun -n 8 --gpu-bind=closest python ddp.py\n",
        {"cpus": 8, "limit": "1 day, 0:00:00"},
        "python ddp.py\n",
        ("8 tasks on each node", "torchrun --nproc-per-node 8", "--constraint=v100"),
    ),
    (
        "#!/bin/bash\n#SBATCH --gpus=a100:16\n#SBATCH --nodes=4\n#SBATCH --mem=0\n#SBATCH -A nlp\n#SBATCH --requeue\n"
        "#SBATCH --signal=B:USR1@120\n#SBATCH --dependency=afterok:123\nbash run.sh\n",
        {"nodes": 4, "machine": "A100:4", "memory": None},
        "bash run.sh\n",
        (
            *("--signal=B:USR1@120", "--dependency=afterok:123: name the jobs under `after:`"),
            *("--account=nlp: if a budget is for a team of that name, write `team: nlp`", "--mem=0, all memory of a"),
        ),
    ),
    (
        "#!/bin/bash\n#SBATCH --array=1,3,5-9:2\n#SBATCH --export=NONE,WANDB_MODE=offline,HF_TOKEN\n"
        "line=$(sed -n ${SLURM_ARRAY_TASK_ID}p list.txt)\n./work $line\n",
        {"tasks": 5, "envs": {"WANDB_MODE": "offline"}, "secrets": ("HF_TOKEN",)},
        "line=$(sed -n ${SLURM_ARRAY_TASK_ID}p list.txt)\n./work $line\n",
        (),
    ),
    (
        "#!/bin/bash\n#SBATCH --gres=gpu:tesla:1,tmpdisk:200,mps:50\n#SBATCH --time=00:45:00\n"
        'srun --mpi=pmix \\\n  --container-image="nvcr.io#nvidia/pytorch:24.05-py3"'
        " --container-mounts=/data:/data python a.py\n",
        {"image": "docker:nvcr.io/nvidia/pytorch:24.05-py3", "limit": "0:45:00"},
        "python a.py\n",
        ("a model that is not known here (tesla)", "--gres=mps:50", "--container-mounts=/data:/data"),
    ),
    (
        "#!/bin/bash\n#SBATCH -J   align   # a comment\n#SBATCH -n1\n#SBATCH --cpus-per-task 16\n#SBATCH --mem 128GB\n"
        "ml purge\nml bwa samtools\nset -euo pipefail\nbwa mem -t $SLURM_CPUS_PER_TASK ref.fa r.fq > out.sam\n",
        {"name": "align", "cpus": 16, "memory": 128},
        "set -euo pipefail\nbwa mem",
        ("ml purge; ml bwa samtools",),
    ),
    (
        "#!/bin/bash\n#SBATCH --nodes=1-2 --gpus-per-task=1 --ntasks=4 --cpus-per-gpu=6\n#SBATCH --chdir=src\n"
        "#SBATCH --nodelist=node[01-04]\nif true; then\n  srun --ntasks=4 --exclusive python x.py &\nfi\nwait\n",
        {"cpus": 24, "alternatives": 4},
        "if true; then\n  python x.py &\nfi\nwait\n",
        ("a range of nodes", "--nodelist=node[01-04]"),
    ),
]


@pytest.mark.parametrize(("text", "expected", "run", "lost"), CASES)
def test_a_script_becomes_a_job(text: str, expected: dict[str, Any], run: str, lost: tuple[str, ...]) -> None:
    figures, command, left = read_back(text, "a Slurm script")
    expected = {name: value for name, value in expected.items() if name != "alternatives"}
    assert {name: figures[name] for name in expected} == expected
    assert run in command
    assert "srun" not in command
    for words in lost:
        assert words in left


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--time=soon", "expected minutes"),
        ("--array=a-b", "expected numbers"),
        ("--comment='x", "no closing quotation"),
    ],
)
def test_a_malformed_directive_is_named(line: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        convert(f"#!/bin/bash\n#SBATCH {line}\ntrue\n", "a.sh")


SLICES = "nvidia.com/gpu: 0, nvidia.com/mig-2g.20gb: 0, nvidia.com/mig-1g.10gb: 1, nvidia.com/mig-3g.40gb: 1"
PRODUCT = "nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}"
JOB = "apiVersion: batch/v1\nkind: Job\nspec: {template: {spec: {containers: [{image: i, command: [a]"


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("#!/bin/sh\n#SBATCH --gres=gpu:9g.10gb:1\ntrue\n", "nvidia:16GB+:1"),
        ("#!/bin/sh\n#SBATCH --gpus-per-node=a100_3g.21gb:2\ntrue\n", "A100:2"),
        ("#!/bin/sh\n#SBATCH --gres=gpu:mi300x_cpx_nps4:1\ntrue\n", "MI300X:1"),
        ("type: task\ncommands: [a]\nresources: {gpu: 'A100:0.5'}\n", "A100:1"),
        ("type: task\ncommands: [a]\nresources: {gpu: {name: h100-mig-2g.21gb}}\n", "H100:1"),
        (JOB + ", resources: {limits: {nvidia.com/gpu: 500m}}}]}}}\n", "nvidia:16GB+:1"),
    ],
)
def test_a_part_of_a_card_becomes_no_whole_one_silently(text: str, machine: str) -> None:
    conversion = convert(text, "given.txt")
    assert conversion.job["resources"]["accelerators"] == machine
    assert any("a share such as `L4:0.25` requests a part" in sentence for sentence in conversion.lost)


@pytest.mark.parametrize(
    ("text", "machine", "lost"),
    [
        ("#!/bin/sh\n#SBATCH --gres=gpu:1g.10gb:1\ntrue\n", "1g.10gb:1", ""),
        ("#!/bin/sh\n#SBATCH --gpus-per-node=a100_3g.20gb:2\ntrue\n", "A100-3g.20gb:1", "`num_nodes: 2` starts more"),
        ("type: task\ncommands: [a]\nresources: {gpu: {name: h100-mig-2g.20gb}}\n", "H100-2g.20gb:1", ""),
        (JOB + ", resources: {limits: {nvidia.com/mig-1g.10gb: 1}}}]}}}\n", "1g.10gb:1", ""),
        (
            JOB + f", resources: {{limits: {{{SLICES}}}}}}}], {PRODUCT}}}}}}}\n",
            "A100-80GB-1g.10gb:1",
            "mig-3g.40gb: 1: a",
        ),
    ],
)
def test_a_slice_stays_a_slice(text: str, machine: str, lost: str) -> None:
    conversion = convert(text, "given.txt")
    assert conversion.job["resources"]["accelerators"] == machine
    assert not any("whole card" in sentence for sentence in conversion.lost)
    assert lost in " ".join(conversion.lost)
