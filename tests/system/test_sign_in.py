"""Signing in at a real `gpubroker serve`: the first administrator's link from its terminal, and an invited person's."""

import os
import pty
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.program import GPUBROKER, environment, run, start
from tests.server.page.browsing import FormFields

pytestmark = [pytest.mark.system, pytest.mark.timeout(700)]


@contextmanager
def served(home: Path) -> Iterator[tuple[str, str]]:
    """The address of a server, started on a terminal, and everything it printed there until it listened."""
    ours, its = pty.openpty()
    command = [*GPUBROKER, "serve", "--provider", "owned", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env=environment(home), cwd=home.parent, stdout=its, stderr=its) as process:
        os.close(its)
        said = ""
        while not (found := re.search(r"the API is at (http://[\d.:]+)/", said)):
            said += os.read(ours, 4096).decode()
        yield found[1], said
        process.terminate()
        while process.poll() is None:  # so that it never waits for a reader
            try:
                os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    assert process.returncode == 0


def test_people_come_in_by_links_which_stand_nowhere(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with served(home) as (_, said):
        (stale,) = re.findall(r"/link/([\w-]{43})\r", said)
    with served(home) as (url, said):
        (first,) = re.findall(r"/link/([\w-]{43})\r", said)
        invited = ""

        def follow(secret: str) -> httpx.Client | int:
            browser = httpx.Client(base_url=url, headers={"Origin": url})
            assert browser.get(f"/link/{secret}").status_code == 200
            answer = browser.post(f"/link/{secret}")
            return browser if answer.status_code == 303 else answer.status_code

        assert follow(stale) == 401
        browser = follow(first)
        assert isinstance(browser, httpx.Client)
        assert follow(first) == 401, "replayed"
        form = FormFields(browser.get("/people").text).forms["/people"]
        del form["service"]
        assert browser.post("/people", data=form | {"name": "bob"}).headers["location"] == "/people/bob"
        made = run("people", "invite", "bob", "--url", url, home=home)
        assert made.stdout.startswith(f"{url}/link/"), made.stderr
        invited = made.stdout.strip().rpartition("/")[2]
        bobs = follow(invited)
        assert isinstance(bobs, httpx.Client)
        assert ">bob<" in bobs.get("/").text
        assert follow(invited) == 401
        files = [file.read_bytes() for file in home.rglob("*") if file.is_file()]
    for secret in (stale, first, invited):
        assert not any(secret.encode() in file for file in files)
    with served(home) as (_, said):
        assert "/link/" not in said, "there is an administrator"


def test_no_link_goes_to_a_file(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with start("serve", "--provider", "owned", "--listen", "127.0.0.1:0", home=home) as process:
        assert process.stderr is not None
        said = ""
        while "the API is at" not in said:
            said += process.stderr.readline()
        process.terminate()
        said += process.communicate()[1]
    assert "`gpubroker people invite NAME --administrator` prints a sign-in link" in said
    assert "/link/" not in said
