"""Batch work over many inputs that goes on where it was interrupted: count words in shards of a text.

Each shard's result is a file of its own in the checkpoint folder of this run, so what is finished is never done again.
A checkpoint is one folder, `done/`, that is copied, added to, and renamed into place.
"""

import argparse
import json
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics


def shards(number):
    """The language reference of Python, cut into so many parts: (name, text)."""
    names = sorted(topics)
    return [(f"shard-{i:03d}", "\n".join(topics[name] for name in names[i::number])) for i in range(number)]


def save(folder, results, step):
    """All results so far as one checkpoint, whole or not at all."""
    draft = folder / ".draft"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    for name, counts in results.items():
        (draft / f"{name}.json").write_text(json.dumps(counts))
    draft.rename(folder / f"done-{step:06d}")
    for old in sorted(folder.glob("done-*"))[:-2]:
        shutil.rmtree(old)


def main(arguments):
    folder = Path(os.environ.get("GPUBROKER_CHECKPOINT_DIR", "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    newest = max(folder.glob("done-*"), default=None)
    results = {path.stem: json.loads(path.read_text()) for path in newest.glob("*.json")} if newest else {}
    todo = [(name, text) for name, text in shards(arguments.shards) if name not in results]
    print(f"{len(results)} shards done before, {len(todo)} to do", flush=True)
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    for name, text in todo:
        time.sleep(arguments.seconds)  # stands in for work that is really heavy
        results[name] = Counter(re.findall(r"[a-z]+", text.lower())).most_common(50)
        save(folder, results, len(results))
        progress(len(results), arguments.shards)
        print(f"{name}: {sum(count for _, count in results[name])} of the commonest words", flush=True)
        if told:
            return 143
    total = Counter()
    for counts in results.values():
        total.update(dict(counts))
    print("commonest words:", ", ".join(f"{word} {count}" for word, count in total.most_common(5)))
    return 0


def progress(step, total):
    place = os.environ.get("GPUBROKER_PROGRESS_FILE")
    if place:
        draft = Path(place + ".new")
        draft.write_text(json.dumps({"step": step, "total": total}))
        draft.replace(place)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.5, help="pretend work a shard (default %(default)s)")
    sys.exit(main(parser.parse_args()))
