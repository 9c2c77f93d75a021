"""One rank of one attempt, from its claim to ``exit.json``.

::

    claim ─▶ restore ─▶ setup ─▶ run ──▶ last checkpoint ─▶ exit.json
      │         └─────────┴───────┴─▶ stop (notice, SIGTERM, lease, another rank): SIGTERM, grace, SIGKILL ─▲
      └─▶ lost: another machine runs the attempt; exit without writing
    a standby: claim ─▶ setup ─▶ wait for the handover ─▶ restore ─▶ run …
    at any moment: a newer attempt exists ─▶ kill the command, write nothing more

Every event arrives as a message in one inbox. The agent supervises the command even while it waits for the store.

The time to stop is paid for, too. The hold covers three times the spec's ``grace`` after ``paid_until``: one share for
the command to save and exit, one to upload the checkpoint, one for ``exit.json``. A step that begins early may use the
time left by earlier steps. No step continues past the end of its share, nor does the upload of a job that ended by
itself. A share is at least one second of wall-clock time: processes do not run faster on a fast sandbox clock.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pkgutil
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Callable

from broker.agent import access, claims, metadata, notices, rendezvous
from broker.agent.access import NodeAccess
from broker.agent.claims import Claim, is_predecessor_dead, write_record
from broker.agent.clock import to_text, wall_now
from broker.agent.command import Command, CommandFiles
from broker.agent.endings import CommandEnd, StopOrder, disk_failure
from broker.agent.entry import NewerAttempt, claim, read_lease, read_spec, retry_while_unreachable
from broker.agent.environment import Scratch, job_environment
from broker.agent.formats import Exit, Lease, attempt_path, rank_document
from broker.agent.journal import AttemptJournal
from broker.agent.mailbox import NodeMailbox
from broker.agent.masking import Mask
from broker.agent.names import escape_unprintable
from broker.agent.notices import NoticeTime, PreemptionNotice
from broker.agent.output import last_lines
from broker.agent.outputs import Outputs
from broker.agent.preparation import NodePreparation
from broker.agent.promise import CheckpointPromise
from broker.agent.rank import RankContext
from broker.agent.running_command import record_guard
from broker.agent.saver import Saver
from broker.agent.scan import Renames, Scanner, open_writers
from broker.agent.served import TokenWatch
from broker.agent.session import SessionWatch
from broker.agent.stops import CommandMessage, Fenced, Inbox, PeerEnded, Stops
from broker.agent.store import ObjectFolder, StoreTrouble, to_bytes
from broker.agent.supervised_command import SupervisedCommand

log = logging.getLogger("gpubroker-agent")
_CREDENTIALS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_CLIENT_SECRET")

# Exit statuses of the agent itself, if it does not return the command's.
INTERRUPTED, CLAIM_LOST, FENCED, FOLDER_OUT_OF_REACH = 143, 79, 80, 75


@dataclass(frozen=True)
class JobFolders:
    """The job's run folder and those of other jobs.

    ``beside``: opens one of these by its name; may raise StoreTrouble. ``key``: with which spec and lease are signed
    (`broker.agent.signatures`). ``access``: the folders' credentials, if the broker provides them.
    """

    own: ObjectFolder
    beside: Callable[[str], ObjectFolder] | None = None
    key: str | None = None
    access: NodeAccess | None = None


class Attempt:
    """``keep_open``: file descriptors that the guards hold while any process of the job is alive."""

    def __init__(
        self,
        folders: JobFolders,
        attempt: int,
        rank: int,
        gang: str,
        scratch: Scratch,
        keep_open: Sequence[int] = (),
    ) -> None:
        self._folders = folders
        self._store, self._number, self._rank, self._gang = folders.own, attempt, rank, gang
        self._scratch, self._keep_open = scratch, keep_open
        self._umask = os.umask(0o077)  # the agent's files are private; the command gets its original umask
        self._inbox = Inbox()
        self._session = -1
        self._began = to_text(wall_now())
        self._commands = 0
        self._gang_claims: list[Claim] = []
        self._watch: SessionWatch | None = None
        self._tokens: TokenWatch | None = None

    def run(self) -> int:
        """Run the attempt; the exit status of the agent."""
        signal.signal(signal.SIGTERM, lambda *_: self._inbox.put(StopOrder("preempted", "SIGTERM", by_signal=True)))
        signal.signal(signal.SIGINT, lambda *_: self._inbox.put(StopOrder("preempted", "SIGINT", by_signal=True)))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._scratch.make()
        try:
            self._spec = retry_while_unreachable(
                lambda: read_spec(self._store, self._number, self._folders.key), 600.0, self._inbox.wait_for_message
            )
            self._mask = Mask(os.environ.get(name, "") for name in (*_CREDENTIALS, *self._spec.secrets))
            log.addFilter(self._hide)
            self._clock = self._spec.clock
            self._share = max(self._spec.grace, 1.0)
            self._own = claims.make_claim(self._rank, self._gang, self._clock)
            lease = retry_while_unreachable(
                lambda: read_lease(self._store, self._number, self._folders.key),
                self._spec.intervals.patience,
                self._inbox.wait_for_message,
            )
            holder = retry_while_unreachable(
                lambda: claim(self._store, self._number, self._own),
                self._spec.intervals.patience,
                self._inbox.wait_for_message,
            )
        except StoreTrouble as error:
            log.error("the run folder is out of reach: %s", error)
            return FOLDER_OUT_OF_REACH
        except NewerAttempt:
            log.error("a newer attempt of the job exists; nothing to do here")
            return FENCED
        if holder is not None:
            log.error("attempt %d is run by %s (pid %d); nothing to do here", self._number, holder.host, holder.pid)
            if is_predecessor_dead(holder, self._scratch, self._spec.intervals.mail):
                self._report_death(holder)
            return CLAIM_LOST
        self._record()
        self._open(lease)
        try:
            ending = self._work()
            return self._finish(ending)
        except NewerAttempt:
            log.error("a newer attempt of the job exists; stopped, nothing more is written")
            self._saver.abandon()
            self._outputs.abandon()
            self._mailbox.stop()
            self._record(cause="fenced")
            return FENCED
        except StoreTrouble as error:
            log.error("the run folder is out of reach: %s", error)
            return FOLDER_OUT_OF_REACH

    def _hide(self, record: logging.LogRecord) -> bool:
        """Mask secrets in a message of the agent itself, as engines keep its output."""
        record.msg, record.args = self._mask.text(record.getMessage()), ()
        return True

    # --- before the command -----------------------------------------------------------------------------------------

    def _record(self, cause: str | None = None) -> None:
        identity = {"at": to_text(self._own.at), "wall": self._began, "grace": self._spec.grace}
        write_record(self._scratch, identity, None if cause is None else (to_text(self._clock.now()), cause))

    def _report_death(self, predecessor: Claim) -> None:
        """Write ``exit.json`` for a dead predecessor, unless it wrote its own."""
        evidence = f"the agent (pid {predecessor.pid}) died and was started again"
        ending = to_bytes(Exit("agent_died", self._clock.now(), evidence=evidence).to_json())
        path = attempt_path(self._number, rank_document("exit.json", self._rank))
        with contextlib.suppress(StoreTrouble):
            patience = self._spec.intervals.patience
            if retry_while_unreachable(
                lambda: self._store.create(path, ending), patience, self._inbox.wait_for_message
            ):
                log.error("%s; it is reported", evidence)

    def _open(self, lease: Lease) -> None:
        """Start all threads that run during the command."""
        spec, store, scratch = self._spec, self._store, self._scratch
        journal = attempt_path(self._number, "journal.json") if self._rank == 0 else None
        self._journal = AttemptJournal(store, journal, self._clock, self._mask)
        self._journal.append("claimed", host=self._own.host, knows_standbys=True)
        self._context = RankContext(store, spec, self._rank, scratch, self._journal, self._mask)
        self._mailbox = NodeMailbox(
            self._context,
            lease,
            lambda: self._inbox.put(Fenced()),
            lambda rank, ending: self._inbox.put(PeerEnded(rank, ending)),
            self._folders.key,
            self._renew_access,
        )
        scanner = Scanner(
            scratch.checkpoints,
            lambda: open_writers(scratch.checkpoints),
            Renames(scratch.checkpoints).since_last,
            spec.intervals.quiet,
        )
        sources = [*notices.from_variable(), *metadata.sources(self._clock.now)]
        self._notice_time = NoticeTime(sources, self._journal)
        self._saver = Saver(
            self._context,
            scanner,
            self._mailbox.fenced,
            lambda: self._inbox.put(Fenced()),
            self._notice_time.record_upload,
        )
        self._promise = CheckpointPromise(
            spec.every if self._rank == 0 else None,
            spec.intervals.promise,
            self._clock,
            self._journal,
            lambda: self._saver.has_saved,
            scanner.unsaved,
        )
        self._saver.looked = self._promise.look
        self._outputs = Outputs(self._context, self._scratch.work)
        self._mailbox.saved_step = lambda: self._saver.step
        self._stops = Stops(self._inbox, spec, self._mailbox, self._journal)
        self._preparation = NodePreparation(
            self._context, self._folders.beside, self._stops, enter=self._enter, restored=self._saver.start
        )
        notices.watch(spec.intervals.notice, sources, self._on_notice)
        self._mailbox.start(min(10.0, spec.intervals.patience))

    def _enter(self, phase: str) -> None:
        self._mailbox.phase = phase

    def _renew_access(self) -> None:
        """Take renewed credentials of the run folder in time. Raises StoreTrouble."""
        credentials, key = self._folders.access, self._folders.key
        if credentials is None or key is None or not credentials.needs_renewal():
            return
        try:
            document = self._store.read_json(attempt_path(self._number, access.FILE))
            if document is not None:
                credentials.renew(document, key)
        except ValueError as error:
            log.warning("%s", error)

    def _on_notice(self, notice: PreemptionNotice) -> None:
        self._stops.tell_notice(notice.source, notice.terminates_at)
        if not notice.warning:
            self._inbox.put(StopOrder("preempted", f"notice from {notice.source}", notice.terminates_at))

    # --- the command ------------------------------------------------------------------------------------------------

    def _work(self) -> CommandEnd:
        """From gathering the gang to the end of the command, or to the first event that prevents it."""
        restore, unpack = self._preparation.restore_checkpoint, self._preparation.unpack_files
        adopt, start = self._outputs.adopt, self._outputs.start
        steps: list[Callable[[], CommandEnd | None]] = [restore, unpack, adopt, start, self._set_up]
        if self._mailbox.lease.standby:  # it prepares all that it can, and saves nothing before its turn
            steps = [unpack, adopt, self._set_up, self._await_turn, start, restore]
        for step in (self._gather, *steps):
            ending = step()
            if ending is not None:
                return ending
        return self._run_command()

    def _await_turn(self) -> CommandEnd | None:
        """Wait until the broker hands the job over; the stop if one comes before."""
        self._journal.append("stands_by")
        self._mailbox.phase = "standing by"
        while self._mailbox.lease.standby:
            message = self._stops.next(float("inf"))
            if isinstance(message, Fenced):
                raise NewerAttempt
            stop = self._stops.stop_from(message)
            if stop is not None:
                return CommandEnd(None, stop)
        return None

    def _gather(self) -> CommandEnd | None:
        spec, stop = self._spec, self._stops.due()
        if stop is None:
            gang = claims.gather(
                self._store,
                self._number,
                spec.nodes,
                time.monotonic() + spec.intervals.patience,
                spec.intervals.mail,
                self._stops.must_end,
            )
            self._gang_claims = [gang[rank] for rank in sorted(gang)]
            stop = self._stops.due()
        if stop is None and len(self._gang_claims) < spec.nodes and self._inbox.empty():
            stop = StopOrder("machine_lost", rendezvous.absence(spec, self._gang_claims))
        return None if stop is None else CommandEnd(None, stop)

    def _set_up(self) -> CommandEnd | None:
        """Run the job's setup; the end of the attempt if it fails."""
        spec, scratch = self._spec, self._scratch
        try:
            for name in ("gpubroker_checkpoint.py", *(["gpubroker_session.py"] if spec.session else [])):
                (scratch.library / name).write_bytes(pkgutil.get_data(__package__, name) or b"")
        except OSError as error:
            return disk_failure("the job's library cannot be written", error)
        addresses = [claim.address for claim in self._gang_claims]
        self._environment = job_environment(spec, self._rank, addresses, scratch, os.environ)
        if spec.serving_ports and self._rank == 0:
            self._tokens = TokenWatch(spec.serving_ports, self._clock, self._journal, spec.intervals.metrics)
        if not spec.setup:
            return None
        self._mailbox.phase = "setup"
        setup = self._follow(spec.setup, self._environment)
        return replace(setup, during="setup") if setup.stop or setup.could_not_start or setup.status else None

    def _run_command(self) -> CommandEnd:
        self._mailbox.phase = "running"
        try:
            return self._follow(self._spec.command, self._environment, started=self._command_started)
        finally:
            if self._watch is not None:
                self._watch.stop()
            if self._tokens is not None:
                self._tokens.stop()

    def _command_started(self, command: Command) -> None:
        self._journal.append("command_started")
        self._promise.start()
        if self._tokens is not None:
            self._tokens.start()
        if self._spec.session is not None and self._rank == 0:
            self._watch = SessionWatch(self._spec, self._scratch, self._clock, command.guard, self._inbox.put)

    def _follow(
        self, script: str, environment: dict[str, str], started: Callable[[Command], None] = lambda _: None
    ) -> CommandEnd:
        """Run a script until it ends or the attempt must stop."""
        folder = self._scratch.work
        if not folder.is_dir():
            return CommandEnd(None, could_not_start=f"there is no folder {folder} on this machine")
        self._commands += 1
        number = self._commands
        # Not as an argument: all users of the machine can read the arguments of all processes.
        text = self._scratch.script(number)
        try:
            text.write_bytes(script.encode("utf-8", "surrogateescape"))
        except OSError as error:
            return disk_failure("the job's script cannot be written", error)
        self._saver.go_on()
        command = Command(
            ["bash", str(text)],
            environment=environment,
            folder=folder,
            files=CommandFiles(self._scratch.output, self._scratch.root, self._scratch.witness),
            umask=self._umask,
            tell=lambda message: self._inbox.put(CommandMessage(number, message)),
            keep_open=self._keep_open,
        )
        record_guard(self._scratch.root, command.guard, folder)

        def on_session(pid: int) -> None:
            self._session = pid
            started(command)

        def on_stop() -> None:
            self._mailbox.phase = "stopping"
            if self._tokens is not None:
                self._tokens.hurry()

        supervised = SupervisedCommand(
            command,
            number,
            self._spec,
            self._clock,
            self._stops,
            upload=lambda: self._notice_time.upload,
            on_session=on_session,
            on_exit=self._saver.hold,
            on_stop=on_stop,
        )
        try:
            return supervised.run_to_end()
        finally:
            command.kill()

    # --- after the command ------------------------------------------------------------------------------------------

    def _finish(self, command_end: CommandEnd) -> int:
        """Save finished checkpoints and outputs, then write the attempt's end; returns the agent's exit status."""
        spec = self._spec
        self._mailbox.phase = "saving"
        wait = self._share if command_end.stop else spec.intervals.patience
        if command_end.stop and command_end.stop.terminates_at:
            left = self._clock.wall_seconds_until(command_end.stop.terminates_at)
            wait = max(0.0, min(wait, left - min(2.0, left / 10)))  # exit.json must be written in time, too
        latest, told = time.monotonic() + wait, command_end.stop is not None

        def deadline() -> float:
            """The end of uploading (monotonic).

            If the lease is extended meanwhile, so is the end; a stop leaves the grace.
            """
            nonlocal latest, told
            if self._mailbox.lease.stop and not told:
                latest, told = min(latest, time.monotonic() + self._share), True
            paid_until = self._mailbox.lease.paid_until
            if paid_until is None:
                return latest
            return min(latest, time.monotonic() + self._mailbox.seconds_until(paid_until) + 2 * self._share)

        self._saver.finish(killed=not command_end.clean, hurry=command_end.stop is not None, deadline=deadline)
        self._promise.look(ended=True)
        if command_end.stop is None:
            latest = time.monotonic() + wait  # the same time again
        self._outputs.finish(deadline)
        if self._rank == 0 and command_end.clean and command_end.stop is None:
            command_end = self._await_peers(command_end)
        lines = last_lines(self._scratch.output, mask=self._mask)
        if command_end.stop is None and command_end.status:
            output = last_lines(self._scratch.output, 50, self._mask)
            lines = [*lines, *rendezvous.connection_report(spec, self._rank, self._gang_claims, output)]
        cause, status, evidence = command_end.cause(lines, self._saver.unsaved)
        last = self._saver.last.id if self._saver.last else None
        ending = Exit(
            cause,
            self._clock.now(),
            status,
            escape_unprintable(self._mask.text(evidence)),
            self._mailbox.step()[0],
            last,
        )
        sent = self._mailbox.close(ending, max(deadline(), time.monotonic() + min(self._share, 5.0)))
        if not sent:
            log.error("the run folder did not accept exit.json: %s", ending)
        self._record(cause=ending.cause)
        self._delete_uploaded(output=sent)
        if ending.cause == "completed":
            return 0
        return ending.exit_status if command_end.stop is None and ending.exit_status else INTERRUPTED

    def _delete_uploaded(self, *, output: bool) -> None:
        """Delete from this machine what is in the run folder; ``output``: also what was printed, which may have values
        of secrets."""
        for file in (self._scratch.output, self._scratch.progress) if output else ():
            file.unlink(missing_ok=True)
        if not self._saver.unsaved:
            shutil.rmtree(self._scratch.checkpoints, ignore_errors=True)
        if not self._outputs.unsaved:
            shutil.rmtree(self._scratch.outputs, ignore_errors=True)
            if self._spec.sources is not None:
                shutil.rmtree(self._scratch.work, ignore_errors=True)

    def _await_peers(self, command_end: CommandEnd) -> CommandEnd:
        """Wait for the other ranks: rank 0 ends last, and the attempt ends with it."""
        if self._spec.nodes > 1:
            self._mailbox.phase = "waiting for the other ranks"
        while len(self._stops.peers) < self._spec.nodes - 1:
            message = self._stops.next(float("inf"))
            if isinstance(message, Fenced):
                raise NewerAttempt
            stop = self._stops.stop_from(message)
            if stop is not None:
                return replace(command_end, stop=stop, clean=False)
        return command_end
