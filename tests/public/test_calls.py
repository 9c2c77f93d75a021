"""A packed call, run as a node runs it, in a process of its own without gpubroker; and how its result is read."""

import functools
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from gpubroker import Error, InvalidInput, NoResult, RemoteError
from gpubroker.calls import FOLDER, has_result, job_keys, pack, value_of

OFFSET = 10


def add(a: int, b: int) -> int:
    return a + b + OFFSET


class OwnError(Exception):
    def __init__(self, code: int, lock: object) -> None:
        super().__init__(f"code {code}")
        self.lock = lock


def fail_with(kind: str) -> None:
    match kind:
        case "builtin":
            raise ValueError("too \x1b[31mhigh", 3)
        case "errno":
            raise FileNotFoundError(2, "No such file", "data.csv")
        case "own":
            raise OwnError(5, threading.Lock())
        case "decode":
            b"\xff".decode()
        case "exit":
            sys.exit(3)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    """Runs a call, and returns the folder with what it left."""

    def run(function: Callable[..., Any], *arguments: object, python: str = "", **variables: str) -> Path:
        work, outputs = tmp_path / "work", tmp_path / "outputs"
        packed = work / FOLDER
        packed.mkdir(parents=True)
        outputs.mkdir()
        pack(function, [arguments], packed, None)
        command = [sys.executable, f"{FOLDER}/run_call.py"] if not python else ["bash", "-c", python]
        environment = {"PATH": os.environ["PATH"], "GPUBROKER_OUTPUT_DIR": str(outputs), **variables}
        subprocess.run(command, cwd=work, env=environment, check=False, capture_output=True)
        return outputs

    return run


VALUES = [
    None, True, 3, 2.5, float("inf"), "text \ud800", b"\x00\xff", [1, [2]], (1, "a"), {"a": {"b": ()}},
    {1: "x", (2,): "y"}, {"$": "dict"}, {1, 2}, frozenset({"a"}),
]  # fmt: skip


def test_results_come_back_as_they_were(run: Callable[..., Path]) -> None:
    assert value_of(run(lambda: VALUES), "job", trust=False) == VALUES


def test_arrays_and_numbers_of_numpy_come_back_without_pickles(run: Callable[..., Path]) -> None:
    outputs = run(lambda: {"loss": np.float32(0.5), "steps": np.int64(3), "weights": [np.arange(3), np.eye(2)]})
    found = value_of(outputs, "job", trust=False)
    assert (found["loss"], type(found["steps"])) == (0.5, int)
    assert found["weights"][1].tolist() == [[1, 0], [0, 1]]
    assert sorted(file.suffix for file in outputs.iterdir()) == [".json", ".npy", ".npy"]


@pytest.mark.parametrize(
    "function",
    [add, functools.partial(add, b=2), lambda a, b: add(a, b), (1).__add__],
    ids=["def", "partial", "lambda", "C"],
)
def test_functions_of_any_form_are_called_with_the_globals_that_they_use(
    run: Callable[..., Path], function: Callable[..., Any]
) -> None:
    arguments = (1,) if not isinstance(function, type(add)) else (1, 2)
    assert value_of(run(function, *arguments), "job", trust=False) in (13, 2)


def test_another_result_is_a_pickle_that_is_loaded_only_with_trust(run: Callable[..., Path]) -> None:
    outputs = run(lambda: {"model": Path("x")})
    with pytest.raises(NoResult, match=r"result\['model'\] is pathlib\.PosixPath") as caught:
        value_of(outputs, "job", trust=False)
    assert "trust=True" in caught.value.hint
    assert value_of(outputs, "job", trust=True) == {"model": Path("x")}


@pytest.mark.parametrize(
    "function", [lambda: (i for i in range(3)), lambda: threading.Lock()], ids=["generator", "lock"]
)
def test_a_result_that_nothing_can_carry_is_told(run: Callable[..., Path], function: Callable[..., Any]) -> None:
    with pytest.raises(RemoteError, match="neither JSON data nor can be pickled"):
        value_of(run(function), "job", trust=False)


def test_exceptions_of_python_come_back_as_themselves_with_the_traceback(
    run: Callable[..., Path],
) -> None:
    with pytest.raises(ValueError, match=r"too \?\[31mhigh") as caught:
        value_of(run(fail_with, "builtin"), "job", trust=False)
    assert caught.value.args[1] == 3
    assert isinstance(caught.value.__cause__, RemoteError)
    assert "in fail_with" in caught.value.__cause__.traceback


