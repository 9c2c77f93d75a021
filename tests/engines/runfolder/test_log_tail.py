"""Output as it comes to the run folder: each line once, in order, whatever the pieces are cut into."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from broker.agent.output import OutputUploader
from broker.agent.store import ObjectFolder, StoreTrouble
from broker.core.errors import Unreachable
from broker.engines.runfolder.runfolder import OutputTail, RunFolder


class Patchy(ObjectFolder):
    """A store that does not answer every read."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.away = 0

    def read(self, path: str, most: int | None = None) -> bytes | None:
        self.away -= 1
        if self.away == 0:
            raise StoreTrouble("away")
        return super().read(path, most)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path.as_uri(), "j")
    made._store = Patchy()
    return made


def uploader(folder: RunFolder, file: Path, keep: int = 4 << 20) -> OutputUploader:
    return OutputUploader(folder._store, 1, 0, file, keep)


@given(printed=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=30)), cut=st.data())
def test_every_line_comes_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, printed: list[str], cut: st.DataObject
) -> None:
    place = tmp_path_factory.mktemp("run")
    folder = RunFolder((place / "runs").as_uri(), "j")
    folder._store = Patchy()
    output, text = place / "output.log", "".join(f"{line}\n" for line in printed).encode()
    up, reader, seen = uploader(folder, output), OutputTail(folder, 1), []
    while text:
        count = cut.draw(st.integers(1, len(text)))
        with output.open("ab") as file:
            file.write(text[:count])
        text = text[count:]
        up.upload()
        seen += list(reader.new())
    assert seen == printed
    assert reader.last() == []


def test_only_what_grows_is_read_again_and_a_last_line_without_an_end_comes_last(
    folder: RunFolder, tmp_path: Path
) -> None:
    output = tmp_path / "output.log"
    output.write_bytes(b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 30_000 + b"half a li")
    up, reader = uploader(folder, output), OutputTail(folder, 1)
    up.upload()
    assert len(list(reader.new())) == 30_001
    assert list(reader.new()) == []
    with output.open("ab") as file:
        file.write(b"ne\nand a")
    up.upload()
    assert list(reader.new()) == ["half a line"]
    assert reader.last() == ["and a"]
    assert reader.last() == []


def test_what_is_no_longer_kept_is_said(folder: RunFolder, tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    output.write_bytes(b"0123456\n" * (3 << 17))
    uploader(folder, output, keep=1 << 20).upload()
    lines = list(OutputTail(folder, 1).new())
    assert lines[0] == "[the first 2,097,152 bytes are no longer kept]"
    assert set(lines[1:]) == {"0123456"}


def test_a_store_that_was_away_costs_no_line(folder: RunFolder, tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    output.write_bytes(b"0123456\n" * (3 << 17))
    uploader(folder, output).upload()
    folder._store.away = 2  # type: ignore[attr-defined]  # it is the patchy one
    reader, seen = OutputTail(folder, 1), list[str]()
    with pytest.raises(Unreachable):
        seen.extend(reader.new())  # some come before it is away
    assert len(seen) == 1 << 17
    assert len([*seen, *reader.new()]) == 3 << 17
