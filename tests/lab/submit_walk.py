"""``python -m tests.lab.submit_walk``: the functions of the product that one local ``gpubroker submit`` runs, and the
files that they are in: how much somebody reads who follows a job to its launch.

Counts the process of the command, not the background process. ``first``: the first command of a process on a new store,
with functions that importing runs; ``second``: the next job. Functions without a name (comprehensions, lambdas) count
as part of the function around them.
"""

import argparse
import inspect
import json
import os
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[2]
_PRODUCT = (*(f"{ROOT / name}{os.sep}" for name in ("broker", "providers", "policies")), str(ROOT / "cli.py"))
_JOB = "name: walk\nresources: {cpus: 1}\nrun: sleep 1\n"


def functions_of(words: list[str]) -> dict[str, set[str]]:
    """The names of the functions that the command line runs, by file."""
    functions: dict[str, set[str]] = defaultdict(set)

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_NEWLOCALS and not code.co_name.startswith("<")
        if event == "call" and is_function and code.co_filename.startswith(_PRODUCT):
            functions[os.path.relpath(code.co_filename, ROOT)].add(code.co_name)

    import cli
    from broker.cli.program import run

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        code = run(words, cli.registries)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    if code:
        raise SystemExit(f"gpubroker {' '.join(words)} ended with {code}")
    return functions


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.submit_walk", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--list", action="store_true", help="also name the functions of the second job")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GPUBROKER_HOME"] = folder
        os.chdir(folder)
        Path("job.yaml").write_text(_JOB, encoding="utf-8")
        sys.stdout, output = sys.stderr, sys.stdout
        walks = {name: functions_of(["submit", "job.yaml", "--yes", "--detach"]) for name in ("first", "second")}
        sys.stdout = output
    counts = {
        name: {"functions": sum(map(len, functions.values())), "files": len(functions)}
        for name, functions in walks.items()
    }
    if options.json:
        print(json.dumps(counts))
        return
    for name, count in counts.items():
        print(f"{name}: {count['functions']} functions in {count['files']} files")
    if options.list:
        for file, names in sorted(walks["second"].items(), key=lambda item: -len(item[1])):
            print(f"{len(names):4} {file}: {', '.join(sorted(names))}")


if __name__ == "__main__":
    main(sys.argv[1:])
