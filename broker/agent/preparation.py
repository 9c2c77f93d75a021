"""What a machine needs before the command starts: the checkpoint, the job's files, results of other jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

from broker.agent import checkpoints, inputs, source_tree
from broker.agent.environment import Scratch
from broker.agent.formats import Spec
from broker.agent.store import ObjectFolder


class NodePreparation:
    """``beside``: opens a folder beside the job's by its name; None: there are none. ``give_up`` is checked after each
    piece. All steps may be repeated, and raise GaveUp, StoreTrouble (repeat), and OSError if this machine's disk fails.
    """

    def __init__(
        self,
        store: ObjectFolder,
        beside: Callable[[str], ObjectFolder] | None,
        spec: Spec,
        rank: int,
        scratch: Scratch,
        give_up: Callable[[], bool],
    ) -> None:
        self._store, self._beside, self._give_up = store, beside, give_up
        self._spec, self._rank, self._scratch = spec, rank, scratch

    def restore(self) -> checkpoints.RestoreOutcome:
        """Restore the job's newest checkpoint; without one, that of the job from which it resumes. Raises Torn, too."""
        into = self._scratch.checkpoints
        found = checkpoints.restore(self._store, into, self._rank, self._give_up, self._spec.nodes)
        if found.manifest is not None or self._spec.resume_from is None or self._beside is None:
            return found
        job, wanted = self._spec.resume_from
        other, nodes = self._beside(job), self._spec.nodes
        return checkpoints.restore_of_other(other, wanted, into, self._rank, self._give_up, nodes)

    def unpack(self) -> None:
        """Write the job's files into this attempt's own folder. Raises TreeUnusable, too."""
        sources = self._spec.sources
        if sources is None or self._beside is None:
            return
        pool = self._beside(sources.pool)
        for one in sources.trees:
            into = self._scratch.work / Path(one.to).expanduser()
            source_tree.unpack(pool, one.tree, into, self._give_up)

    def fetch_inputs(self) -> None:
        """Fetch the results of other jobs that this one takes. Raises NoInput, too."""
        if self._beside is None:
            return
        for one in self._spec.inputs:
            inputs.fetch(self._beside(one.job), one, self._scratch.inputs / one.to, self._give_up)
