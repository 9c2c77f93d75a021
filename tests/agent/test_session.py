"""When a session is idle: the rule, and what each sign says."""

import pytest

from broker.agent.formats import SessionSpec
from broker.agent.processes import ProcessInfo
from broker.agent.running_command import EnteredProgram
from broker.agent.session import SessionIdleness, Sign, Use, cpu_sign, gpu_sign, kernel_sign, visitor_sign

IDLE, BUSY, UNKNOWN = (Sign("CPU", use) for use in (Use.IDLE, Use.BUSY, Use.UNKNOWN))


def over(rule: SessionSpec, looks: list[tuple[float, list[Sign]]], longest_gap: float = 60) -> list[str | None]:
    session = SessionIdleness(rule, 0)
    return [session.over(signs, at, longest_gap=longest_gap) for at, signs in looks]


def test_it_is_over_once_every_sign_was_idle_for_so_long() -> None:
    told = over(SessionSpec(idle=100), [(50, [IDLE]), (99, [IDLE]), (100, [IDLE])])
    assert told == [None, None, "no sign of use for 2 min: CPU idle"]


def test_one_busy_sign_is_enough_and_begins_the_time_anew() -> None:
    told = over(SessionSpec(idle=100), [(50, [IDLE, BUSY]), (110, [IDLE]), (149, [IDLE]), (150, [IDLE])])
    assert [one is None for one in told] == [True, True, True, False]


def test_what_cannot_be_read_counts_as_use_but_not_for_ever() -> None:
    looks = [(float(at), [IDLE, UNKNOWN]) for at in range(50, 501, 50)]
    assert over(SessionSpec(idle=100), looks) == [None] * 10
    told = over(SessionSpec(idle=100, at_most=300), looks)
    assert [one is None for one in told] == [True] * 5 + [False] * 5
    assert told[5] == "no sign of use for 5 min; CPU could not be read"


def test_the_idle_time_begins_when_a_sign_can_be_read_again() -> None:
    rule = SessionSpec(idle=100, at_most=1000)
    told = over(rule, [(50, [UNKNOWN]), (100, [UNKNOWN]), (150, [IDLE]), (199, [IDLE]), (200, [IDLE])])
    assert [one is None for one in told] == [True, True, True, True, False]


def test_a_time_in_which_nobody_looked_is_not_idle() -> None:
    assert over(SessionSpec(idle=100), [(50, [IDLE]), (1000, [IDLE]), (1050, [IDLE])]) == [None, None, None]


def test_without_a_limit_it_goes_on() -> None:
    assert over(SessionSpec(idle=None), [(float(at), [IDLE]) for at in range(0, 5000, 50)]) == [None] * 100


def tree(*rows: tuple[int, int, str]) -> dict[int, ProcessInfo]:
    return {pid: ProcessInfo(pid, parent, name, 0.0) for pid, parent, name in rows}


PYTHON = (10, 1, "python3")
SSHD = [(11, 10, "sshd"), (12, 11, "sshd")]


@pytest.mark.parametrize(
    ("below", "use"),
    [
        ([*SSHD, (13, 12, "bash")], Use.IDLE),
        ([*SSHD, (13, 12, "bash"), (14, 13, "sleep")], Use.BUSY),
        ([*SSHD, (13, 12, "python3")], Use.BUSY),
        ([*SSHD, (13, 12, "sftp-server")], Use.IDLE),
        ([(11, 10, "sleep")], Use.BUSY),
        ([(11, 10, "zsh"), (12, 11, "bash")], Use.IDLE),
        ([], Use.IDLE),
    ],
)
def test_a_shell_that_waits_is_no_use_and_any_other_program_is(below: list[tuple[int, int, str]], use: Use) -> None:
    visitor = EnteredProgram(10, "1", moved=500)
    assert visitor_sign([visitor], tree(PYTHON, *below), {10: 500}, 60, {}).use is use


def test_a_program_of_somebody_who_left_is_no_sign_of_a_visitor() -> None:
    assert visitor_sign([], tree(PYTHON, (11, 10, "sleep")), {}, 60, {}).use is Use.IDLE


@pytest.mark.parametrize(("moved", "use"), [(500 + 6000, Use.IDLE), (500 + 6001, Use.BUSY)])
def test_bytes_over_the_connection_are_use_above_what_keeps_it_open(moved: int, use: Use) -> None:
    assert visitor_sign([EnteredProgram(10, "1", moved=moved)], tree(PYTHON), {10: 500}, 60, {}).use is use


@pytest.mark.parametrize(("ago", "use"), [(59.0, Use.BUSY), (61.0, Use.IDLE)])
def test_typing_is_use(ago: float, use: Use) -> None:
    beside = EnteredProgram(10, "1", terminal="/dev/pts/1")
    assert visitor_sign([beside], tree(PYTHON, (11, 10, "bash")), {}, 60, {10: ago}).use is use


@pytest.mark.parametrize(("came", "use"), [(None, Use.IDLE), (59.0, Use.BUSY), (61.0, Use.IDLE)])
def test_a_short_visit_is_use_although_nobody_is_there_any_more(came: float | None, use: Use) -> None:
    assert visitor_sign([], tree(PYTHON), {}, 60, {}, came).use is use


def test_cpu() -> None:
    assert cpu_sign({1: 5.0}, {1: 5.9}, 10).use is Use.IDLE
    assert cpu_sign({1: 5.0}, {1: 5.5, 2: 0.5}, 10).use is Use.BUSY, "a new process's time counts, too"
    assert cpu_sign({1: 5.0}, {}, 10).use is Use.UNKNOWN, "a job has processes"


def test_gpus() -> None:
    assert gpu_sign(0, None) is None
    found = [gpu_sign(1, percent) for percent in (None, 4.9, 5.0)]
    assert [one.use for one in found if one] == [Use.UNKNOWN, Use.IDLE, Use.BUSY]


@pytest.mark.parametrize(
    ("states", "use"),
    [(None, Use.UNKNOWN), ([], Use.IDLE), (["idle"], Use.IDLE), (["idle", "busy"], Use.BUSY), (["starting"], Use.BUSY)],
)
def test_jupyter_kernels(states: list[str] | None, use: Use) -> None:
    assert kernel_sign(states).use is use
