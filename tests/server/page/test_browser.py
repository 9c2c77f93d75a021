"""Every page in Debian's Chromium, in light and dark, on a phone and a screen: no finding of axe, nothing on the
console, no request to another host; and approving and cancelling by the keyboard alone.

Needs `chromium`, PyPI's `playwright`, and ``GPUBROKER_AXE``: the file axe.min.js of npm's axe-core.
`python -m tests.server.page.screenshots FOLDER` keeps every page as a picture.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.counts import part
from tests.server.page.chromium import CHROMIUM, QUIETLY, THEMES, WIDTHS, name_of, pages_of, serving, signed_in
from tests.server.page.grown import grow
from tests.server.world import Company, new_world, submitted

pytestmark = [pytest.mark.system, pytest.mark.timeout(170)]

AXE = Path(os.environ.get("GPUBROKER_AXE", "/nowhere"))
# Half of the widths, each with one theme; the other widths and themes on the next three days.
PAIRS = list(zip(WIDTHS, sorted(THEMES, reverse=part(4) >= 2), strict=True))[part(2) :: 2]
TAGS = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]


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
    world = new_world(tmp_path_factory.mktemp("browser"))
    grow(world, range(2))
    with serving(world) as url:
        yield url, world
    world.broker.close()


def listened(page: Any) -> list[str]:
    """What the page's console says from now on: also what the content security policy has stopped."""
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{page.url}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"{page.url}: {error}"))
    return said


def judged(page: Any, url: str, found: dict[str, list[str]], name: str) -> None:
    """Add to ``found`` what axe finds there, and whether it is wider than the window. Without ``url``: where the page
    is."""
    if url:
        page.goto(url)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    result = page.evaluate("tags => axe.run({runOnly: tags})", TAGS)
    if result["violations"]:
        found[name] = [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in result["violations"]]
    wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if wider > 0:
        found.setdefault(name, []).append(f"it is {wider} pixels wider than the window")


@pytest.mark.parametrize(("width", "theme"), PAIRS)
def test_pages_are_accessible_and_silent(browser: Any, served: tuple[str, Company], width: int, theme: str) -> None:
    url, world = served
    page = signed_in(
        browser, url, world.link("adam"), viewport={"width": width, "height": 900}, color_scheme=theme
    )  # fmt: skip
    said, hosts = listened(page), set[str]()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    found: dict[str, list[str]] = {}
    for path in pages_of(world):
        judged(page, url + path, found, name_of(path, world))
    page.context.close()
    assert not found
    said = [one for one in said if "/jobs/unknown" not in one]  # Chromium itself tells of the 404
    assert not said
    assert hosts == {urlsplit(url).netloc}


@pytest.mark.parametrize(("width", "theme"), PAIRS)
def test_signing_in_is_accessible_too(browser: Any, served: tuple[str, Company], width: int, theme: str) -> None:
    """A link and a used one; and the forms that only a session of a link has."""
    url, world = served
    link = world.link("adam")
    page = signed_in(browser, url, link, viewport={"width": width, "height": 900}, color_scheme=theme)
    said, found = listened(page), dict[str, list[str]]()
    for path in ("/me", "/people", "/people/mia"):
        judged(page, url + path, found, f"{path.strip('/').replace('/', '-')}-by-link")
    page.context.clear_cookies()
    judged(page, url + link, found, "link")
    page.locator("main button").press("Enter")
    page.locator(".trouble").wait_for()
    judged(page, "", found, "link-used")
    page.context.close()
    assert not found
    assert not [one for one in said if "status of 40" not in one]  # Chromium itself tells of 401


def test_figures_are_renewed_where_they_stand(browser: Any, served: tuple[str, Company]) -> None:
    """A new job appears without a new page; what has the focus keeps it, what was opened stays open, and nothing
    scrolls. Output is followed at its end, and left alone where somebody has scrolled up."""
    url, world = served
    page = signed_in(browser, url, world.link("adam"), viewport={"width": 1280, "height": 400})
    page.evaluate("window.asked = 1; scrollTo(0, 150)")
    reach(page, f"#main a[href='/jobs/{world.mine}']")
    held = page.evaluate("[document.activeElement.href, scrollY]")
    id = submitted(world.broker, "later", "mia", "nlp")
    page.evaluate("htmx.trigger(document.getElementById('main'), 'every')")
    page.locator(f"#main a[href='/jobs/{id}']").first.wait_for(state="attached")
    assert page.evaluate("[document.activeElement.href, scrollY, window.asked]") == [*held, 1]
    page.goto(f"{url}/jobs/{world.mine}")
    page.evaluate("document.querySelector('#main details').open = true")
    with page.expect_response(f"{url}/jobs/{world.mine}"):
        page.evaluate("htmx.trigger(document.getElementById('main'), 'every')")
    assert page.evaluate("document.querySelector('#main details').open")
    page.context.clear_cookies()
    page.evaluate("htmx.trigger(document.getElementById('main'), 'every')")
    page.wait_for_url(f"{url}/sign-in?next=**")
    page.context.close()


def test_figures_that_could_not_be_renewed_are_said_to_be_old(browser: Any, served: tuple[str, Company]) -> None:
    url, world = served
    page = signed_in(browser, url, world.link("adam"))
    page.context.set_offline(True)
    page.evaluate("htmx.trigger(document.getElementById('main'), 'every')")
    page.locator("#silent:has-text('does not answer')").wait_for()
    page.context.set_offline(False)
    page.evaluate("htmx.trigger(document.getElementById('main'), 'every')")
    page.locator("#silent:has-text('does not answer')").wait_for(state="detached")
    page.context.close()


def test_approving_refusing_and_cancelling_need_no_mouse(browser: Any, served: tuple[str, Company]) -> None:
    url, world = served
    page = signed_in(browser, url, world.link("apple"), java_script_enabled=False)
    page.goto(f"{url}/approvals")
    reach(page, f"form[action='/approvals/{world.asking}/grant'] button")
    page.keyboard.press("Enter")
    page.locator(f"form[action='/approvals/{world.asking}/grant']").wait_for(state="detached")
    owner = signed_in(browser, url, world.link("mia"), java_script_enabled=False)
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


def test_a_chart_that_is_drawn_anew_leaves_none_behind(browser: Any, served: tuple[str, Company]) -> None:
    url, world = served
    page = signed_in(browser, url, world.link("adam"))
    page.goto(f"{url}/budgets/nlp")
    page.evaluate(
        """() => { const made = uPlot; window.live = 0; window.uPlot = Object.assign(function (...given) {
          const plot = new made(...given), destroy = plot.destroy;
          live++; plot.destroy = () => { live--; destroy(); }; return plot; }, made); }"""
    )
    for _ in range(3):
        page.evaluate("dispatchEvent(new Event('resize')); new Promise((drawn) => setTimeout(drawn, 50))")
    assert page.evaluate("[live, document.querySelectorAll('.plotted').length]") == [1, 1]
    page.context.close()
