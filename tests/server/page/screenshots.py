"""Keeps every page as a picture, in five widths, three of them also dark, to be looked at. Run:

    python -m tests.server.page.screenshots FOLDER [--only budgets] [--database postgresql]

A company with some of everything is served on loopback. Needs what `tests.server.page.chromium` needs.
"""

import argparse
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.bench.bench_million import database
from tests.server.page.chromium import CHROMIUM, QUIETLY, name_of, pages_of, serving, signed_in
from tests.server.page.grown import grow, in_trouble, interrupted, reported
from tests.server.world import Company, new_world, world_over

HIGH = 900
SIZES = [
    *((width, "light") for width in (390, 768, 1024, 1440, 1920)),
    *((width, "dark") for width in (390, 1024, 1440)),
]


class Camera:
    """Takes pictures into a folder. ``only``: of pages with this in their names."""

    def __init__(self, folder: Path, only: str) -> None:
        self._folder, self._only, self.taken = folder, only, 0

    def take(self, page: Any, name: str, where: str, address: str = "") -> None:
        """Of what is at the address; without one, of what is there."""
        if self._only not in name:
            return
        if address:
            page.goto(address)
        page.screenshot(path=self._folder / f"{name}-{where}.png", full_page=True)
        self.taken += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="pages with this in their names")
    parser.add_argument("--readme", action="store_true", help="only a job's page, as page.png for the README")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    camera = Camera(asked.folder, asked.only)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with database(asked.database, folder) as url:
            world = new_world(folder) if asked.database == "sqlite" else world_over(url, folder)
            grow(world, range(6))
            reported(world)
            in_trouble(world)
            job = interrupted(world)
            with serving(world) as address:
                if asked.readme:
                    _readme(world, f"{address}/jobs/{job}", asked.folder)
                else:
                    _all(world, address, camera)
            world.broker.close()
    print(f"{camera.taken} pictures in {asked.folder}")


def _readme(world: Company, url: str, folder: Path) -> None:
    playwright: Any = import_module("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=QUIETLY)
        size = {"width": 1280, "height": 900}
        page = signed_in(browser, url.partition("/jobs/")[0], world.link("adam"), viewport=size, color_scheme="light")
        page.goto(url)
        page.screenshot(path=folder / "page.png")
        browser.close()


def _all(world: Company, url: str, camera: Camera) -> None:
    playwright: Any = import_module("playwright.sync_api")  # not always installed
    paths = list(dict.fromkeys(pages_of(world)))
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=QUIETLY)
        for width, theme in SIZES:
            options = {"viewport": {"width": width, "height": HIGH}, "color_scheme": theme}
            where = f"{width}-{theme}"
            page = signed_in(browser, url, world.link("adam"), **options)
            for path in paths:
                camera.take(page, name_of(path, world), where, url + path)
            page.goto(f"{url}/policies/change")
            page.fill("textarea", page.input_value("textarea").replace("$100", "$1"))
            page.locator("form[action='/policies/preview'] button").first.click()
            page.wait_for_selector("form[action='/policies/apply']")
            camera.take(page, "policies-preview", where)
            page.context.close()
            _signing_in(world, url, camera, browser.new_context(**options).new_page(), where)
        browser.close()


def _signing_in(world: Company, url: str, camera: Camera, page: Any, where: str) -> None:
    link = world.link("adam")
    camera.take(page, "sign-in", where, f"{url}/sign-in")
    camera.take(page, "link", where, url + link)
    for name in ("link-followed", "link-used"):
        page.goto(url + link)
        page.locator("main button").press("Enter")
        page.locator("main").wait_for()
        camera.take(page, name, where)
    page.context.close()


if __name__ == "__main__":
    main()
