"""The bytes of a file from a server: what a proxy in front of it may do to them."""

import httpx
import pytest

from broker.core.errors import Unreachable
from broker.server.client.logins import SavedLogin
from broker.server.client.team_api import TeamApi


def _api(status: int, asked: list[httpx.Request]) -> TeamApi:
    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(status, stream=httpx.ByteStream(b"piece"))

    return TeamApi(SavedLogin("https://gpus.example.org", "gpb_x_y"), transport=httpx.MockTransport(answer))


def test_bytes_are_asked_for_as_they_are() -> None:
    asked: list[httpx.Request] = []
    with _api(200, asked) as api:
        assert b"".join(api.content("/jobs/a/files/b", start=3)) == b"piece"
    assert (asked[0].headers["accept-encoding"], asked[0].url.query) == ("identity", b"start=3")


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_server_that_is_away_for_a_moment_costs_no_part_of_a_download(status: int) -> None:
    """`Unreachable` may be repeated; what gives up would delete the part that is there."""
    with _api(status, []) as api, pytest.raises(Unreachable):
        list(api.content("/jobs/a/files/b"))
