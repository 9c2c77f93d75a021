"""Slurm's commands as one shell script that answers like the real ones, from files that a test writes.

`queue` has the jobs, a line each; `answers` what the next calls of sbatch do, a line each: ``accept`` or ``refuse``,
and the words with which sbatch then fails (none: it succeeds); `options` has those of the last one. ``away`` lets every
command fail.
"""

from pathlib import Path

import pytest

_SCRIPT = r"""#!/bin/sh
cd "$(dirname "$0")" || exit 1
name=$(basename "$0")
if [ -e away ]; then echo "$name: error: Unable to contact slurm controller (connect failure)" >&2; exit 1; fi
for word in "$@"; do case $word in --job-name=*|--name=*) key=${word#*=};; esac; done
case $name in
scontrol) echo "ClusterName = loop";;
squeue) grep -F "|$key" queue; exit 0;;
scancel) sed 's/|RUNNING|/|CANCELLED|/' queue > next; mv next queue;;
sbatch)
    printf '%s\n' "$@" > options
    read -r act words <<end
$(head -n 1 answers)
end
    sed 1d answers > next; mv next answers
    number=$(($(wc -l < queue) + 17))
    if [ "$act" != refuse ]; then
        echo "$number|$key|RUNNING|2026-03-02T12:00:00|N/A|None|node1" >> queue
        [ -n "$words" ] || echo "$number"
    fi
    [ -z "$words" ] || { echo "sbatch: error: $words" >&2; exit 1; };;
*) exit 1;;
esac
"""


class SlurmStandIn:
    """The commands, in front of the path of this process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        folder.mkdir()
        for name in ("sbatch", "squeue", "scontrol", "scancel", "sacct"):
            (folder / name).write_text(_SCRIPT)
            (folder / name).chmod(0o700)
        (folder / "queue").touch()
        self.answer()
        monkeypatch.setenv("PATH", str(folder), prepend=":")

    def answer(self, *lines: str) -> None:
        """What the next calls of sbatch do; those after them accept."""
        (self.folder / "answers").write_text("".join(f"{line}\n" for line in lines))

    def away(self, away: bool) -> None:
        if away:
            (self.folder / "away").touch()
        else:
            (self.folder / "away").unlink()

    def change(self, state: str, to: str) -> None:
        """All jobs of one state have another from now on."""
        queue = self.folder / "queue"
        queue.write_text(queue.read_text().replace(f"|{state}|", f"|{to}|"))

    @property
    def jobs(self) -> list[str]:
        """The keys of the jobs that Slurm accepted."""
        return [line.split("|")[1] for line in (self.folder / "queue").read_text().splitlines()]