@pytest.mark.parametrize(
    ("kind", "raised", "message"),
    [
        ("errno", FileNotFoundError, "data.csv|No such file"),
        ("decode", UnicodeDecodeError, "invalid start byte"),
        ("own", RemoteError, "OwnError: code 5"),
        ("exit", RemoteError, "SystemExit: 3"),
    ],
)
def test_other_exceptions_come_back_as_text(
    run: Callable[..., Path], kind: str, raised: type[Exception], message: str
) -> None:
    with pytest.raises(raised, match=message):
        value_of(run(fail_with, kind), "job", trust=False)


def test_modules_of_this_machine_go_along_and_installed_ones_do_not(
    run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, name in (("mine", "my_helper"), ("site-packages", "some_package")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text("def double(x): return 2 * x\n")
        monkeypatch.syspath_prepend(tmp_path / folder)
    import my_helper  # type: ignore[import-not-found]  # written above
    import some_package  # type: ignore[import-not-found]

    local, installed = my_helper.double, some_package.double
    assert value_of(run(local, 4), "job", trust=False) == 8
    for file in (tmp_path / "work", tmp_path / "outputs"):
        file.rename(tmp_path / f"{file.name}-1")
    with pytest.raises(RemoteError, match="No module named 'some_package'") as caught:
        value_of(run(installed, 4), "job", trust=False)
    assert "setup" in caught.value.hint


def test_another_version_of_python_is_refused_with_what_to_do(run: Callable[..., Path], tmp_path: Path) -> None:
    other = tmp_path / "bin"
    other.mkdir()
    for name in ("python", "python3", f"python3.{sys.version_info.minor}"):
        (other / name).write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.8.1; exit 1\n')
        (other / name).chmod(0o755)
    script = job_keys(add, tmp_path)["run"].replace(sys.executable, "python")
    outputs = run(add, 1, 2, python=script, PATH=f"{other}:{os.environ['PATH']}")
    assert not has_result(outputs)
    done = subprocess.run(
        ["bash", "-c", script], env={"PATH": f"{other}:/bin:/usr/bin"}, capture_output=True, text=True
    )
    assert (done.returncode, "this machine has Python 3.8.1" in done.stderr) == (1, True)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["EVIL"],)


@pytest.mark.parametrize(
    "document",
    [
        "", "[1", "3", "{}", '{"value": {"$": "os.system", "items": []}}', '{"value": {"$": "array", "number": 0}}',
        '{"value": {"$": "array", "number": "../x"}}', '{"value": {"$": "dict", "items": [[[], 1]]}}', "[" * 100_000,
        '{"error": {"stage": "call", "type": "ValueError"}}', '{"error": 5}',
    ],
)  # fmt: skip
def test_what_a_hostile_machine_left_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: str
) -> None:
    monkeypatch.setenv("EVIL", str(tmp_path / "ran"))
    (tmp_path / "gpubroker-result-0.npy").write_bytes(pickle.dumps(Evil()))
    (tmp_path / "gpubroker-result.pkl").write_bytes(pickle.dumps(Evil()))
    (tmp_path / "gpubroker-result.json").write_text(document)
    with pytest.raises(Error):
        value_of(tmp_path, "job", trust=False)
    assert not (tmp_path / "ran").exists()


def test_a_hostile_machine_can_name_no_class_to_raise(tmp_path: Path) -> None:
    for kind in ("SystemExit", "KeyboardInterrupt", "eval", "os.system", "print"):
        error = {"stage": "call", "type": kind, "arguments": ["x"], "text": "x", "traceback": ""}
        (tmp_path / "gpubroker-result.json").write_text(json.dumps({"error": error}))
        with pytest.raises(RemoteError):
            value_of(tmp_path, "job", trust=False)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('{"value": 1}')
    (tmp_path / "result").mkdir()
    (tmp_path / "result" / "gpubroker-result.json").symlink_to(tmp_path / "secret")
    with pytest.raises(Error, match="a link"):
        value_of(tmp_path / "result", "job", trust=False)


def test_what_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(InvalidInput, match=r"its variable lock, lock.*cannot pickle"):
        pack(lambda: lock, [()], tmp_path, None)
    with pytest.raises(InvalidInput, match=r"argument 2, generator"):
        pack(add, [(1, (i for i in "x"))], tmp_path, None)


def test_pickling_changes_nothing_for_others(tmp_path: Path) -> None:
    import cloudpickle

    module = ModuleType("mine")
    module.__file__ = str(tmp_path / "mine.py")
    sys.modules["mine"] = module
    try:
        pack(add, [(1, 2)], tmp_path, None)
    finally:
        del sys.modules["mine"]
    assert not cloudpickle.list_registry_pickle_by_value()
