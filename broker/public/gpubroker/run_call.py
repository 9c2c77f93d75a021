"""Runs a function that was pickled elsewhere, and writes down its result or its exception. Needs only Python.

Started on the node from the folder that `gpubroker.calls.pack` filled; runs one call, that of ``GPUBROKER_TASK_INDEX``.
Results are JSON and, for NumPy arrays, .npy files without pickles; anything else is pickled and marked as such. In the
JSON, a dict with the key ``$`` stands for a value that JSON lacks.
"""

import base64
import json
import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

RESULT = "gpubroker-result"
SEQUENCES = {"tuple": tuple, "set": set, "frozenset": frozenset}


class NotData(Exception):
    """A value that has no form in JSON."""


def main() -> int:
    """Returns the exit status."""
    here, outputs = Path(__file__).parent, Path(os.environ["GPUBROKER_OUTPUT_DIR"])
    sys.path.insert(0, str(Path.cwd()))  # modules of the working folder
    task = int(os.environ.get("GPUBROKER_TASK_INDEX", "0"))
    stage = "load"
    try:
        # The submitter's own code: this is the machine that it was sent to.
        calls = pickle.loads((here / "arguments.pkl").read_bytes())  # noqa: S301  # from who submitted the job
        function = pickle.loads((here / "function.pkl").read_bytes())  # noqa: S301  # as above
        arguments = pickle.loads(calls[task])  # noqa: S301  # as above
        stage = "call"
        value = function(*arguments)
        stage = "result"
        document = _result(value, outputs)
    except BaseException as error:  # noqa: BLE001  # also sys.exit: whoever waits for the result is told
        traceback.print_exc()
        _write(outputs, {"error": _describe(error, stage)})
        return 1
    _write(outputs, document)
    return 0


def _result(value: Any, outputs: Path) -> dict[str, Any]:
    arrays: list[Any] = []
    try:
        encoded = encode(value, arrays)
        json.dumps(encoded)
    except (NotData, ValueError, RecursionError) as reason:
        import cloudpickle

        try:
            content = cloudpickle.dumps(value)
        except Exception as error:  # noqa: BLE001  # whatever its own code raises
            message = (
                f"the function returned {_type_name(value)}, which is neither JSON data nor can be pickled: {error}"
            )
            raise TypeError(message) from None
        (outputs / f"{RESULT}.pkl").write_bytes(content)
        return {"pickle": _type_name(value), "because": str(reason)}
    for number, array in enumerate(arrays):
        sys.modules["numpy"].save(outputs / f"{RESULT}-{number}.npy", array, allow_pickle=False)
    return {"value": encoded}


def encode(value: Any, arrays: list[Any], at: str = "result") -> Any:
    """The value in JSON; its NumPy arrays are put into ``arrays``. Raises NotData."""
    kind, numpy = type(value), sys.modules.get("numpy")
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [encode(item, arrays, f"{at}[{place}]") for place, item in enumerate(value)]
    if kind is dict:
        if all(type(key) is str for key in value) and "$" not in value:
            return {key: encode(item, arrays, f"{at}[{key!r}]") for key, item in value.items()}
        pairs = [[encode(key, arrays, at), encode(item, arrays, f"{at}[{key!r}]")] for key, item in value.items()]
        return {"$": "dict", "items": pairs}
    if kind in SEQUENCES.values():
        return {"$": kind.__name__, "items": [encode(item, arrays, f"{at}[{n}]") for n, item in enumerate(value)]}
    if kind is bytes:
        return {"$": "bytes", "base64": base64.b64encode(value).decode()}
    if numpy is not None and isinstance(value, numpy.generic) and type(value.item()) in (bool, int, float, str):
        return value.item()
    if numpy is not None and kind is numpy.ndarray and not value.dtype.hasobject:
        arrays.append(value)
        return {"$": "array", "number": len(arrays) - 1}
    raise NotData(f"{at} is {_type_name(value)}")


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _describe(error: BaseException, stage: str) -> dict[str, Any]:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # whatever its own code raises
        text = "its text cannot be made"
    try:
        arguments = encode(list(error.args), [])
        json.dumps(arguments)
    except (NotData, ValueError, RecursionError):
        arguments = [text]
    return {
        "stage": stage,
        "type": _type_name(error),
        "arguments": arguments,
        "text": text,
        "traceback": "".join(traceback.format_exception(error)),
    }


def _write(outputs: Path, document: dict[str, Any]) -> None:
    draft = outputs / f".{RESULT}.tmp"
    draft.write_text(json.dumps(document))
    draft.replace(outputs / f"{RESULT}.json")


if __name__ == "__main__":
    sys.exit(main())
