"""Runs the tests in several forked processes: ``pytest --forks 2``.

pytest imports and collects everything once. Then it forks, and each child takes one file after another (in a full run
eight tests of one file, or all tests of an `xdist_group`). In contrast, each worker of pytest-xdist collects everything
itself.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from mmap import mmap
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from traceback import format_exc
from typing import Any

import pytest

from tests.counts import FULL

_PART = 8  # the number of tests of a file that one process takes at once in a full run
Placed = tuple[int, pytest.Item]  # a test, and its number among all, from 1 on
_NUMBER = 4  # bytes of a group's number; read at once, so that only one child gets each number


def run(session: pytest.Session, processes: int) -> bool:
    """Replaces pytest's own loop over the tests; raises like it."""
    if session.testsfailed and not session.config.option.continue_on_collection_errors:
        raise session.Interrupted(f"{session.testsfailed} errors during collection")
    if session.config.option.collectonly:
        return True
    groups = _groups(session.items)
    numbers = _numbers(len(groups))
    running = mmap(-1, _NUMBER * processes)  # the number of the test that each child runs, from 1 on
    if terminal := session.config.pluginmanager.getplugin("terminalreporter"):
        terminal.showfspath = False  # files alternate, so pytest must not print their names
        terminal.flush()
    config: Any = session.config
    config._tmp_path_factory.getbasetemp()  # contains the folders of the children
    children: dict[Connection, int] = {}
    for number in range(processes):
        ours, theirs = Pipe(duplex=False)
        pid = os.fork()
        if not pid:
            for other in (ours, *children):
                other.close()  # only the parent reads: once it has ended, the next report fails
            _work(session, _taken(numbers, groups), _Parent(session.config, theirs, running, number))
        theirs.close()
        children[ours] = pid
    os.close(numbers)
    working = list(children)
    try:
        finished = _listen(
            session, working, lambda connection: _running(session, running, [*children].index(connection))
        )
    finally:
        for connection, pid in children.items():
            connection.close()
            if connection in working:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT)
        for pid in children.values():
            os.waitpid(pid, 0)
    if lost := [item.nodeid for item in session.items if item.nodeid not in finished]:
        raise RuntimeError(f"{len(lost)} tests did not run to their end, the first of them {lost[0]}")
    return True


def _running(session: pytest.Session, running: mmap, number: int) -> str:
    place = int.from_bytes(running[number * _NUMBER : (number + 1) * _NUMBER], "big")
    return session.items[place - 1].nodeid if place else "the first test"


def _groups(items: Sequence[pytest.Item]) -> list[list[Placed]]:
    """The groups of tests that one process takes at once, each test with its number among all, in the order of their
    first tests.
    """
    together: dict[str, list[Placed]] = {}
    for file, tests in groupby(enumerate(items, 1), lambda one: one[1].nodeid.partition("::")[0]):
        for number, (place, item) in enumerate(tests):
            together.setdefault(_group(item, file, number), []).append((place, item))
    return list(together.values())


def _group(item: pytest.Item, file: str, number: int) -> str:
    """The group of a test.

    ``number``: of the test in its file. Each process that runs a part of a file creates the fixtures that the file
    shares.
    """
    if not FULL:
        return file
    group = item.get_closest_marker("xdist_group")
    return str(group.args[0]) if group else f"{file} {number // _PART}"


