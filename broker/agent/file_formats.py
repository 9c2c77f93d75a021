"""Which formats of checkpoints show by themselves whether one is complete.

Only lengths and ends are read, never the content. So a file that was cut short, or is still being written, is told from
a complete one of its format whatever its size: archives of ``torch.save``, Lightning, NumPy and Keras (zip), tar
archives (NeMo), safetensors, HDF5, ``.npy``, pickles of protocol 4 and later, and JSON.
"""

from __future__ import annotations

import ast
import json
import os
import re
from math import prod
from pathlib import Path
from typing import BinaryIO

from broker.agent.gpubroker_checkpoint import is_unfinished

_TRAINER_FOLDER = re.compile(r"checkpoint-\d+")
_TRAINER_STATE, _TRAINER_ARGUMENTS = "trainer_state.json", "training_args.bin"
_SHARD, _METADATA, _FIRST_SHARD = ".distcp", ".metadata", "__0_"
_LONGEST_HEADER = 100 << 20  # what the library itself accepts of safetensors
_ZIP_END, _END_SIZE, _LONGEST_COMMENT = b"PK\x05\x06", 22, 0xFFFF
_TAR_PLACE, _TAR_END = 257, b"\0" * 1024
_HDF5_END = {0: 40, 1: 44, 2: 28, 3: 28}  # the place of the address of the end, by version, with addresses of 8 bytes
_ITEM = re.compile(r"[<>|=]?([biufcmMSVU])(\d+)(\[\w+\])?")
# Opcodes of pickles that are followed by a length of so many bytes, and by so much content.
_PICKLE_LENGTHS = {0x42: 4, 0x58: 4, 0x8D: 8, 0x8E: 8, 0x95: 8, 0x96: 8}
_UNFRAMED = 3  # the most opcodes of one byte that pickles leave outside of frames


def is_whole(entry: Path) -> bool | None:
    """True if the format shows that the checkpoint is complete, False if it shows that something is missing, None if it
    shows neither. Drafts in a folder say nothing here. Raises OSError if the entry cannot be read or disappears
    meanwhile."""
    if not entry.is_dir():
        return _is_file_whole(entry)
    verdict: bool | None = None
    for place, folders, names in os.walk(entry):
        folder = Path(place)
        folders[:] = [name for name in folders if not is_unfinished(name)]
        if any(name.endswith(_SHARD) for name in names):
            if _METADATA in names:
                verdict = True if folder == entry else verdict
            elif any(name.startswith(_FIRST_SHARD) for name in names):  # this node writes the metadata, at last
                return False
        if any(_is_file_whole(folder / name) is False for name in names if not is_unfinished(name)):
            return False
    return _is_trainer_whole(entry) if verdict is None else verdict


def _is_trainer_whole(entry: Path) -> bool | None:
    if not _TRAINER_FOLDER.fullmatch(entry.name):
        return None
    try:
        state = json.loads((entry / _TRAINER_STATE).read_bytes())
    except FileNotFoundError:
        return False if (entry / _TRAINER_ARGUMENTS).exists() else None
    except ValueError:
        return False
    return True if isinstance(state, dict) and "global_step" in state else None


def _is_file_whole(path: Path) -> bool | None:
    path.lstat()  # raises if it has disappeared
    if not path.is_file():  # a pipe, which waits for a writer, or a dangling link
        return None
    with path.open("rb") as file:
        start = file.read(512)
        size = os.fstat(file.fileno()).st_size
        if path.suffix == ".safetensors":
            return _is_safetensors_whole(file, start[:8], size)
        if start.startswith(b"PK\x03\x04"):
            return _ZIP_END in _end(file, size, _END_SIZE + _LONGEST_COMMENT)
        if start.startswith(b"\x89HDF\r\n\x1a\n"):
            return _is_hdf5_whole(start, size)
        if start.startswith(b"\x93NUMPY"):
            return _is_npy_whole(file, start, size)
        if start[:1] == b"\x80" and start[1:2] in (b"\x04", b"\x05"):
            return _is_pickle_whole(file, size)
        if start[_TAR_PLACE:].startswith(b"ustar"):
            return None if _end(file, size, len(_TAR_END)) == _TAR_END else False
        if path.suffix == ".json" and (first := start.strip()[:1]) in (b"{", b"["):
            return None if _end(file, size, 512).rstrip()[-1:] == (b"}" if first == b"{" else b"]") else False
    return None


def _end(file: BinaryIO, size: int, count: int) -> bytes:
    file.seek(max(0, size - count))
    return file.read()


def _is_safetensors_whole(file: BinaryIO, start: bytes, size: int) -> bool:
    length = int.from_bytes(start, "little")
    file.seek(len(start))
    header = file.read(min(length, _LONGEST_HEADER))
    if len(start) < 8 or len(header) < length:
        return False
    try:
        tensors = json.loads(header)
        ends = [int(tensor["data_offsets"][1]) for name, tensor in tensors.items() if name != "__metadata__"]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return False
    return size >= 8 + length + max(ends, default=0)


def _is_hdf5_whole(start: bytes, size: int) -> bool | None:
    """What is written after the last flush is not known to the file itself, so only a missing part is certain."""
    version = start[8] if len(start) > 8 else -1
    place, width = _HDF5_END.get(version), start[13 if version < 2 else 9 : 14 if version < 2 else 10]
    if place is None or width != b"\x08":
        return None
    base, end = (int.from_bytes(start[at : at + 8], "little") for at in (place - 16, place))
    return False if size < base + end else None


def _is_npy_whole(file: BinaryIO, start: bytes, size: int) -> bool | None:
    width = 2 if start[6:7] == b"\x01" else 4
    data = 8 + width + int.from_bytes(start[8 : 8 + width], "little")
    file.seek(8 + width)
    header = file.read(data - 8 - width)
    if size < data:
        return False
    try:
        about = ast.literal_eval(header.decode("latin-1"))
        item = _ITEM.fullmatch(about["descr"])
        needed = prod(about["shape"]) * int(item[2]) * (4 if item[1] == "U" else 1) if item else 0
    except (ValueError, TypeError, KeyError, SyntaxError):
        return None
    return None if item is None or size > data + needed else size == data + needed


def _is_pickle_whole(file: BinaryIO, size: int) -> bool | None:
    """Pickles consist of frames and large values, each with its length, and of a few opcodes between them."""
    place = 2
    while place < size:
        file.seek(place)
        head = file.read(_UNFRAMED + 9)
        if size - place <= _UNFRAMED:
            return head.endswith(b".")
        gap = next((at for at, code in enumerate(head[: _UNFRAMED + 1]) if code in _PICKLE_LENGTHS), None)
        if gap is None:
            return None
        width = _PICKLE_LENGTHS[head[gap]]
        place += gap + 1 + width + int.from_bytes(head[gap + 1 : gap + 1 + width], "little")
    file.seek(size - 1)
    return place == size and file.read() == b"."
