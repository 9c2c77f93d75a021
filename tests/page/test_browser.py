"""Every page in Debian's Chromium, in light and dark, on a phone and a screen: no finding of axe, nothing on the
console, no request to another host; and approving and cancelling by the keyboard alone.

Needs `chromium`, PyPI's `playwright`, and ``GPUBROKER_AXE``: the file axe.min.js of npm's axe-core. With
``GPUBROKER_SCREENSHOTS``, a folder, each page is kept there as a picture.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from shutil import which
from typing import Any
from urllib.parse import urlsplit

import pytest

from broker.app.service.health import Pulses
from broker.page.application import with_page
from broker.page.routes import PAGES
from broker.server.listening import TeamServer
from broker.server.transport import Transport
from tests.server.world import Company, new_world

pytestmark = [pytest.mark.system, pytest.mark.timeout(170)]

CHROMIUM, AXE = which("chromium"), Path(os.environ.get("GPUBROKER_AXE", "/nowhere"))
QUIETLY = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
TAGS = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]
WIDTHS, THEMES = (360, 1280), ("light", "dark")
FORMS = [path for path in {one.path for one in PAGES if one.method == "GET"} if "{" not in path]


def pages_of(world: Company) -> list[str]:
    """The address of every page, and of some as people filter them."""
    of_a_job = (one.path for one in PAGES if one.method == "GET" and one.path.startswith("/jobs/{id}"))
    return [
        *sorted(FORMS),
        *sorted(path.format(id=world.asking) for path in of_a_job if path.count("{") == 1),
        "/budgets/nlp",
        "/policies/versions/1",
        "/reports?by=user&then=team&simulated=true",
        "/prices?gpu=L4:1&provider=sandbox",
        "/offers?provider=sandbox",
        "/jobs/unknown",
    ]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None or not AXE.is_file():
        pytest.skip("chromium or GPUBROKER_AXE is missing")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=QUIETLY)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Company]]:
    world, stop = new_world(tmp_path_factory.mktemp("browser")), threading.Event()
    server = TeamServer(world.broker, Pulses(), "127.0.0.1:0", None, Transport(), with_page)
    answering = threading.Thread(target=server.run, args=(stop,), daemon=True)
    answering.start()
    yield server.url, world
    stop.set()
    answering.join()
    world.broker.close()


def signed_in(browser: Any, url: str, token: str, **options: Any) -> Any:
    """A page of somebody's own, signed in without JavaScript on the server's part: by typing and Enter."""
    page = browser.new_context(**options).new_page()
    page.goto(f"{url}/sign-in")
    page.fill("input[name=token]", token)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{url}/")
    return page


@pytest.mark.parametrize(("width", "theme"), list(product(WIDTHS, THEMES)))
def test_pages_are_accessible_and_silent(browser: Any, served: tuple[str, Company], width: int, theme: str) -> None:
    url, world = served
    page = signed_in(
        browser, url, world.usual("adam"), viewport={"width": width, "height": 900}, color_scheme=theme
    )  # fmt: skip
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{page.url}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"{page.url}: {error}"))
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    found: dict[str, list[str]] = {}
    for path in pages_of(world):
        page.goto(url + path)
        if folder := os.environ.get("GPUBROKER_SCREENSHOTS"):
            name = path.strip("/").replace("/", "-").split("?")[0].replace(world.asking, "job") or "overview"
            page.screenshot(path=f"{folder}/{name}-{width}-{theme}.png", full_page=True)
        page.evaluate(AXE.read_text(encoding="utf-8"))
        result = page.evaluate("tags => axe.run({runOnly: tags})", TAGS)
        if result["violations"]:
            found[path] = [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in result["violations"]]
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if wide > 0:
            found.setdefault(path, []).append(f"it is {wide} pixels wider than the window")
    page.context.close()
    assert not found
    said = [one for one in said if "/jobs/unknown" not in one]  # Chromium itself tells of the 404
    assert not said
    assert hosts == {urlsplit(url).netloc}


def test_approving_refusing_and_cancelling_need_no_mouse(browser: Any, served: tuple[str, Company]) -> None:
    url, world = served
    page = signed_in(browser, url, world.usual("apple"), java_script_enabled=False)
    page.goto(f"{url}/approvals")
    reach(page, f"form[action='/approvals/{world.asking}/grant'] button")
    page.keyboard.press("Enter")
    page.locator(f"form[action='/approvals/{world.asking}/grant']").wait_for(state="detached")
    assert "Nothing waits" in page.content()
    owner = signed_in(browser, url, world.usual("mia"), java_script_enabled=False)
    owner.goto(f"{url}/jobs/{world.mine}/cancel")
    reach(owner, f"form[action='/jobs/{world.mine}/cancel'] button")
    owner.keyboard.press("Enter")
    owner.wait_for_url(f"{url}/jobs/{world.mine}")
    assert "stopping" in owner.content()
    page.context.close()
    owner.context.close()


def reach(page: Any, selector: str) -> None:
    """Press Tab until the element has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.locator(f"{selector}:focus").count():
            return
    raise AssertionError(f"Tab does not reach {selector}")
