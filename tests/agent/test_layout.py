"""What frameworks write into the folder of checkpoints, in their order, and what is found again after each moment.

The layouts are those of DeepSpeed, Megatron-LM, TensorFlow, Orbax, Composer, Lightning, the Hugging Face Trainer,
torch.distributed.checkpoint, and of programs that save a model beside its optimizer.
"""

import os
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from broker.agent.checkpoints import Manifest, restore
from broker.agent.clock import NodeClock
from broker.agent.environment import Scratch
from broker.agent.formats import Spec
from broker.agent.journal import AttemptJournal
from broker.agent.rank import RankContext
from broker.agent.saver import Saver
from broker.agent.scan import Scanner
from broker.agent.store import ObjectFolder

ZIP = "PK\x03\x04 weights PK\x05\x06" + "\0" * 18
LAYOUTS: dict[str, tuple[list[dict[str, str | None]], list[str], int | None]] = {
    # what is written (a path with its content; "→ x": a link; None: removed) with a scan after each; what is restored
    "deepspeed": (
        [
            {"global_step1/mp_rank_00_model_states.pt": ZIP, "zero_to_fp32.py": "script"},
            {"latest": "global_step1"},
            {"global_step2/mp_rank_00_model_states.pt": ZIP},
            {"latest": "global_step2"},
        ],
        ["global_step2/mp_rank_00_model_states.pt", "latest", "zero_to_fp32.py"],
        2,
    ),
    "deepspeed, killed before its tracker": (
        [
            {"global_step1/mp_rank_00_model_states.pt": ZIP},
            {"latest": "global_step1"},
            {"global_step2/mp_rank_00_model_states.pt": ZIP},
        ],
        ["global_step1/mp_rank_00_model_states.pt", "latest"],
        1,
    ),
    "deepspeed, killed in its tracker": (
        [
            {"global_step1/mp_rank_00_model_states.pt": ZIP},
            {"latest": "global_step1"},
            {"global_step2/mp_rank_00_model_states.pt": ZIP, "latest": ""},
        ],
        ["global_step1/mp_rank_00_model_states.pt", "latest"],
        1,
    ),
    "megatron": (
        [
            {"iter_0000100/mp_rank_00/model_optim_rng.pt": ZIP, "latest_checkpointed_iteration.txt": "100"},
            {"iter_0000200/mp_rank_00/model_optim_rng.pt": ZIP},
            {"latest_checkpointed_iteration.txt": "200"},
        ],
        ["iter_0000200/mp_rank_00/model_optim_rng.pt", "latest_checkpointed_iteration.txt"],
        200,
    ),
    "tensorflow": (
        [
            {"ckpt-1.data-00000-of-00001": "d", "ckpt-1.index": "i", "checkpoint": 'model_checkpoint_path: "ckpt-1"'},
            {"ckpt-2.data-00000-of-00001": "d", "ckpt-2.index": "i"},
            {"checkpoint": 'model_checkpoint_path: "ckpt-2"\nall_model_checkpoint_paths: "ckpt-1"'},
        ],
        ["checkpoint", "ckpt-1.data-00000-of-00001", "ckpt-1.index", "ckpt-2.data-00000-of-00001", "ckpt-2.index"],
        2,
    ),
    "orbax": (
        [
            {"100/_CHECKPOINT_METADATA": "{}", "100/default/array": "a"},
            {"200.orbax-checkpoint-tmp-1732835/default.orbax-checkpoint-tmp-9/array": "a"},
        ],
        ["100/_CHECKPOINT_METADATA", "100/default/array"],
        100,
    ),
    "composer": (
        [
            {"ep0-ba100-rank0.pt": ZIP, "ep0-ba100-rank1.pt": ZIP, "latest-rank0.pt": "→ ep0-ba100-rank0.pt"},
            {"ep0-ba200-rank0.pt": ZIP, "ep0-ba200-rank1.pt": ZIP},
            {"latest-rank0.pt": "→ ep0-ba200-rank0.pt"},
        ],
        ["ep0-ba200-rank0.pt", "ep0-ba200-rank1.pt", "latest-rank0.pt"],
        200,
    ),
    "lightning": (
        [
            {"epoch=0-step=100.ckpt": ZIP, "last.ckpt": ZIP, "hparams.yaml": "lr: 1"},
            {"epoch=1-step=200.ckpt": ZIP * 2, "last.ckpt": ZIP * 2},
        ],
        ["epoch=1-step=200.ckpt", "hparams.yaml", "last.ckpt"],
        200,
    ),
    "trainer, with its final model": (
        [
            {"checkpoint-500/trainer_state.json": '{"global_step": 500}', "checkpoint-500/model.bin": ZIP},
            {"tmp-checkpoint-1000/model.bin": ZIP},
            {"model-00001-of-00002.safetensors": "broken"},
            {"config.json": "{}", "training_args.bin": ZIP},
        ],
        ["checkpoint-500/model.bin", "checkpoint-500/trainer_state.json", "config.json", "training_args.bin"],
        500,
    ),
    "torch.distributed.checkpoint, killed before its metadata": (
        [
            {"step-1/__0_0.distcp": "s", "step-1/.metadata": "m"},
            {"step-2/__0_0.distcp": "s", "step-2/.metadata.tmp": "m"},
        ],
        ["step-1/.metadata", "step-1/__0_0.distcp"],
        1,
    ),
    "a model beside its optimizer": (
        [
            {"model.pt": ZIP, "optimizer.pt": ZIP, "config.json": "{}"},
            {"model.pt": ZIP * 2, "optimizer.pt": ZIP * 2},
        ],
        ["config.json", "model.pt", "optimizer.pt"],
        None,
    ),
    "a model beside its optimizer, with steps": (
        [{"model_1.pt": ZIP, "optim_1.pt": ZIP}, {"model_2.pt": ZIP, "optim_2.pt": ZIP}, {"best": "→ model_1.pt"}],
        ["best", "model_1.pt", "model_2.pt", "optim_2.pt"],
        2,
    ),
    "plain folders, killed while a folder of another name was at rest": (
        [{"step_100/w": "A" * 100}, {"step_200.uploading/w": "A" * 99}, {"step_300-old/w": "A" * 99, "eval_400": "A"}],
        ["step_100/w"],
        100,
    ),
    "plain folders, killed after it hung in the middle of one": (
        [
            {"step_100/w": "A" * 100, "step_100/v": "B"},
            {"step_200/w": "A" * 99},
            {"step_300/w": "A", "step_300/v": "B"},
        ],
        ["step_200/w"],
        200,
    ),
    "plain files that shrink": ([{"step_1": "A" * 100}, {"step_2": "b"}, {"step_3": "c"}], ["step_3"], 3),
    "plain files with their loss and hash": (
        [{"step_1-loss=0.52-a3f9.bin": "A"}, {"step_2-loss=-1e-05-07be.bin": "B"}],
        ["step_2-loss=-1e-05-07be.bin"],
        2,
    ),
    "a file whose name holds the letters of a tracker": (
        [{"round_1": ZIP, "plastic.json": '{"least": 1}'}, {"round_2": ZIP, "last_gain.txt": "1"}, {"round_3": ZIP}],
        ["last_gain.txt", "plastic.json", "round_3"],
        3,
    ),
    "a tracker that nobody updates": (
        [{"round_1": ZIP, "last.txt": "1"}, {"round_2": ZIP}, {"round_3": ZIP}],
        ["last.txt", "round_1", "round_3"],
        3,
    ),
    "two numbers, killed after it hung in the next epoch": (
        [{"epoch_3-iter_90": "A" * 100}, {"epoch_4-iter_10": "A" * 30}],
        ["epoch_3-iter_90"],
        90,
    ),
    "two numbers, of which one repeats": (
        [{"epoch_3-iter_90": ZIP}, {"epoch_4-iter_90": ZIP}],
        ["epoch_4-iter_90"],
        90,
    ),
    "two files in turn, killed after it hung in one": (
        [{"side_0": "A" * 100}, {"side_1": "A" * 100}, {"side_0": "B" * 40}],
        ["side_1"],
        1,
    ),
    "two files in turn": ([{"side_0": ZIP}, {"side_1": ZIP}, {"side_0": ZIP}], ["side_0"], 0),
    "gone back to an earlier step": (
        [{"iter_30": ZIP}, {"iter_40": ZIP}, {"iter_50": ZIP}, {"iter_35": ZIP}],
        ["iter_35"],
        35,
    ),
    "gone back to an earlier step, and killed after it hung there": (
        [{"iter_30": "A" * 100}, {"iter_40": "A" * 100}, {"iter_35": "A" * 40}],
        ["iter_40"],
        40,
    ),
    "gone back to an earlier step, and two halves there": (
        [{"iter_40": "A" * 100}, {"iter_50": "A" * 100}, {"iter_31": "A" * 40}, {"iter_32": "A" * 40}],
        ["iter_50"],
        50,
    ),
    "two halves, the later one smaller": (
        [{"iter_30/w": "A" * 100}, {"iter_40/w": "A" * 40}, {"iter_50/w": "A"}],
        ["iter_30/w"],
        30,
    ),
    "a later file in an older folder": (
        [{"iter_30/w": ZIP * 2}, {"iter_40/w": ZIP * 2}, {"iter_30/metrics.json": "{}"}],
        ["iter_40/w"],
        40,
    ),
    "two names, killed between them": (
        [{"net_1": ZIP, "adam_1": ZIP * 2}, {"net_2": ZIP, "adam_2": ZIP * 2}, {"net_3": ZIP}],
        ["adam_2", "net_2"],
        2,
    ),
    "two names, of which one fails": (
        [{"net_1": ZIP, "adam_1": ZIP * 2}, {"net_2": ZIP, "adam_2": ZIP * 2}, {"net_3": ZIP}, {"net_4": ZIP}],
        ["adam_2", "net_2"],
        2,
    ),
    "two names, killed between them after the old ones were removed": (
        [{"net_1": ZIP, "adam_1": ZIP * 2}, {"net_1": None, "adam_1": None, "adam_2": ZIP * 2}],
        ["adam_1", "net_1"],
        1,
    ),
    "a copy of the best beside it": (
        [{"round_1": ZIP}, {"round_2": ZIP}, {"round_3": ZIP}, {"top_round_1": ZIP}],
        ["round_3", "top_round_1"],
        3,
    ),
    "a copy of the first as the best": (
        [{"round_1": ZIP, "top_round_1": ZIP}, {"round_2": ZIP}],
        ["round_2", "top_round_1"],
        2,
    ),
    "smaller copies of the best": (
        [
            {"round_1": ZIP * 2, "top_1": ZIP},
            {"round_2": ZIP * 2},
            {"round_3": ZIP * 2, "top_3": ZIP},
            {"round_4": ZIP * 2},
        ],
        ["round_4", "top_3"],
        4,
    ),
    "plain files whose loss is no number": (
        [{"iter_1-loss_0.5": "A" * 100}, {"iter_2-loss_nan": "A" * 100}],
        ["iter_2-loss_nan"],
        2,
    ),
    "nemo, killed while it wrote": (
        [
            {"gpt--step=100-last-unfinished": "", "gpt--step=100-last.ckpt": ZIP},
            {"gpt--step=100-last-unfinished": None},
            {"gpt--step=200-last-unfinished": "", "gpt--step=200-last.ckpt": ZIP},
        ],
        ["gpt--step=100-last.ckpt"],
        100,
    ),
    "folders with a temporary file that stays, killed in the next": (
        [
            {"step_100/w": "A" * 100, "step_100/temp.bin": "t"},
            {"step_200/w": "A" * 100, "step_200/temp.bin": "t"},
            {"step_300/w.tmp": "A" * 100, "step_300/temp.bin": "t"},
        ],
        ["step_200/temp.bin", "step_200/w"],
        200,
    ),
    "json that grows, killed in it": (
        [{"step_1.json": '{"a": [1, 2]}'}, {"step_2.json": '{"a": [1, 2, 3'}],
        ["step_1.json"],
        1,
    ),
    "tensorboard beside it": (
        [{"step_1": ZIP, "events.out.tfevents.1700000000.host.1.0": "e"}, {"step_2": ZIP}],
        ["events.out.tfevents.1700000000.host.1.0", "step_2"],
        2,
    ),
}


