"""Prepares a machine before the command starts: the checkpoint, the job's files, results of other jobs.

Of the results of another job the newest counts if several attempts wrote a file; those of nodes other than the first
are below ``rank-<k>``. Each file is verified before it gets its final name.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Callable

from broker.agent import checkpoints, source_tree
from broker.agent.checkpoints import Manifest
from broker.agent.download import Torn, WantedFile, fetch_one
from broker.agent.endings import CommandEnd, StopOrder, disk_failure
from broker.agent.entries import FILE, apply_metadata
from broker.agent.formats import ATTEMPTS, BadDocument, WantedInput, attempt_path, rank_of
from broker.agent.outputs import OutputFile, key_of, newest, read_index
from broker.agent.rank import RankContext
from broker.agent.stops import Stops
from broker.agent.store import ObjectFolder


class NodePreparation:
    """``beside``: opens another job's folder by its name; None: there are none.

    ``enter`` receives the name of each phase, ``restored`` the restored checkpoint. All steps stop early if ``stops``
    requires it, may be repeated, and raise GaveUp, StoreTrouble (repeat), and OSError if this machine's disk fails.
    """

    def __init__(
        self,
        context: RankContext,
        beside: Callable[[str], ObjectFolder] | None,
        stops: Stops,
        *,
        enter: Callable[[str], None],
        restored: Callable[[Manifest | None], None],
    ) -> None:
        self._store, self._open_folder, self._stops, self._give_up = context.store, beside, stops, stops.must_end
        self._spec, self._rank = context.spec, context.rank
        self._scratch, self._journal = context.scratch, context.journal
        self._enter, self._restored = enter, restored

    def restore_checkpoint(self) -> CommandEnd | None:
        """Restore the newest checkpoint; the end of the attempt if something prevents the command, else None."""
        self._enter("restoring")
        try:
            stop = self._stops.retry_until_stopped(self._restore) or self._stops.due()
        except OSError as error:
            return disk_failure("the checkpoint cannot be restored", error)
        except checkpoints.TornForOneNode as error:
            stop = StopOrder("machine_lost", f"one node cannot restore {error}")
        except Torn as error:
            job = (self._spec.resume_from or ("",))[0]
            return CommandEnd(None, could_not_start=f"no checkpoint of {job} can be restored: {error}")
        return None if stop is None else CommandEnd(None, stop)

    def unpack_files(self) -> CommandEnd | None:
        """Write the job's files and inputs; returns as `restore_checkpoint`."""
        self._enter("unpacking")
        try:
            stop = (
                self._stops.retry_until_stopped(self._unpack)
                or self._stops.retry_until_stopped(self._fetch_inputs)
                or self._stops.due()
            )
        except OSError as error:
            return disk_failure("the job's files cannot be written", error)
        except (source_tree.TreeUnusable, NoInput) as error:
            return CommandEnd(None, could_not_start=str(error))
        return None if stop is None else CommandEnd(None, stop)

    def _restore(self) -> None:
        """Raises OSError if this machine cannot hold the checkpoint, StoreTrouble if the store stays unreachable, Torn
        if the checkpoint of another job does not verify."""
        outcome = self._newest()
        newest = outcome.manifest
        self._journal.append(
            "restored",
            checkpoint=newest.id if newest else None,
            step=newest.step if newest else None,
            passed_over=[{"checkpoint": name, "because": reason} for name, reason in outcome.passed_over],
        )
        self._restored(newest)

    def _newest(self) -> checkpoints.RestoreOutcome:
        """Restore the job's newest checkpoint; without one, that of the job from which it resumes. Also raises Torn."""
        into = self._scratch.checkpoints
        outcome = checkpoints.restore(self._store, into, self._rank, self._give_up, self._spec.nodes)
        if outcome.manifest is not None or self._spec.resume_from is None or self._open_folder is None:
            return outcome
        job, checkpoint = self._spec.resume_from
        source, nodes = self._open_folder(job), self._spec.nodes
        return checkpoints.restore_from_other_job(source, checkpoint, into, self._rank, self._give_up, nodes)

    def _unpack(self) -> None:
        """Write the job's files into this attempt's own folder. Also raises TreeUnusable."""
        sources = self._spec.sources
        if sources is None or self._open_folder is None:
            return
        pool = self._open_folder(sources.pool)
        for tree in sources.trees:
            into = self._scratch.work / Path(tree.to).expanduser()
            source_tree.unpack(pool, tree.tree, into, self._give_up)

    def _fetch_inputs(self) -> None:
        """Fetch the results of other jobs that are this job's inputs. Also raises NoInput."""
        if self._open_folder is None:
            return
        for wanted in self._spec.inputs:
            fetch(self._open_folder(wanted.job), wanted, self._scratch.inputs / wanted.to, self._give_up)


class NoInput(Exception):
    """The other job has no such result, or no intact one."""


def fetch(store: ObjectFolder, input_spec: WantedInput, into: Path, give_up: Callable[[], bool]) -> int:
    """Fetch the results of one job into the folder, under their own paths; returns their number.

    ``store``: that job's run folder; ``give_up`` is checked after each piece. Raises NoInput, GaveUp, StoreTrouble
    (repeat), OSError if the node's disk fails.
    """
    results = _newest_results(store)
    selected: set[str] = set()
    for pattern in input_spec.paths:
        matching = {path for path in results if _matches(path, pattern)}
        if not matching and not input_spec.may_lack:
            raise NoInput(f"{input_spec.job} has no result {pattern!r}")
        selected |= matching
    for path in sorted(selected):
        if results[path][1].kind == FILE:
            content, file = results[path]
            try:
                fetch_one(store, WantedFile(content, file.path, file.size, file.sha256, into / path), give_up)
            except Torn as error:
                raise NoInput(str(error)) from None
    apply_metadata(into, [replace(results[path][1], path=path) for path in selected])
    return len(selected)


def _newest_results(store: ObjectFolder) -> dict[str, tuple[str, OutputFile]]:
    """The results by path, each with the path of its content."""
    results: list[tuple[str, tuple[str, OutputFile]]] = []
    for attempt in sorted(int(name) for name in store.folders(ATTEMPTS) if name.isdigit()):
        for name in store.files(attempt_path(attempt, "")):
            rank = rank_of(name, "outputs.json")
            if rank is None:
                continue
            try:
                files = read_index(store, attempt_path(attempt, name))
            except BadDocument as error:
                raise NoInput(str(error)) from None
            for file in files:
                key = key_of(file, f"rank-{rank}/" if rank else "")
                results.append((key, (attempt_path(attempt, file.object), file)))
    return newest(results)


def _matches(path: str, pattern: str) -> bool:
    target = pattern[2:] if pattern.startswith("./") else pattern
    target = target.rstrip("/")
    return target in (path, "", ".") or path.startswith(f"{target}/") or fnmatchcase(path, target)
