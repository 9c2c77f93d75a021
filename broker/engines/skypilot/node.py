"""The commands for a node: prepare the agent (setup) and start it (run). Pure.

Both are bash scripts for the image's default user; nothing needs root. A node needs Python ≥ 3.9 with pip, or uv, and a
reachable package index; without such a Python it uses SkyPilot's.
"""

import shlex
from collections.abc import Sequence

from broker.engines.runfolder.agent_bundle import OBSTORE, requirements

# One folder per attempt, with a folder per rank in it: nodes and attempts may share a home folder.
_FOLDER = ".gpubroker"


def archive_path(key: str) -> str:
    """The path of the agent's file on the node."""
    return f"~/{_FOLDER}/{key}/agent.pyz"


UNTOUCHED_MARK = "/run/gpubroker-untouched"
"""A file that marks a machine that will power off unless it is set up (`sdk.identities`)."""
SET_UP_MARK = "/tmp/gpubroker-set-up"  # noqa: S108 (on a machine of the job's own; whoever could write it runs there)
"""A file that marks a machine whose setup has begun, perhaps before its first boot is complete."""

_SETUP = """\
set -eu
umask 077
: 2>/dev/null > {set_up} || :
if [ -e {untouched} ]; then sudo -n sh -c 'shutdown -c && rm -f {untouched}'; fi
own="$HOME/{folder}/{key}/rank-${{SKYPILOT_NODE_RANK:-${{SKYPILOT_SETUP_NODE_RANK:-0}}}}"
mkdir -p "$own"
found=
for python in python3 python3.13 python3.12 python3.11 python3.10 python3.9 \\
    "${{SKY_RUNTIME_DIR:-$HOME}}/skypilot-runtime/bin/python"; do
  if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    found="$(command -v "$python")"
    break
  fi
done
if [ -z "$found" ]; then
  echo "gpubroker: this machine has no Python 3.9 or newer" >&2
  exit 1
fi
version="$("$found" -c 'import sys; print("%d%02d" % sys.version_info[:2])')"
{pins}
printf '%s\\n' "$requirements" > "$own/requirements.txt"
set -- --require-hashes --only-binary :all: --requirement "$own/requirements.txt"
if "$found" -m pip --version >/dev/null 2>&1; then
  "$found" -m pip install --quiet --disable-pip-version-check --target "$own/lib" --upgrade "$@"
else
  PATH="$HOME/.local/bin:$PATH" uv pip install --quiet --python "$found" --target "$own/lib" "$@"
fi
ln -sf ../agent.pyz "$own/agent.pyz"
printf %s "$found" > "$own/python"
"""

_RUN = """\
rank="${{SKYPILOT_NODE_RANK:-0}}"
own="$HOME/{folder}/{key}/rank-$rank"
exec "$(cat "$own/python")" -I "$own/agent.pyz" --folder {run_folder} --rank "$rank" \\
  --gang "${{SKYPILOT_TASK_ID:-{key}}}" --scratch "$own/scratch"
"""

_ENTER = """own="$HOME/{folder}/{key}/rank-{rank}"; exec "$(cat "$own/python")" -I "$own/agent.pyz" enter \\
  --scratch "$own/scratch" {words}"""


def setup_script(key: str) -> str:
    """Installs obstore for the node's own Python into the attempt's folder. Idempotent."""
    words = ["if", *["elif"] * (len(OBSTORE) - 1)]
    pins = [
        f'{word} [ "$version" -ge {major}{minor:02d} ]; then requirements={shlex.quote(requirements(pin))}'
        for word, ((major, minor), pin) in zip(words, OBSTORE, strict=True)
    ]
    marks = {"untouched": UNTOUCHED_MARK, "set_up": SET_UP_MARK}
    return _SETUP.format(folder=_FOLDER, key=key, **marks, pins="\n".join([*pins, "fi"]))


def power_off_commands(minutes: int) -> list[str]:
    """Commands for the first boot, as root, by which the machine powers off unless it is set up within ``minutes``.

    The setup may begin before them; each side writes its own mark first and then looks for the other's.
    """
    undo = f"if [ -e {SET_UP_MARK} ]; then shutdown -c; rm -f {UNTOUCHED_MARK}; fi"
    return [f"touch {UNTOUCHED_MARK}", f"shutdown -P +{minutes}", undo]


def run_script(key: str, run_folder: str) -> str:
    """Runs the agent."""
    return _RUN.format(folder=_FOLDER, key=key, run_folder=shlex.quote(run_folder))


def enter_script(key: str, rank: int, words: Sequence[str]) -> str:
    """A shell command that enters the command of the agent of that rank, on its node."""
    return _ENTER.format(folder=_FOLDER, key=key, rank=rank, words=shlex.join(words))