@pytest.mark.parametrize("framework", LAYOUTS)
def test_what_a_framework_wrote_is_found_again_after_a_kill(framework: str, tmp_path: Path) -> None:
    written, expected, step = LAYOUTS[framework]
    store, scratch = ObjectFolder(MemoryStore()), Scratch(tmp_path)
    scratch.make()
    spec = Spec("j", 1, "j-1", "true")
    here = RankContext(store, spec, 0, scratch, AttemptJournal(store, None, NodeClock()))
    saver = Saver(here, Scanner(scratch.checkpoints, set), lambda: False, lambda: None)
    saver._scanner.adopt()
    for moment, files in enumerate(written):
        for path, content in files.items():
            place = scratch.checkpoints / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            if content is not None and content.startswith("→ "):
                place.symlink_to(content[2:])
            elif content is not None:
                place.write_text(content)
                os.utime(place, (moment, moment))
        for scan in range(2):  # an entry rests for two scans
            saver._pass(None)
            check_restored(store, tmp_path / f"moment-{moment}-{scan}")
    saver.finish(killed=True, hurry=True, deadline=lambda: 0.0)
    saver._stopped = False
    saver._pass(saver._final)
    found = check_restored(store, tmp_path / "again")
    assert found is not None
    paths = [path for path in (tmp_path / "again").rglob("*") if path.is_symlink() or path.is_file()]
    assert sorted(path.relative_to(tmp_path / "again").as_posix() for path in paths) == expected
    assert found.step == step


