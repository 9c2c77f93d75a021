"""Train a small language model with the Hugging Face Trainer, so that losing the machine costs nothing but a restart.

Nothing is downloaded: the model is made from a configuration, and the text from a little grammar. `Checkpoints` is all
that a Trainer of your own needs; the lines marked CHECKPOINT show where it goes.
"""

import argparse
import hashlib
import random
import sys
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

try:
    from gpubroker_checkpoint import progress, publish, resume, should_stop
except ImportError:
    sys.exit("run this as a job (gpubroker submit), or put broker/agent on PYTHONPATH to try it by hand")


class Checkpoints(TrainerCallback):
    """Saves and stops when the machine is taken away, and hands every checkpoint of the Trainer's over, whole."""

    def on_step_end(self, args, state, control, **_):
        progress(state.global_step, state.max_steps)
        if should_stop():
            control.should_save = control.should_training_stop = True

    def on_save(self, args, state, control, **_):
        if state.is_world_process_zero:
            publish(f"{args.output_dir}/checkpoint-{state.global_step}", step=state.global_step)


class StepDelay(TrainerCallback):
    """Waits after each step, so that one can watch it."""

    def __init__(self, seconds):
        self.seconds = seconds

    def on_step_end(self, args, state, control, **_):
        time.sleep(self.seconds)


class Sentences(Dataset):
    """Sentences of a little grammar, letter by letter; the same number is always the same sentence."""

    WHO, DOES, WHAT = ("the cat", "a dog", "one fox"), ("sees", "hears", "chases"), ("a bird", "the sun", "the rain")
    LETTERS = " abcdefghijklmnopqrstuvwxyz"

    def __init__(self, number):
        self.number = number

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        dice = random.Random(index)
        words = [" ".join(dice.choice(part) for part in (self.WHO, self.DOES, self.WHAT)) for _ in range(2)]
        letters = torch.tensor([self.LETTERS.index(letter) for letter in f"{' and '.join(words):<48}"[:48]])
        return {"input_ids": letters, "labels": letters}


def main(arguments):
    should_stop()  # CHECKPOINT: begin to listen for the end
    torch.manual_seed(arguments.seed)
    config = GPT2Config(
        vocab_size=len(Sentences.LETTERS), n_positions=48, n_embd=32, n_layer=2, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:  # the Trainer's own folder; what counts is handed over from there
        trainer = Trainer(
            model=GPT2LMHeadModel(config),
            args=TrainingArguments(
                output_dir=scratch,
                max_steps=arguments.steps,
                save_steps=arguments.checkpoint_every,
                save_total_limit=1,
                logging_steps=arguments.checkpoint_every,
                per_device_train_batch_size=8,
                learning_rate=3e-3,
                seed=arguments.seed,
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=Sentences(4000),
            callbacks=[Checkpoints(), StepDelay(arguments.pace)],  # CHECKPOINT: that is all
        )
        found = resume()  # CHECKPOINT: go on from the newest one, if there is any
        print(f"resumed from {found.name}" if found else "from the start", flush=True)
        trainer.train(resume_from_checkpoint=str(found) if found else None)
    weights = repr([part.tolist() for part in trainer.model.state_dict().values()])
    print(f"weights {hashlib.sha256(weights.encode()).hexdigest()}", flush=True)
    return 143 if trainer.state.global_step < arguments.steps else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--checkpoint-every", type=int, default=100, help="steps (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds to wait after each step, to watch it")
    sys.exit(main(parser.parse_args()))
