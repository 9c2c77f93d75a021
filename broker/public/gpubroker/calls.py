"""Function calls as jobs: how a call is packed for a node, and how its result is read.

A node may be anybody's machine, so a result is data: JSON and NumPy arrays. A pickle, which could run code here, is
loaded only if the caller trusts the machine. An exception comes back as its own class only if Python itself has it.
"""

from __future__ import annotations

import base64
import builtins
import inspect
import json
import pickle
import re
import shlex
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree, ignore_patterns
from types import ModuleType
from typing import Any

from broker.cli.render.errors import CONTROL
from broker.core.errors import BrokerError, InvalidInput, Malformed
from gpubroker import run_call
from gpubroker._part_check import PARTS

FOLDER = ".gpubroker-call"
"""Where a call is in the working folder of its job; a job with this file mount is a call."""
RESULT_FILES = f"{run_call.RESULT}*"
_MAX_JSON = 256_000_000  # bytes
_PYTHON = ".".join(map(str, sys.version_info[:2]))


class RemoteError(BrokerError):
    """What a function raised on its machine. ``type``: its class, with its module; ``traceback``: as text."""

    def __init__(self, message: str, *, type: str = "", traceback: str = "", where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.type = type
        self.traceback = traceback
        if traceback:
            self.add_note(f"On the machine:\n{traceback}")


class NoResult(BrokerError):
    """A job has no result to give: it was cancelled, waits for a person, failed outside of the function, or the result
    is a pickle and the caller does not trust the machine."""


def check_function(function: Callable[..., Any]) -> None:
    """Raises `InvalidInput` for functions that return no value by being called."""
    for is_kind, kind, advice in (
        (inspect.iscoroutinefunction, "a coroutine function", "wrap it: `lambda: asyncio.run(f())`"),
        (inspect.isgeneratorfunction, "a generator function", "return a list instead of yielding"),
        (inspect.isasyncgenfunction, "an async generator function", "return a list instead of yielding"),
    ):
        if is_kind(function):
            raise InvalidInput(f"{_name(function)} is {kind}, which cannot be called on a machine", hint=advice)


def check_arguments(function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Raises `InvalidInput` if the function does not take these arguments."""
    try:
        inspect.signature(function).bind(*arguments)
    except ValueError:  # a function of C without a signature
        return
    except TypeError as error:
        raise InvalidInput(
            f"{_name(function)} cannot be called with {len(arguments)} arguments: {error}",
            hint="keywords are for the job; give those of the function with `functools.partial`",
        ) from error


def job_keys(function: Callable[..., Any], folder: Path) -> dict[str, Any]:
    """The keys of a job that runs the call packed into ``folder``."""
    own, names = [sys.executable], [f"python{_PYTHON}", "python3", "python"]
    in_environment = sys.prefix != sys.base_prefix  # which has the packages that the function needs
    pythons = [*own, *names] if in_environment else [*names, *own]
    version_check = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    run = (
        f"for python in {shlex.join(pythons)}; do\n"
        f'  "$python" -c {shlex.quote(version_check)} 2>/dev/null && exec "$python" -u {FOLDER}/run_call.py\n'
        "done\n"
        f'echo "gpubroker: the function was pickled with Python {_PYTHON}, and this machine has '
        f'$(python3 --version 2>&1); use an image with Python {_PYTHON}, or install it in setup:" >&2\n'
        "exit 1\n"
    )
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", _name(function)).strip("-._")[:63] or "function"
    return {"name": name, "run": run, "file_mounts": {FOLDER: str(folder)}}


def pack(function: Callable[..., Any], calls: Sequence[Sequence[Any]], folder: Path, workdir: Path | None) -> None:
    """Write a function, its arguments in each call, and what runs it into a folder. Modules of this machine that are
    not installed packages are pickled, too, except those in ``workdir``, which goes to the node. Raises
    `InvalidInput` that names what cannot be pickled."""
    import cloudpickle

    with _local_modules_by_value(workdir):
        content = _dump(function, function, _dependencies(function))
        arguments = [
            _dump(tuple(call), function, {f"argument {n}": part for n, part in enumerate(call, 1)}) for call in calls
        ]
    (folder / "function.pkl").write_bytes(content)
    (folder / "arguments.pkl").write_bytes(pickle.dumps(arguments))
    (folder / "run_call.py").write_bytes(Path(run_call.__file__).read_bytes())
    copytree(Path(cloudpickle.__file__).parent, folder / "cloudpickle", ignore=ignore_patterns("__pycache__"))


def _name(function: Callable[..., Any]) -> str:
    inner = getattr(function, "func", function)  # of functools.partial
    return str(getattr(inner, "__name__", type(inner).__name__)).strip("<>")


def _dump(value: object, function: Callable[..., Any], parts: Mapping[str, object]) -> bytes:
    """The pickle. Raises `InvalidInput` that names the first of the ``parts`` that cannot be pickled."""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:  # whatever its own code raises
        culprit = next((f" ({name}, {type(part).__name__})" for name, part in parts.items() if not _pickles(part)), "")
        message = f"this call of {_name(function)}{culprit} cannot be pickled: {error}"
        hint = "create it inside the function, or pass what it is made from, such as a path"
        raise InvalidInput(message, where="submit", hint=hint) from error


def _pickles(value: object) -> bool:
    import cloudpickle

    try:
        return bool(cloudpickle.dumps(value))
    except Exception:  # noqa: BLE001  # whatever its own code raises
        return False


def _dependencies(function: Callable[..., Any]) -> Mapping[str, object]:
    """The variables of its surroundings that a function uses."""
    try:
        used = inspect.getclosurevars(function)
    except (TypeError, ValueError):  # not a function of Python
        return {}
    return {f"its variable {name}": value for name, value in {**used.globals, **used.nonlocals}.items()}


_registering = threading.RLock()  # cloudpickle has one list for the whole process


@contextmanager
def _local_modules_by_value(workdir: Path | None) -> Iterator[None]:
    import cloudpickle

    with _registering:
        local = [module for module in list(sys.modules.values()) if _is_local(module, workdir)]
        added = [module for module in local if module.__name__ not in cloudpickle.list_registry_pickle_by_value()]
        for module in added:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in added:
                cloudpickle.unregister_pickle_by_value(module)


def _is_local(module: object, workdir: Path | None) -> bool:
    file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    if not isinstance(module, ModuleType) or not isinstance(file, str) or not file.endswith(".py"):
        return False
    path, package = Path(file).resolve(), module.__name__.partition(".")[0]
    if {"site-packages", "dist-packages"} & {*path.parts} or package in (*PARTS, "gpubroker", "__main__"):
        return False
    return sys.modules.get(module.__name__) is module and not any(
        path.is_relative_to(folder) for folder in (sysconfig.get_path("stdlib"), workdir) if folder is not None
    )


def has_result(folder: Path) -> bool:
    """Whether a call left its result or its exception."""
    return (folder / f"{run_call.RESULT}.json").exists()


def value_of(folder: Path, job: str, *, trust: bool) -> Any:
    """The result that a call left in ``folder``. Raises what the function raised, `RemoteError`, `NoResult` for a
    pickle without ``trust``, and `Malformed`."""
    raised, value, kind = None, None, None
    try:
        file = folder / f"{run_call.RESULT}.json"
        if file.stat().st_size > _MAX_JSON or any(entry.is_symlink() for entry in folder.iterdir()):
            raise ValueError("it is larger than 256 MB, or a link")
        document = json.loads(file.read_bytes())
        if "error" in document:
            raised = _exception(document["error"], folder, job)
        elif "value" in document:
            value = _decode(document["value"], folder)
        else:
            kind = str(document["pickle"])
    except (OSError, EOFError, ValueError, LookupError, TypeError, MemoryError, RecursionError) as error:
        raise Malformed(
            f"the result of {job} cannot be read: {error}", hint="`job.fetch(FOLDER)` has its files"
        ) from error
    if raised is not None:
        raise raised
    if kind is None:
        return value
    if not trust:
        raise NoResult(
            f"the result of {job} is a pickle, not data: {document.get('because', kind)!s:.200}",
            hint="`result(trust=True)` loads it, which runs any code that its machine put there; or return numbers, "
            "text, lists, dicts and NumPy arrays, and write other files to $GPUBROKER_OUTPUT_DIR",
        )
    try:
        return pickle.loads((folder / f"{run_call.RESULT}.pkl").read_bytes())  # noqa: S301  # the caller trusts it
    except Exception as error:
        hint = "import here what it is made of"
        raise NoResult(f"the pickle of {job}, {kind:.80}, cannot be loaded: {error}", hint=hint) from error


def _decode(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_decode(item, folder) for item in value]
    if not isinstance(value, dict):
        return value
    if "$" not in value:
        return {key: _decode(item, folder) for key, item in value.items()}
    kind = value["$"]
    if kind == "dict":
        return {_decode(key, folder): _decode(item, folder) for key, item in value["items"]}
    if kind == "bytes":
        return base64.b64decode(value["base64"], validate=True)
    if kind == "array":
        import numpy

        return numpy.load(folder / f"{run_call.RESULT}-{int(value['number'])}.npy", allow_pickle=False)
    return run_call.SEQUENCES[kind](_decode(item, folder) for item in value["items"])


def _exception(error: dict[str, Any], folder: Path, job: str) -> Exception:
    """The exception of a call: of a class of Python itself, with the traceback as its cause; else `RemoteError`."""
    kind, text, trace = (CONTROL.sub("?", str(error[name])) for name in ("type", "text", "traceback"))
    hint = ""
    if error["stage"] == "load":
        hint = "install what it imports there, with `setup` or in the image; or give your code as `workdir`"
    remote = RemoteError(f"{kind}: {text}", type=kind, traceback=trace, where=job, hint=hint)
    found = getattr(builtins, kind, None) if error["stage"] == "call" else None
    if not (isinstance(found, type) and issubclass(found, Exception)):
        return remote
    try:
        arguments = _decode(error["arguments"], folder)
        raised = found(*(CONTROL.sub("?", part) if isinstance(part, str) else part for part in arguments))
    except Exception:  # noqa: BLE001  # its class takes other arguments
        return remote
    raised.__cause__ = remote
    return raised
