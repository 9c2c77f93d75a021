"""The command of a session (`gpubroker dev`): keeps its home folder from one machine to the next, and runs Jupyter.

The agent starts ``python -m gpubroker_session`` with the variables of sessions. Standard library only. The home folder
is a checkpoint like any other: ``home-N.tar`` in $GPUBROKER_CHECKPOINT_DIR, saved every $GPUBROKER_SAVE_EVERY seconds
(900) if something has changed, and at the end. Without ``.cache``.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

_SAVED = re.compile(r"home-(\d+)\.tar")
_EXCLUDED = frozenset({".cache"})
_NO_JUPYTER = 127
_QUICK = 10.0


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 (the job's output)


def newest_saved(checkpoints: Path) -> tuple[int, Path] | None:
    """The number and the file of the newest saved home folder; None if there is none."""
    homes = ((int(match[1]), file) for file in checkpoints.iterdir() if (match := _SAVED.fullmatch(file.name)))
    return max(homes, default=None)


def restore(checkpoints: Path, home: Path) -> int:
    """Restore the home folder from the newest saved one; returns its number, 0 if there is none.

    Raises OSError, TarError.
    """
    newest = newest_saved(checkpoints)
    if newest is None:
        return 0
    number, file = newest
    with tarfile.open(file) as packed:
        packed.extraction_filter = getattr(tarfile, "tar_filter", None)  # later Python versions require a filter
        packed.extractall(home)  # noqa: S202 (written by `save`, verified by the agent)
    return number


def folder_state(home: Path) -> list[tuple[str, int, int, int]]:
    """The state of the folder, to detect changes: path, size, time and mode of every file in it."""
    states = []
    for folder, folders, files in os.walk(home):
        if Path(folder) == home:
            folders[:] = [name for name in folders if name not in _EXCLUDED]
        for name in (*folders, *files):
            path = Path(folder) / name
            try:
                info = path.lstat()
            except OSError:
                continue
            size = info.st_size if name in files else 0
            states.append((str(path), size, info.st_mtime_ns if name in files else 0, info.st_mode))
    return sorted(states)


def save(home: Path, checkpoints: Path, number: int) -> None:
    """Write the home folder as checkpoint ``number``. Omits files that disappear or cannot be read. Raises OSError."""
    draft = checkpoints / ".home.tmp"
    with tarfile.open(draft, "w") as packed:
        for path in sorted(home.rglob("*")):
            inside = path.relative_to(home)
            if inside.parts[0] in _EXCLUDED or path.is_socket() or path.is_fifo():
                continue
            try:
                packed.add(path, str(inside), recursive=False)
            except FileNotFoundError:
                continue
            except PermissionError as error:
                _say(f"not saved: {error}")
    draft.rename(checkpoints / f"home-{number}.tar")


def jupyter_command() -> list[str] | None:
    """The command of Jupyter in the job's environment: lab, else the plain server; None if there is none."""
    program = shutil.which("jupyter")
    for name in ("lab", "server"):
        if program is not None and shutil.which(f"jupyter-{name}"):
            return [program, name]
    return None


def _start_jupyter(home: Path) -> subprocess.Popen[bytes] | None:
    command = jupyter_command()
    if command is None:
        _say(
            "there is no jupyter on the PATH of this machine: install it in the job's `setup:`"
            " (gpubroker dev --jupyter --setup 'pip install jupyterlab'), or use an image that has it"
        )
        return None
    runtime = Path(os.environ["JUPYTER_RUNTIME_DIR"])
    runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = ["--no-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", f"--ServerApp.root_dir={home}"]
    if os.geteuid() == 0:
        options.append("--allow-root")
    # Its log contains the token, so it is in the private folder, like the other file that contains it.
    with (runtime / "jupyter.log").open("ab") as log:
        return subprocess.Popen([*command, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=home)  # noqa: S603 (ours)


def main() -> int:
    home, checkpoints = Path(os.environ["HOME"]), Path(os.environ["GPUBROKER_CHECKPOINT_DIR"])
    save_interval = float(os.environ.get("GPUBROKER_SAVE_EVERY", "900"))
    stop_event = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop_event.set())
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    number = restore(checkpoints, home)
    _say(f"the home folder was restored from the last save (number {number})" if number else "the home folder is empty")
    last_state = folder_state(home) if number else []
    jupyter = None
    if os.environ.get("GPUBROKER_JUPYTER"):
        jupyter = _start_jupyter(home)
        if jupyter is None:
            return _NO_JUPYTER
    _say("the session is open")
    status, due = 0, time.monotonic() + save_interval
    while not stop_event.wait(min(save_interval, _QUICK)):
        if time.monotonic() >= due:
            number, last_state = _save_if_changed(home, checkpoints, number, last_state)
            due = time.monotonic() + save_interval
        if jupyter is not None and jupyter.poll() is not None:
            _say(f"jupyter has ended with status {jupyter.returncode}; its log is {os.environ['JUPYTER_RUNTIME_DIR']}")
            status = jupyter.returncode or 1
            break
    if jupyter is not None:
        jupyter.terminate()
        try:
            jupyter.wait(_QUICK)
        except subprocess.TimeoutExpired:
            jupyter.kill()
    _save_if_changed(home, checkpoints, number, last_state)
    return status


def _save_if_changed(
    home: Path, checkpoints: Path, number: int, last_state: list[tuple[str, int, int, int]]
) -> tuple[int, list[tuple[str, int, int, int]]]:
    """Save the folder if it has changed; returns the number of the newest saved folder, and its state."""
    state = folder_state(home)
    if state == last_state:
        return number, last_state
    try:
        save(home, checkpoints, number + 1)
    except OSError as error:
        _say(f"the home folder could not be saved: {error}")
        return number, last_state
    _say(f"the home folder is saved (number {number + 1})")
    return number + 1, state


if __name__ == "__main__":
    sys.exit(main())