def _numbers(count: int) -> int:
    """A pipe with the numbers of all groups in order, from which the children read."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)  # all of it must fit in, otherwise this fails
    assert os.write(writing, b"".join(number.to_bytes(_NUMBER, "big") for number in range(count))) == _NUMBER * count
    os.close(writing)
    return reading


def _listen(session: pytest.Session, working: list[Connection], at: Callable[[Connection], str]) -> set[str]:
    """Pass the children's reports to the plugins of this process; returns the tests that have finished.

    ``working``: the children that have not reported their end; ``at``: returns the test that a child runs.
    """
    hook = session.config.hook
    finished: set[str] = set()
    while working:
        for connection in wait(working):
            assert isinstance(connection, Connection)
            try:
                told = connection.recv()
            except EOFError:
                raise RuntimeError(f"a process of tests died in {at(connection)}") from None
            match told:
                case ("ran", nodeid, location, reports):
                    finished.add(nodeid)
                    hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
                    for data in reports:
                        if isinstance(data, dict):
                            report = hook.pytest_report_from_serializable(config=session.config, data=data)
                        else:
                            report = _passed(nodeid, location, *data)
                        hook.pytest_runtest_logreport(report=report)
                    hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
                case ("warning", warning):
                    hook.pytest_warning_recorded.call_historic(kwargs=warning)
                case ("end", trouble):
                    working.remove(connection)
                    if trouble:
                        raise RuntimeError(f"a process of tests broke off in {at(connection)}:\n{trouble}")
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
    return finished


def _passed(nodeid: str, location: Any, when: Any, start: float, stop: float, duration: float) -> pytest.TestReport:
    """The report of a test that passed and printed nothing, of which only these values are sent."""
    return pytest.TestReport(nodeid, location, {}, "passed", None, when, start=start, stop=stop, duration=duration)


class _Parent:
    """The plugin of a child that sends its events to the parent: one message per test."""

    def __init__(self, config: pytest.Config, connection: Connection, running: mmap, number: int) -> None:
        self._config, self._connection, self._running = config, connection, running
        self.number, self.close = number, connection.close
        self._reports: list[Any] = []

    def begins(self, place: int) -> None:
        self._running[self.number * _NUMBER : (self.number + 1) * _NUMBER] = place.to_bytes(_NUMBER, "big")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed and not report.sections and not report.user_properties:
            self._reports.append((report.when, report.start, report.stop, report.duration))
        else:
            hook = self._config.hook
            self._reports.append(hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._connection.send(("ran", nodeid, location, self._reports))
        self._reports = []

    def pytest_warning_recorded(self, warning_message: Any, when: Any, nodeid: str, location: Any) -> None:
        if when != "runtest":
            return  # from before the fork: the parent has it
        warning_message.message = UserWarning(str(warning_message.message))  # others may refer to what cannot be sent
        warning_message.source = None
        warning = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        self._connection.send(("warning", warning))

    def ends(self, trouble: str) -> None:
        with suppress(OSError):
            self._connection.send(("end", trouble))


def _work(session: pytest.Session, groups: Iterator[Sequence[Placed]], parent: _Parent) -> None:
    """Runs groups of tests in a child until none is left; does not return."""
    trouble = ""
    os.register_at_fork(after_in_child=parent.close)  # what a test forks keeps nobody waiting after this process died
    try:
        _become(session.config, parent)
        places = (one for group in groups for one in group)
        following = next(places, None)
        while following is not None:
            place, item = following
            following = next(places, None)
            parent.begins(place)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following and following[1])
    except (KeyboardInterrupt, BrokenPipeError):  # a test may take an interrupt for its own: then the next report fails
        trouble = "interrupted"
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        session._setupstate.teardown_exact(None)
        os._exit(1)
    except BaseException:  # noqa: BLE001  # whatever it is, the parent must hear of it, and its code not run here
        trouble = format_exc()
    finally:
        parent.ends(trouble)
        os._exit(0)


def _become(config: Any, parent: _Parent) -> None:
    """Make this process one that runs tests: it writes nothing, and has its own folders and captured output."""
    name = f"gw{parent.number}"
    config.workerinput = {"workerid": name}  # the name that pytest-xdist uses
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(parent)
    folder = config._tmp_path_factory.getbasetemp() / f"popen-{name}"
    folder.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = folder
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture = lambda in_=False: None  # six times a test, for a terminal that nobody here has


def _taken(numbers: int, groups: Sequence[Sequence[Placed]]) -> Iterator[Sequence[Placed]]:
    while number := os.read(numbers, _NUMBER):
        yield groups[int.from_bytes(number, "big")]
