"""Empty SQLite stores. All migrations run once per test process; every store of a test is a copy of that file."""

import tempfile
from functools import cache
from pathlib import Path

from broker.core.values.clock import SystemClock
from broker.store import open_store


def empty_store(path: Path) -> str:
    """Create an empty store in a new file; returns its URL.

    Migrations would take twenty times as long, and are tested in `tests/store`. Raises `FileExistsError` if the file
    exists.
    """
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(_migrated())
    return f"sqlite:///{path}"


@cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "store.db"
        open_store(f"sqlite:///{file}", clock=SystemClock()).close()  # closed, all of it is in this file
        assert [one.name for one in Path(folder).iterdir()] == [file.name]
        return file.read_bytes()