def test_folders_come_back_with_their_modes_and_times(tmp_path: Path) -> None:
    store, scratch = ObjectFolder(MemoryStore()), Scratch(tmp_path)
    scratch.make()
    places = {"step_1": 0o755, "step_1/shared": 0o775, "step_1/open": 0o777, "step_1/own": 0o700}
    for moment, (name, mode) in enumerate(places.items(), start=1):
        (scratch.checkpoints / name).mkdir()
        (scratch.checkpoints / name / "w").write_text("w")
        os.utime(scratch.checkpoints / name / "w", (moment, moment))
        (scratch.checkpoints / name).chmod(mode)
    here = RankContext(store, Spec("j", 1, "j-1", "true"), 0, scratch, AttemptJournal(store, None, NodeClock()))
    saver = Saver(here, Scanner(scratch.checkpoints, set), lambda: False, lambda: None)
    for _ in range(2):
        saver._pass(None)
    umask = os.umask(0o077)  # as that of an agent
    assert restore(store, tmp_path / "again", 0).manifest is not None
    os.umask(umask)
    assert {name: (tmp_path / "again" / name).stat().st_mode & 0o777 for name in places} == places
    assert [int((tmp_path / "again" / name / "w").stat().st_mtime) for name in places] == [1, 2, 3, 4]
    assert int((tmp_path / "again" / "step_1").stat().st_mtime) == 4, "of its newest file"


def check_restored(store: ObjectFolder, into: Path) -> Manifest | None:
    """The newest checkpoint, restored: what its trackers and links name is there."""
    found = restore(store, into, 0).manifest
    if found is not None:
        assert "latest" not in found.name, "a tracker is no checkpoint"
        assert not [place for place in into.rglob("*") if not place.exists()], "a link that leads nowhere"
        if (tracker := into / "latest").exists():
            assert (into / tracker.read_text()).exists()
    return found
