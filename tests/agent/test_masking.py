"""Values of secrets appear nowhere: for any value, way of printing and moment of an upload."""

import base64
import html
import json
import re
import shlex
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from broker.agent.masking import Mask
from broker.agent.output import PIECE, OutputUploader
from broker.agent.store import ObjectFolder
from broker.core.events.agent_events import MetricsReported
from tests.agent.node import Node, eventually

VALUES = st.one_of(
    st.text("abcdefghijklmnopqrstuvwxyzABCDEF0123456789_-+/=", min_size=8, max_size=80),
    st.text("aB1 äéßÅ漢🔑<&'\"\\/%+", min_size=8, max_size=30),
    st.text(min_size=8, max_size=40).filter(lambda text: "\0" not in text and text.isprintable()),
    st.binary(min_size=24, max_size=300).map(
        lambda data: "\n".join(textwrap.wrap(base64.b64encode(data).decode(), 64))
    ),
)
FORMS: tuple[Callable[[str], str], ...] = (
    lambda value: json.dumps(value)[1:-1],
    lambda value: repr(value)[1:-1],
    lambda value: ascii(value)[1:-1],
    lambda value: repr(value.encode())[2:-1],
    lambda value: quote(value, safe=""),
    lambda value: urlencode({"": value})[1:],
    lambda value: re.sub("%..", lambda found: found[0].lower(), quote(value)),
    lambda value: base64.b64encode(value.encode()).decode(),
    lambda value: value.encode().hex(),
    lambda value: value.encode().hex(":").upper(),
    lambda value: " ".join(f"0x{byte:02x}" for byte in value.encode()),
    lambda value: str(list(value.encode())),
    lambda value: "".join(f"%{byte:02X}" for byte in value.encode()),
    lambda value: "".join(f"\\{byte:03o}" for byte in value.encode()),
    lambda value: "".join(f"\\u{unit:04x}" for unit in memoryview(value.encode("utf-16-le")).cast("H")),
    lambda value: "".join(f"&#{ord(character)};" for character in value),
    lambda value: base64.b32encode(value.encode()).decode(),
    lambda value: shlex.quote(value)[1:-1].replace("'\"'\"'", r"'\''"),
    lambda value: str([hex(byte) for byte in value.encode()]),
    lambda value: ".".join(map(str, value.encode())),
    html.escape,
)
WAYS: tuple[Callable[[str], str], ...] = (
    *FORMS,
    str,
    lambda value: base64.b64encode(f"user:{value}@host".encode()).decode(),
    lambda value: value[: max(8, len(value) // 2)],
    lambda value: max(value.splitlines(), key=len),
    lambda value: "".join(traceback.format_exception(KeyError(value))),
    lambda value: f"\x1b[31m{value[:3]}\x1b[1;32m{value[3:]}\x1b[0m",
)


def leaks(value: str, output: bytes) -> bool:
    """Whether 8 bytes of the value are there in a row, or a little more of a form of it but for ends of lines."""
    raw, forms = value.encode(), (form(value).encode() for form in FORMS)
    parts = {raw[at : at + 8] for at in range(len(raw) - 7)}
    parts |= {form[at : at + 8] for form in forms for at in range(0, len(form) - 7, 4)}
    ends = b" ".join(form("\n" * 4).encode() for form in FORMS)
    return any(part in output and part not in ends for part in parts)


@example('{"password": "a\\u003c\\"b1234567"}', html.escape, 0, [])
@example(":&tBé🔑(éK_:uébyTöGk", FORMS[0], 0, [])
@given(VALUES, st.sampled_from(WAYS), st.integers(0, 40), st.lists(st.integers(1, 60), max_size=5))
def test_no_part_of_a_value_is_uploaded(
    tmp_path_factory: pytest.TempPathFactory, value: str, way: Callable[[str], str], before: int, steps: list[int]
) -> None:
    """Over the border of two pieces, written in any steps with an upload after each."""
    file = tmp_path_factory.mktemp("output") / "output.log"
    printed = b"." * (PIECE - before) + way(value).encode() + b" end"
    store = ObjectFolder(MemoryStore())
    uploader = OutputUploader(store, 1, 0, file, mask=Mask([value]))
    at, seen = PIECE - before, b""
    for step in [0, *steps, len(printed)]:
        at += step
        file.write_bytes(printed[:at])
        uploader.upload()
        seen = uploaded(store)[PIECE - 100 :]
        assert not leaks(value, seen)
    uploader.upload(last=True)
    whole = uploaded(store)
    assert not leaks(value, whole[PIECE - 100 :])
    assert (len(whole), whole[-4:]) == (len(printed), b" end"), "as long as what was printed"
    assert whole.startswith(b"." * (PIECE - before - 8)), "the rest is as it was printed"


def uploaded(store: ObjectFolder) -> bytes:
    return b"".join(store.read(path) or b"" for path in sorted(store.sizes("attempts")))


@example("p@w0r7", str)
@example("11111&", lambda value: value.encode().hex(":"))
@given(st.text("aB1äß漢🔑<&\\/%+:@=#$!", min_size=6, max_size=20), st.sampled_from([str, *FORMS]))
def test_what_a_program_reads_from_a_value_is_hidden(password: str, way: Callable[[str], str]) -> None:
    for secret in (
        f"mysql://admin:{quote(password, safe='')}@db.example.com/x",
        json.dumps({"type": "x", "login": [{"password": password}]}),
        f'HOST=db\nexport PASSWORD="{password}"\n',
        f"host: db\npassword: {password}\n",
        f"user=bob&password={quote(password, safe='')}",
        f"https://db.example.com/x?user=bob&sig={quote(password, safe='')}",
        json.dumps({"auths": {"r.example.com": {"auth": base64.b64encode(f"bob:{password}".encode()).decode()}}}),
    ):
        assert way(password) not in Mask([secret]).text(f"cannot log in: {way(password)} is wrong")


@pytest.mark.parametrize(
    "printed",
    [
        shlex.quote("k7Q'vv2'Lm9"),
        "+ curl -H 'Token: k7Q'\\''vv2'\\''Lm9'",
        str([hex(byte) for byte in b"k7Q'vv2'Lm9"]),
        "".join(f"'\\x{byte:02x}', " for byte in b"k7Q'vv2'Lm9"),
        "    ".join(f"{byte:02x}" for byte in b"k7Q'vv2'Lm9"),
        ".".join(map(str, b"k7Q'vv2'Lm9")),
    ],
)
def test_quotes_of_shells_and_lists_of_bytes_hide_nothing(printed: str) -> None:
    hidden = Mask(["k7Q'vv2'Lm9"]).text(printed)
    assert len(hidden) == len(printed)
    assert not re.findall(r"[^\W_]", re.sub("curl -H|Token|0?x", "", hidden)), hidden


def test_the_address_of_a_url_and_the_frame_of_a_key_stay() -> None:
    mask = Mask(
        ["https://me:hunter2hunter2@db.example.com/prod-data", "-----BEGIN KEY-----\nabcdefghijkl\n-----END KEY-----"]
    )
    assert (
        mask.text("https://db.example.com/other: -----BEGIN KEY-----")
        == "https://db.example.com/other: -----BEGIN KEY-----"
    )
    assert mask.text("hunter2hunter2 prod-data abcdefghijkl") == "************** ********* ************"


def test_events_progress_and_evidence_tell_no_value(node: Node, tmp_path: Path) -> None:
    value = "hf_abcDEF1234567890"
    command = (
        'echo "{\\"step\\": 1, \\"metrics\\": {\\"loss of $TOKEN\\": 1}}" > "$GPUBROKER_PROGRESS_FILE"; '
        'while [ ! -e go ]; do sleep 0.02; done; printf "failed with $TOKEN"; exit 3'
    )
    node.spec(command, secrets=("TOKEN",), outputs=(".",), intervals={"figures": 0.05, "outputs": 0.05})
    agent = node.start(env={"TOKEN": value})
    eventually(lambda: [one for one in node.events() if isinstance(one, MetricsReported)], "the figure is reported")
    (node.scratch() / "work" / "go").touch()
    assert agent.wait(240) == 3
    assert node.ending().evidence == "exit status 3; failed with *******************"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if value.encode() in path.read_bytes()] == []
