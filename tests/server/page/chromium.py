"""Debian's Chromium before a server of the company: every page that there is, and somebody signed in.

Needs the Debian package `chromium` and PyPI's `playwright`.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from shutil import which
from typing import Any

from broker.app.service.health import Pulses
from broker.server.api.team_server import TeamServer
from broker.server.api.transport import Transport
from broker.server.page.application import PAGES, api_and_page
from tests.server.world import Company

CHROMIUM = which("chromium")
QUIETLY = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
WIDTHS, THEMES = (360, 1280), ("light", "dark")
FORMS = [path for path in {one.path for one in PAGES if one.method == "GET"} if "{" not in path]


def pages_of(world: Company) -> list[str]:
    """The address of every page, and of some as people filter them."""
    of_a_job = (one.path for one in PAGES if one.method == "GET" and one.path.startswith("/jobs/{id}"))
    of_a_job = (path for path in of_a_job if not path.endswith("/news"))
    purchases = [one.id for one in world.broker.store.purchases()][:1]
    return [
        *sorted(FORMS),
        *sorted(path.format(id=world.asking) for path in of_a_job if path.count("{") == 1),
        *(f"/purchases/{id}{form}" for id in purchases for form in ("", "/undo")),
        f"/jobs/{world.mine}",
        "/budgets/nlp",
        "/policies/versions/1",
        "/reports?by=user&then=team&simulated=true",
        "/prices?gpu=L4:1&provider=sandbox",
        "/offers?provider=sandbox",
        "/people/mia",
        "/jobs/unknown",
    ]


def name_of(path: str, world: Company) -> str:
    """What a picture of the page is called."""
    plain, _, query = path.strip("/").partition("?")
    name = plain.replace("/", "-").replace(world.asking, "asking").replace(world.mine, "mine") or "overview"
    return f"{name}-filtered" if query else name


@contextmanager
def serving(world: Company) -> Iterator[str]:
    """A server of that company on loopback; its address."""
    stop = threading.Event()
    server = TeamServer(world.broker, Pulses(), "127.0.0.1:0", None, Transport(), api_and_page)
    answering = threading.Thread(target=server.run, args=(stop,), daemon=True)
    answering.start()
    yield server.url
    stop.set()
    answering.join()


def signed_in(browser: Any, url: str, link: str, **options: Any) -> Any:
    """A page of somebody's own, signed in by a link and Enter on its button."""
    page = browser.new_context(**options).new_page()
    page.goto(url + link)
    page.locator("main button").press("Enter")
    page.wait_for_url(f"{url}/")
    return page
