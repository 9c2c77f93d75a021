"""Logging in and out on a machine without access to the server's store."""

import stat
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from broker.app.access import device_logins
from broker.core.access.people import Access, TokenScope
from broker.core.actors import Actor
from broker.core.errors import InvalidInput
from broker.server.client.logins import SavedLogin, current_login, delete_login, save_login, server_url
from tests.cli.documents import check
from tests.server.client.conftest import Laptop, TeamService


def entering(service: TeamService, *, grant: bool = True) -> Callable[[float], None]:
    """What mia does while the program waits: she enters the newest code at the page. Threads of the server may wait at
    the same moment: one of them enters it."""
    one_at_a_time = Lock()

    def wait(seconds: float) -> None:
        with one_at_a_time:
            enter()

    def enter() -> None:
        broker = service.world.broker
        with broker.store.access.reading() as look:
            mia = look.person("mia")
        assert mia is not None
        access = Access(mia, frozenset(TokenScope))
        with broker.store._database.reading() as connection:
            code = connection.exec_driver_sql("SELECT user_code FROM device_login WHERE granted IS NULL").scalar()
        if code is not None:
            device_logins.decide_login(broker, str(code), access, grant=grant, by=Actor("mia"))

    return wait


def test_login_whoami_logout(
    service: TeamService, laptop: Laptop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", entering(service))
    done = laptop("login", service.url)
    assert done.code == 0, done.err
    assert f"{service.url}/device?user_code=" in done.err
    assert "mia" in done.out
    file = tmp_path / "laptop" / "login.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    me = laptop("whoami", "--json").json
    check("whoami", me)
    assert me["person"]["name"] == "mia"
    assert laptop("jobs", "list").code == 0
    saved = current_login({"GPUBROKER_HOME": str(tmp_path / "laptop")})
    assert saved is not None
    assert saved.token not in repr(saved) + done.out + done.err
    ended = laptop("logout", "--json").json
    check("logout", ended)
    assert ended == {"server": service.url, "revoked": True}
    assert not file.exists()
    assert service.world.client.get("/api/v1/me", headers={"Authorization": f"Bearer {saved.token}"}).status_code == 401
    assert "no team server" in laptop("whoami").out
    check("whoami-local", laptop("whoami", "--json").json)


def test_a_login_buys_only_if_it_is_asked_for(
    service: TeamService, laptop: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", entering(service))
    for scopes in ((), ("--scope", "read", "--scope", "purchases")):
        assert laptop("login", service.url, *scopes).code == 0
        assert ("purchases" in laptop("whoami", "--json").json["scopes"]) is bool(scopes)
        laptop("logout")


def test_a_refused_login_saves_nothing(
    service: TeamService, laptop: Laptop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", entering(service, grant=False))
    refused = laptop("login", service.url)
    assert (refused.code, "was refused" in refused.err) == (2, True)
    assert not (tmp_path / "laptop" / "login.json").exists()


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("gpus.example.org", "https://gpus.example.org"),
        ("https://gpus.example.org:8443/", "https://gpus.example.org:8443"),
        ("http://127.0.0.1:9464", "http://127.0.0.1:9464"),
    ],
)
def test_addresses(text: str, url: str) -> None:
    assert server_url(text) == url


@pytest.mark.parametrize(
    "text", ["http://gpus.example.org", "ftp://x", "https://", "https://x/page", "https://a:b@x", "https://x:port"]
)
def test_wrong_addresses(text: str) -> None:
    with pytest.raises(InvalidInput):
        server_url(text)


def test_a_login_is_replaced_and_forgotten(tmp_path: Path) -> None:
    here: dict[str, Any] = {"GPUBROKER_HOME": str(tmp_path / "new")}
    assert current_login(here) is None
    save_login(SavedLogin("https://a", "one"), here)
    save_login(SavedLogin("https://b", "two"), here)
    assert current_login(here) == SavedLogin("https://b", "two")
    assert current_login(here | {"GPUBROKER_SERVER": "off"}) is None
    assert current_login(here | {"GPUBROKER_SERVER": "c", "GPUBROKER_TOKEN": "t"}) == SavedLogin("https://c", "t")
    with pytest.raises(InvalidInput, match="GPUBROKER_TOKEN is not"):
        current_login(here | {"GPUBROKER_SERVER": "c"})
    with pytest.raises(InvalidInput, match="GPUBROKER_SERVER is not"):
        current_login(here | {"GPUBROKER_TOKEN": "t"})
    assert current_login(here | {"GPUBROKER_SERVER": "off", "GPUBROKER_TOKEN": "t"}) is None
    delete_login(here)
    delete_login(here)
    assert current_login(here) is None


def test_a_damaged_login_is_named_and_can_be_deleted(laptop: Laptop, tmp_path: Path) -> None:
    file = tmp_path / "laptop" / "login.json"
    file.parent.mkdir()
    file.write_text("{")
    refused = laptop("jobs", "list")
    assert (refused.code, str(file) in refused.err) == (2, True)
    assert laptop("logout").code == 0
    assert not file.exists()
