"""A secret's value occurs nowhere: not in store, notices, run folder, log, page or answer, however a job prints it."""

import random
import string
from base64 import b64encode
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import cli
from broker.agent.output import PIECE
from broker.app.access import people, sessions
from broker.app.wiring import Broker
from broker.cli.jobs import follow as following
from broker.core.access.sessions import LINK_PATH
from broker.engines.runfolder import run_folders
from broker.settings import read_settings
from tests.actors import EVERYBODYS, ROOT
from tests.agent.node import QUICK
from tests.agent.test_masking import WAYS, leaks
from tests.cli.conftest import Gpubroker
from tests.counts import FULL
from tests.server.page.browsing import Browser, answering
from tests.server.world import client_of

# Random in every part, so that none is anywhere by chance.
VALUES: tuple[Callable[[random.Random], str], ...] = (
    lambda chance: "hf_" + "".join(chance.choices(string.ascii_letters + string.digits, k=34)),
    lambda chance: "".join(chance.choices(string.ascii_letters + string.punctuation + "äéïöüßÅ漢🔑", k=24)),
    lambda chance: "\n".join(b64encode(chance.randbytes(48)).decode() for _ in range(3)),
)


@settings(
    max_examples=5 if FULL else 1,
    phases=[Phase.explicit, Phase.generate],  # each example is a job
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.integers(0, 2**32).map(random.Random),
    st.lists(st.sampled_from(WAYS), min_size=1, max_size=4),
    st.lists(st.integers(0, 150), max_size=4),
    st.integers(0, 60),
)
def test_a_value_that_a_job_prints_is_nowhere(
    gpubroker: Gpubroker,
    reconciled_by: Callable[[ModuleType], None],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    chance: random.Random,
    ways: list[Callable[[str], str]],
    cuts: list[int],
    before: int,
) -> None:
    """``cuts``: where one write ends and the next begins; the first value lies ``before`` bytes of an object's edge."""
    reconciled_by(following)
    monkeypatch.setattr(run_folders, "Intervals", lambda: QUICK)
    values = [make(chance) for make in VALUES]
    text = "\n".join(way(value) for way in ways for value in values).encode()
    ends = [0, *sorted(cuts), len(text)]
    pieces = [b"." * (PIECE - before), *(text[start:end] for start, end in pairwise(ends))]
    printed = Path(mkdtemp(dir=home.parent))
    for number, piece in enumerate(pieces):
        (printed / str(number)).write_bytes(piece)
    for number, value in enumerate(values):
        monkeypatch.setenv(f"SECRET_{number}", value)
    job = home.parent / "job.yaml"
    job.write_text(
        "name: talks\nresources: {cpus: 1}\nsecrets: [SECRET_0, SECRET_1, SECRET_2]\n"
        f"run: for file in {printed}/*; do cat $file; sleep 0.1; done; exit 3\n"
    )
    done = gpubroker("submit", job, "--yes")
    commands = ["status talks", "status talks --json", "logs talks", "jobs list --json", "notices"]
    said = "".join(found.out + found.err for found in [done, *(gpubroker(*one.split()) for one in commands)])
    id = gpubroker("status", "talks", "--json").json["id"]
    broker = Broker(read_settings(), cli.registries(), EVERYBODYS)
    if not people.people(broker):
        people.add(broker, "ada", by=ROOT, administrator=True)
    browser = Browser(client_of(answering(broker)))
    browser.follow(f"{LINK_PATH}/{sessions.invite(broker, 'ada', by=ROOT).secret}")
    pages = [browser.get(f"/{path}") for path in ("jobs", f"jobs/{id}", f"jobs/{id}/output", f"jobs/{id}/files")]
    broker.close()
    assert [page.status_code for page in pages] == [200] * 4
    assert "exit status 3" in said
    assert "exit status 3" in pages[1].text
    found = {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    found |= {"answers": said.encode("utf-8", "surrogateescape"), "page": "".join(one.text for one in pages).encode()}
    assert [where for where, content in found.items() if any(leaks(value, content) for value in values)] == []
