"""What every engine promises (`broker.core.ports.Engine`), as a suite, with real processes.

An engine's own test file subclasses `EngineContract`, names the registered engine that it tests, and defines a bench::

    class TestLocal(EngineContract):
        plugin = "local"

        @pytest.fixture
        def bench(self, tmp_path):
            return Bench(make=lambda: Local(tmp_path / "home", SystemClock()), placement=…, …)
"""

import json
import os
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pytest

from broker.agent.formats import Lease
from broker.core.errors import BrokerError
from broker.core.events.outcomes import Cause
from broker.core.market.capacity import ListsMachines
from broker.core.ports import EngineState, Launch, Observation
from broker.engines.runfolder.runfolder import RunFolder
from tests.agent.node import alive
from tests.contracts.engine_bench import NEEDS, SECONDS, Bench, eventually, lines


class EngineContract:
    """Subclass it, set ``plugin``, and define the fixture ``bench``."""

    plugin: ClassVar[str]

    def test_it_has_its_registered_name(self, bench: Bench) -> None:
        assert bench.engine.name == self.plugin

    def test_it_says_what_it_can_do(self, bench: Bench) -> None:
        assert bench.engine.honours <= NEEDS, f"honours what no job needs: {bench.engine.honours - NEEDS}"
        assert isinstance(bench.engine.remote, bool)

    def test_what_it_does_not_know_is_lost_and_harms_nobody(self, bench: Bench) -> None:
        for stranger in ("never-seen", "../../etc", ""):
            assert bench.look(stranger).state is EngineState.LOST
            bench.engine.cancel(stranger)
        assert bench.engine.find("never-seen") is None

    def test_what_it_lists_is_what_runs_and_can_be_ended(self, bench: Bench) -> None:
        engine = bench.engine
        assert isinstance(engine, ListsMachines)
        launch = replace(bench.launch("exec sleep 300"), store="0123456789ab")
        handle = engine.submit(launch)
        bench.until(handle, EngineState.UP)
        found = [one for one in engine.machines() if one.key == launch.key]
        assert len(found) == 1
        listed = found[0]
        assert (listed.handle, listed.store) == (handle, "0123456789ab")
        assert listed.since is not None
        bench.make().end(handle)  # type: ignore[attr-defined]  # it lists machines, as asserted

        def gone() -> bool:
            bench.look(handle)
            return all(one.key != launch.key for one in engine.machines())

        eventually(gone, "it is listed no more")
        engine.end(handle)

    def test_a_job_runs_its_snapshot_whatever_became_of_the_folder(self, bench: Bench) -> None:
        project = bench.folder / "project"
        (project / "src").mkdir(parents=True)
        (project / "src" / "words.txt").write_text("as submitted\n")
        sources = bench.brought(project)
        (project / "src" / "words.txt").write_text("edited\n")
        (project / "src").rename(bench.folder / "elsewhere")
        mark = bench.mark()
        command = f"cat src/words.txt > {shlex.quote(str(mark))}; pwd >> {shlex.quote(str(mark))}; echo > new"
        for _ in range(2):
            launch = bench.launch(command, sources=sources)
            bench.until(bench.engine.submit(launch), EngineState.GONE)
            assert bench.ending(launch).cause is Cause.COMPLETED, bench.ending(launch).evidence
            words, folder = lines(mark)
            assert words == "as submitted"
            assert not Path(folder).is_relative_to(project)
        assert not (project / "new").exists()

    def test_what_is_cancelled_at_once_is_gone_at_once(self, bench: Bench) -> None:
        handle = bench.engine.submit(bench.launch("exec sleep 300"))
        bench.engine.cancel(handle)
        assert not bench.until(handle, EngineState.GONE).interrupted

    def test_a_job_runs_to_its_end(self, bench: Bench) -> None:
        before = bench.clock.now()
        launch = bench.launch("echo one; echo two >&2; umask")
        assert bench.engine.find(launch.key) is None, "found before it was submitted"
        handle = bench.engine.submit(launch)
        assert bench.engine.find(launch.key) == handle
        gone = bench.until(handle, EngineState.GONE)
        assert gone.since is not None, "billed from nowhere"
        assert gone.gone_at is not None, "billed for ever"
        for at in (gone.since, gone.gone_at):
            assert at.utcoffset() == timedelta(0), f"{at!r} is not in UTC"
        assert before <= gone.since <= gone.gone_at <= bench.clock.now()
        assert not gone.interrupted, "ended by itself, called an interruption"
        assert gone.evidence, "gone without a word"
        assert bench.ending(launch).cause is Cause.COMPLETED
        own = os.umask(0o022)
        os.umask(own)
        assert bench.printed(launch) == ["one", "two", f"{own:04o}"]
        assert bench.engine.find(launch.key) == handle, "forgot what it ran"
        assert bench.look(handle).gone_at == gone.gone_at, "the end of the bill moves"

    def test_what_waits_costs_nothing_and_the_bill_starts_once(self, bench: Bench) -> None:
        """In a queue no machine exists; once a machine is reported, the start of its bill does not change."""
        handle = bench.engine.submit(bench.launch("sleep 0.2"))
        told: list[Observation] = []

        def gone() -> bool:
            told.append(bench.look(handle))
            return told[-1].state is EngineState.GONE

        eventually(gone, "it is gone")
        for one in told:
            if one.state is EngineState.QUEUED:
                assert one.since is None, "billed while it waits in a queue"
            if one.state is EngineState.UP:
                assert one.since is not None, "up, and billed from nowhere"
        starts = [one.since for one in told if one.since is not None]
        assert len(set(starts)) == 1, f"the start of the bill moves: {sorted(set(starts))}"
        billed = [one.since is not None for one in told]
        assert billed == sorted(billed), "billed, and then not"

    def test_a_failure_is_not_an_interruption(self, bench: Bench) -> None:
        launch = bench.launch("exit 3")
        gone = bench.until(bench.engine.submit(launch), EngineState.GONE)
        assert not gone.interrupted
        assert bench.ending(launch).exit_status == 3

    def test_submitting_again_runs_nothing_again(self, bench: Bench) -> None:
        mark = bench.mark()
        launch = bench.launch(f"echo ran >> {mark}; sleep 0.2")
        handle = bench.engine.submit(launch)
        assert bench.engine.submit(launch) == handle
        assert bench.make().submit(launch) == handle, "a broker that was restarted launches another machine"
        gone = bench.until(handle, EngineState.GONE)
        assert bench.engine.submit(launch) == handle
        assert bench.look(handle) == gone, "a machine that is gone comes up again"
        assert lines(mark) == ["ran"]

    def test_submitting_at_the_same_time_runs_one(self, bench: Bench) -> None:
        mark = bench.mark()
        launch = bench.launch(f"echo ran >> {mark}; sleep 0.2")
        with ThreadPoolExecutor(4) as pool:
            handles = set(pool.map(lambda _: bench.make().submit(launch), range(4)))
        assert len(handles) == 1, f"one key, handles {handles}"
        bench.until(handles.pop(), EngineState.GONE)
        assert lines(mark) == ["ran"]

    def test_one_look_covers_every_handle(self, bench: Bench) -> None:
        ended = bench.engine.submit(bench.launch("true"))
        runs = bench.engine.submit(bench.launch("exec sleep 60"))
        bench.until(ended, EngineState.GONE)
        bench.until(runs, EngineState.UP)
        seen = bench.make().observe([ended, "never-seen", runs])
        assert {handle: one.state for handle, one in seen.items()} == {
            ended: EngineState.GONE,
            "never-seen": EngineState.LOST,
            runs: EngineState.UP,
        }
        assert seen[runs].since is not None
        assert seen[runs].gone_at is None
        assert bench.engine.observe([]) == {}
        bench.engine.cancel(runs)
        bench.until(runs, EngineState.GONE)

    def test_cancel_ends_it_with_time_to_save(self, bench: Bench) -> None:
        mark = bench.mark()
        launch = bench.launch(
            f"trap 'echo saved >> {mark}; exit 0' TERM; echo up >> {mark}; while :; do sleep 0.02; done"
        )
        handle = bench.engine.submit(launch)
        eventually(lambda: lines(mark) == ["up"], "the command runs")
        RunFolder(bench.runs_url, launch.key.removesuffix("-1")).write_lease(1, Lease(stop="cancelled_by_user"))
        bench.make().cancel(handle)
        bench.engine.cancel(handle)
        gone = bench.until(handle, EngineState.GONE)
        assert list(dict.fromkeys(lines(mark))) == ["up", "saved"]  # told once or twice: by its engine and by the agent
        assert not gone.interrupted, "cancelled by us, called an interruption"
        assert bench.ending(launch).cause is Cause.CANCELLED_BY_USER
        bench.engine.cancel(handle)
        assert bench.look(handle) == gone

    def test_cancel_returns_while_the_job_still_saves(self, bench: Bench) -> None:
        """The job can finish saving only after the call: if the engine waits for its end, it waits until the job is
        killed, and nothing was saved.
        """
        mark, go = bench.mark(), bench.mark()
        saves = f"until [ -e {go} ]; do sleep 0.02; done; echo saved >> {mark}; exit 0"
        command = f"trap '{saves}' TERM; echo up >> {mark}; while :; do sleep 0.02; done"
        launch = bench.launch(command, grace=SECONDS)
        handle = bench.engine.submit(launch)
        eventually(lambda: lines(mark) == ["up"], "the command runs")
        RunFolder(bench.runs_url, launch.key.removesuffix("-1")).write_lease(1, Lease(stop="cancelled_by_user"))
        bench.engine.cancel(handle)
        go.touch()
        bench.until(handle, EngineState.GONE)
        assert lines(mark)[1:] == ["saved"], "it was given no time to save, or `cancel` waited for its end"

    def test_nothing_of_the_job_outlives_the_machine(self, bench: Bench) -> None:
        mark = bench.mark()
        launch = bench.launch(
            f"setsid sleep 300 & echo $! >> {mark}; (sleep 300 & echo $! >> {mark}); trap '' TERM; wait"
        )
        handle = bench.engine.submit(launch)
        pids = [int(line) for line in eventually(lambda: lines(mark) if len(lines(mark)) == 2 else None, "it runs")]
        bench.engine.cancel(handle)
        assert not bench.until(handle, EngineState.GONE).interrupted, "cancelled by us, called an interruption"
        assert not [pid for pid in pids if alive(pid)], "left behind"

    def test_an_interruption_is_told_as_one(self, bench: Bench) -> None:
        handle = bench.doomed_one()
        bench.take_away(handle)
        gone = bench.until(handle, EngineState.GONE)
        assert gone.interrupted, f"taken back, and told as {gone}"
        assert gone.evidence

    def test_values_and_commands_arrive_as_they_are_and_execute_nothing_else(self, bench: Bench) -> None:
        executed, seen, printed = bench.mark(), bench.mark(), bench.mark()
        nasty = {
            "QUOTES": """it's "quoted" and `ticked` \\ back\\\\slashed, 100% !history {brace,s} ~ # [g]l*b?""",
            "SHELL": f"$(touch {executed}) `touch {executed}` ; touch {executed} & | touch {executed} $PATH ${{IFS}}",
            "LINES": f"first\nsecond\r\n\tthird; touch {executed}\n\n",
            "WORLD": "grüße 你好 🚀 \u202e",
            "LEADING": "-n  --help=%s,A=B,ALL ",
            "LARGE": "0123456789abcdef" * 6400,  # 100 kB
            "EMPTY": "",
        }
        secret = {f"SECRET_{name}": value for name, value in nasty.items()} if "secrets" in bench.engine.honours else {}
        wanted = {**nasty, **secret}
        look = f"import json, os; print(json.dumps({{name: os.environ.get(name) for name in {sorted(wanted)!r}}}))"
        text = "".join(nasty.values())
        command = (
            f"printf %s {shlex.quote(text)} > {shlex.quote(str(printed))}\n"
            f"{shlex.quote(sys.executable)} -c {shlex.quote(look)} > {shlex.quote(str(seen))}"
        )
        launch = bench.launch(command, secrets=secret, envs=nasty)
        bench.until(bench.engine.submit(launch), EngineState.GONE)
        assert seen.exists(), "\n".join(bench.printed(launch))
        arrived = json.loads(seen.read_text())
        assert [name for name in wanted if arrived[name] != wanted[name]] == []
        assert printed.read_bytes() == text.encode(), "the command is another"
        assert not executed.exists(), "something in a value was executed"

    def test_secrets_reach_the_command_and_lie_nowhere(self, bench: Bench) -> None:
        secret = "s3cr3t-" + "x" * 20
        launch = bench.launch('echo ${#TOKEN}; echo "failed with $TOKEN"; exit 1', secrets={"TOKEN": secret})
        bench.until(bench.engine.submit(launch), EngineState.GONE)
        assert bench.printed(launch) == [str(len(secret)), f"failed with {'*' * len(secret)}"]
        assert bench.ending(launch).evidence == f"exit status 1; failed with {'*' * len(secret)}"
        assert secret not in repr(launch)
        spilled = [path for path in bench.folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
        assert not spilled, f"a secret lies in {spilled}"

    def test_what_it_keeps_is_private(self, bench: Bench) -> None:
        handle = bench.engine.submit(bench.launch("true"))
        bench.until(handle, EngineState.GONE)
        for path in bench.folder.iterdir():
            assert not (path.is_dir() and path.stat().st_mode & 0o077), f"others may look into {path}"

    def test_another_place_over_the_same_store_concludes_nothing(self, bench: Bench) -> None:
        """For engines whose machines belong to one home; the others have no ``another_home``."""
        if bench.another_home is None:
            return
        launch = bench.launch("exec sleep 300")
        handle = bench.engine.submit(launch)
        bench.until(handle, EngineState.UP)
        other = bench.another_home()
        seen = other.observe([handle, "never-seen"])
        assert seen[handle].state is EngineState.ELSEWHERE, f"another home says {seen[handle]}"
        assert seen[handle].evidence
        assert seen["never-seen"].state is EngineState.LOST
        assert other.find(launch.key) is None, "found in a home where it is not"
        other.cancel(handle)
        assert bench.look(handle).state is EngineState.UP, "ended from another home"
        bench.engine.cancel(handle)
        bench.until(handle, EngineState.GONE)

    def test_a_key_that_is_no_plain_name_is_refused(self, bench: Bench) -> None:
        launch = bench.launch("true")
        for key in ("../escape", "a b", "x" * 41, ""):
            with pytest.raises(BrokerError):
                bench.engine.submit(Launch(key, launch.job, launch.placement, launch.run_folder))
