"""Whether a checkpoint's own format shows that it is complete: by files that are written last, or by a stated length.

- ``*.distcp`` of torch.distributed.checkpoint are complete with ``.metadata`` beside them, which is written last.
- ``checkpoint-500`` of the Hugging Face Trainer is complete with its ``trainer_state.json``, which is written last.
- Zip archives, which `torch.save` and Lightning write, end with their directory; safetensors begin with their length.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

_TRAINER_FOLDER = re.compile(r"checkpoint-\d+")
_TRAINER_STATE, _TRAINER_ARGUMENTS = "trainer_state.json", "training_args.bin"
_SHARD, _METADATA = ".distcp", ".metadata"
_ZIP, _ZIP_END, _END_SIZE, _LONGEST_COMMENT = b"PK\x03\x04", b"PK\x05\x06", 22, 0xFFFF
_LONGEST_HEADER = 100 << 20  # what the library itself accepts of safetensors


def is_whole(entry: Path) -> bool | None:
    """True if the format shows that the checkpoint is complete, False if it shows that something is missing, None if it
    shows neither. Raises OSError if the entry cannot be read or disappears meanwhile."""
    if not entry.is_dir():
        return _file(entry)
    found: bool | None = None
    for place, _, names in os.walk(entry):
        folder = Path(place)
        if any(name.endswith(_SHARD) for name in names):
            if _METADATA not in names:
                return False
            found = True if folder == entry else found
        if any(_file(folder / name) is False for name in names):
            return False
    return _trainer(entry) if found is None else found


def _trainer(entry: Path) -> bool | None:
    if not _TRAINER_FOLDER.fullmatch(entry.name):
        return None
    try:
        state = json.loads((entry / _TRAINER_STATE).read_bytes())
    except FileNotFoundError:
        return False if (entry / _TRAINER_ARGUMENTS).exists() else None
    except ValueError:
        return False
    return True if isinstance(state, dict) and "global_step" in state else None


def _file(path: Path) -> bool | None:
    with path.open("rb") as file:
        start = file.read(8)
        size = os.fstat(file.fileno()).st_size
        if path.suffix == ".safetensors":
            return _safetensors(file.read(min(int.from_bytes(start, "little"), _LONGEST_HEADER)), start, size)
        if not start.startswith(_ZIP):
            return None
        file.seek(max(0, size - _END_SIZE - _LONGEST_COMMENT))
        return _ZIP_END in file.read()


def _safetensors(header: bytes, start: bytes, size: int) -> bool:
    length = int.from_bytes(start, "little")
    if len(start) < 8 or len(header) < length:
        return False
    try:
        about = json.loads(header)
        ends = [int(one["data_offsets"][1]) for name, one in about.items() if name != "__metadata__"]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return False
    return size >= 8 + length + max(ends, default=0)
