"""What a job prints reaches files unchanged, and a terminal without what would control it."""

import os
import pty
from io import StringIO

import pytest

from broker.cli.jobs.follow import print_output, strip_control_sequences

BEL, ST = "\x07", "\x1b\\"


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("plain\ttext, grüße 你好 🚀", "plain\ttext, grüße 你好 🚀"),
        ("\x1b[1;31mred\x1b[0m \x1b[38:2::1:2:3mtrue\x1b[m", "\x1b[1;31mred\x1b[0m \x1b[38:2::1:2:3mtrue\x1b[m"),
        ("  50%|####    |\r 100%|########|", "  50%|####    |\r 100%|########|"),
        (f"a\x1b]0;title{BEL}b", "ab"),
        (f"a\x1b]52;c;cm0gLXJm{ST}b", "ab"),
        (f"a\x1bP+q544e{ST}b\x1b_kitty{ST}c\x1b^private{ST}d\x1bXstring{ST}e", "abcde"),
        ("a\x1b]0;never ended", "a"),
        ("a\x1b[2J\x1b[10;10Hb\x1b[6nc\x1b[?1049hd\x1b[>4;1me", "abcde"),
        ("a\x1bcb\x1b(0c\x1b7d", "abcd"),
        ("a\x08\x08b\x7f\x00c\x9b2Jd\x9d0;t\x9ce", "abc2Jd0;te"),
        ("end\x1b", "end"),
        ("end\x1b[", "end"),
    ],
)
def test_of_control_sequences_only_colours_pass(printed: str, shown: str) -> None:
    assert strip_control_sequences(printed) == shown
    assert strip_control_sequences(shown) == shown


def test_files_get_what_was_printed() -> None:
    file = StringIO()
    print_output(file, ["a\x1b[2Jb", "c"])
    assert file.getvalue() == "a\x1b[2Jb\nc\n"


def test_a_terminal_does_not() -> None:
    keyboard, screen = pty.openpty()
    with os.fdopen(screen, "w") as terminal:
        print_output(terminal, ["a\x1b]0;title\x07b", "\x1b[31mc"])
        terminal.flush()
        seen = b""
        while seen.count(b"\n") < 2:  # a terminal may pass on line by line
            seen += os.read(keyboard, 100)
        assert seen == b"ab\r\n\x1b[31mc\r\n"
    os.close(keyboard)


def test_many_lines_are_few_writes() -> None:
    class CountedWrites(StringIO):
        writes = 0

        def write(self, text: str) -> int:
            self.writes += 1
            return super().write(text)

    stream, lines = CountedWrites(), ["x" * 99] * 10_000
    print_output(stream, iter(lines))
    assert stream.getvalue().splitlines() == lines
    assert stream.writes < 20
