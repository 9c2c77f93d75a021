"""The interfaces of AWS over HTTP, from moto, with refusals to order: what an account without quota, a zone without
capacity, a throttled interface and expired credentials answer."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from urllib.parse import parse_qsl

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

Parameters = dict[str, str]
CALLER = "(caller)"  # the parameter that holds the access key of whoever asks
_KEY = re.compile(r"Credential=([^/]+)/")
_QUERY = "application/x-www-form-urlencoded"
_ERROR = (
    '<?xml version="1.0" encoding="UTF-8"?>'
    "<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
    "<RequestID>00000000-0000-0000-0000-000000000000</RequestID></Response>"
)
_SPACE = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'
_NONE_FOUND = f"<DescribeInstancesResponse {_SPACE}><reservationSet/></DescribeInstancesResponse>"
_SPOT = f"""<DescribeSpotInstanceRequestsResponse {_SPACE}><spotInstanceRequestSet>{{items}}</spotInstanceRequestSet>
</DescribeSpotInstanceRequestsResponse>"""
_SPOT_ITEM = """<item><spotInstanceRequestId>{id}</spotInstanceRequestId><status><code>{code}</code></status></item>"""


@dataclass
class OrderedRefusal:
    """What is answered instead, to requests of that action (``*``: all) which ``to`` holds for. ``left``: how often;
    None: always. ``met``: how often it was."""

    action: str
    code: str
    message: str
    status: int = 400
    left: int | None = None
    to: Callable[[Parameters], bool] = lambda parameters: True
    met: int = 0

    def takes(self, parameters: Parameters) -> bool:
        if self.left == 0 or self.action not in ("*", parameters["Action"]) or not self.to(parameters):
            return False
        self.met += 1
        self.left = None if self.left is None else self.left - 1
        return True


@dataclass
class EmulatedAws:
    """``url``: where it answers. ``refusals``: the first that fits is answered. ``after``: called with the parameters
    of each request that was carried out. ``asked``: the actions of all requests, in order. ``tags_late``: seconds after
    the start of a machine in which nobody finds one by its tags. ``spot_status``: of spot requests, by id; moto has
    none for machines that are started as SkyPilot starts them."""

    url: str = ""
    refusals: list[OrderedRefusal] = field(default_factory=list)
    after: list[Callable[[Parameters], None]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    tags_late: float = 0.0
    spot_status: dict[str, str] = field(default_factory=dict)
    _started_at: float = 0.0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if not str(environ.get("CONTENT_TYPE", "")).startswith(_QUERY):
            return self._moto(environ, start_response)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = BytesIO(body)
        key = _KEY.search(environ.get("HTTP_AUTHORIZATION", ""))
        parameters = {**dict(parse_qsl(body.decode())), CALLER: key[1] if key else ""}
        self.asked.append(parameters.get("Action", ""))
        for refusal in self.refusals:
            if "Action" in parameters and refusal.takes(parameters):
                text = _ERROR.format(code=refusal.code, message=refusal.message).encode()
                start_response(f"{refusal.status} refused", [("Content-Type", "text/xml")])
                return [text]
        if (own := self._of_its_own(parameters)) is not None:
            start_response("200 OK", [("Content-Type", "text/xml")])
            return [own.encode()]
        if parameters.get("Action") == "RunInstances":
            self._started_at = time.monotonic()
        answer = list(self._moto(environ, start_response))
        for call in self.after:
            call(parameters)
        return answer

    def _of_its_own(self, parameters: Parameters) -> str | None:
        """An answer that moto would not give; None for all others."""
        if parameters.get("Action") == "DescribeSpotInstanceRequests":
            return _SPOT.format(
                items="".join(_SPOT_ITEM.format(id=id, code=code) for id, code in self.spot_status.items())
            )
        by_tag = any(name.startswith("Filter.") and value.startswith("tag:") for name, value in parameters.items())
        too_early = time.monotonic() - self._started_at < self.tags_late
        return _NONE_FOUND if parameters.get("Action") == "DescribeInstances" and by_tag and too_early else None

    @staticmethod
    def _moto(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        answer: Iterable[bytes] = _MOTO(environ, start_response)
        return answer


ACCOUNT = "123456789012"  # moto's


def states(region: str) -> dict[str, str]:
    """The state of each instance, by its id: as EC2 tells it, without the way through its interface."""
    from moto.ec2.models import ec2_backends

    reservations = ec2_backends[ACCOUNT][region].all_reservations()
    return {one.id: one.instance_state.name for part in reservations for one in part.instances}


class _Quiet(MotoRequestHandler):  # type: ignore[misc]  # mypy does not read moto
    def log(self, type: str, message: str, *args: object) -> None:
        """Nothing: there are thousands of requests."""


_MOTO = DomainDispatcherApplication(create_backend_app)


@contextmanager
def running_aws(host: str) -> Iterator[EmulatedAws]:
    """Answer on that address of this machine until the end."""
    aws = EmulatedAws()
    server = make_server(host, 0, aws, True, request_handler=_Quiet)
    aws.url = f"http://{host}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield aws
    finally:
        server.shutdown()
        thread.join(30)
