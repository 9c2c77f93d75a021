"""A browser without JavaScript: it keeps cookies, says where its requests come from, and fills in forms."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from fastapi.testclient import TestClient
from starlette.types import ASGIApp

from broker.app.service.health import Pulses
from broker.app.service.metrics import ServiceResponder
from broker.app.wiring import Broker
from broker.server.api.transport import Transport
from broker.server.page.application import api_and_page
from tests.server.world import Company, client_of

HOME = "http://testserver"
FROM_HERE = {"Origin": HOME, "Sec-Fetch-Site": "same-origin"}


class FormFields(HTMLParser):
    """What each form of a page would send untouched, by its action; and every element, for other questions."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.forms: dict[str, dict[str, str]] = {}
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._fields: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.elements.append((tag, found))
        if tag == "form":
            self._fields = self.forms.setdefault(found.get("action") or "", {})
        elif tag in ("input", "button") and (name := found.get("name")):
            self._fields[name] = found.get("value") or ""


@dataclass
class Browser:
    """One browser. Redirects are not followed."""

    client: TestClient

    def get(self, path: str, **more: Any) -> Any:
        return self.client.get(path, follow_redirects=False, **more)

    def post(self, path: str, form: dict[str, str], headers: dict[str, str] | None = None) -> Any:
        sent = FROM_HERE if headers is None else headers
        return self.client.post(path, data=form, headers=sent, follow_redirects=False)

    def sign_in(self, token: str, after: str = "/") -> Any:
        return self.post("/sign-in", {"token": token, "next": after})

    def follow(self, link: str) -> Any:
        """Open a sign-in link and press its button."""
        assert "Sign in with this link" in self.get(link).text
        return self.post(link, {})

    def send_form(self, page: str, action: str, **filled: str) -> Any:
        return self.post(action, FormFields(self.get(page).text).forms[action] | filled)


@dataclass
class Site:
    """``world``: the company behind it. ``application``: what answers."""

    world: Company
    application: ASGIApp
    browsers: dict[str, Browser] = field(default_factory=dict)

    def browser(self, cookies: dict[str, str] | None = None) -> Browser:
        """A new one."""
        return Browser(client_of(self.application, cookies=cookies))

    def of(self, person: str) -> Browser:
        """Somebody's own, signed in."""
        if person not in self.browsers:
            self.browsers[person] = self.browser()
            assert self.browsers[person].follow(self.world.link(person)).status_code == 303
        return self.browsers[person]


def answering(broker: Broker, transport: Transport | None = None) -> ASGIApp:
    health = Pulses()
    return api_and_page(broker, ServiceResponder(broker, health, None), health, transport or Transport())


def site_of(world: Company) -> Site:
    return Site(world, answering(world.broker))
