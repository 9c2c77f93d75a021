"""AWS for its own client: moto, with a layer in front for operations that moto lacks or that it implements incorrectly.

The layer parses requests and writes answers with moto's parsers and serialisers, which follow botocore's models, and
checks both against the model: an answer with a field that AWS does not have is an error of the fake. Requests that
``tests.fakes.aws_cloud`` does not answer are passed to moto: zones, instance type offerings, machines.

Pinned to one version of moto in constraints.txt: ``moto.core`` is an internal interface.
"""

import io
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from botocore.model import OperationModel, Shape  # type: ignore[import-untyped]  # ships no types
from botocore.validate import ParamValidator  # type: ignore[import-untyped]  # ships no types
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import Request
from moto.core.serialize import get_serializer_class
from moto.core.utils import get_service_model
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server
from werkzeug.wrappers import Response

from tests.fakes.aws_cloud import AwsCloud, AwsFault

_SIGNED_FOR = re.compile(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/")
_CALLED = {"servicequotas": "service-quotas"}


class AwsGate:
    """The WSGI application: the operations of `AwsCloud` first, then moto."""

    def __init__(self, cloud: AwsCloud) -> None:
        self._cloud = cloud
        self._moto = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        signed = _SIGNED_FOR.search(environ.get("HTTP_AUTHORIZATION", ""))
        if signed:
            region, service = signed[1], signed[2]
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            environ["wsgi.input"] = io.BytesIO(body)
            request = Request({**environ, "wsgi.input": io.BytesIO(body)})
            operation = _operation(service, request)
            answer = self._answer(service, operation, region, request)
            if answer is not None:
                return answer(environ, start)
        answered: Iterable[bytes] = self._moto.get_application(environ)(environ, start)
        return answered

    def _answer(self, service: str, operation: str, region: str, request: Any) -> Response | None:
        model = get_service_model(_CALLED.get(service, service))
        protocol = str(model.protocol)
        for name in ((operation, region), operation):
            if faults := self._cloud.faults.get(name):
                return _fault(faults.pop(0) if len(faults) > 1 else faults[0], protocol)
        handler = getattr(self._cloud, f"{service}_{operation}", None)
        if handler is None:
            return None
        described = model.operation_model(operation)
        asked = _parsed(request, described, protocol)
        _check(asked, described.input_shape, f"request of {operation}")
        self._cloud.asked.append((operation, region, asked))
        answer = handler(asked, region)
        if isinstance(answer, AwsFault):
            return _fault(answer, protocol)
        if late := self._cloud.late_faults.get(operation):
            return _fault(late.pop(0) if len(late) > 1 else late[0], protocol)
        _check(answer, described.output_shape, f"answer of {operation}")
        written = get_serializer_class(model.service_name, protocol)(operation_model=described).serialize(answer)
        payload = written["body"] if isinstance(written["body"], bytes) else written["body"].encode()
        mangle = self._cloud.mangle.get(operation)
        return Response(mangle(payload) if mangle else payload, written["status_code"], written["headers"])


def _operation(service: str, request: Any) -> str:
    if target := request.headers.get("X-Amz-Target"):
        return str(target).rpartition(".")[2]
    if action := request.values.get("Action"):
        return str(action)
    if service == "s3":
        return _s3_operation(request)
    model = get_service_model(_CALLED.get(service, service))
    for name in model.operation_names:
        http = model.operation_model(name).http
        if http["method"] == request.method and http["requestUri"].partition("?")[0] == request.path:
            return str(name)
    return ""


def _s3_operation(request: Any) -> str:
    """``PutObject``, ``HeadBucket``, ``PutBucketEncryption``: moto answers them, unless a test wants a fault."""
    bucket, _, key = request.path.strip("/").partition("/")
    part = next((name for name in request.args if not request.args[name]), "")
    return f"{request.method.title()}{'Object' if key else 'Bucket'}{part.title()}" if bucket else ""


def _parsed(request: Any, described: OperationModel, protocol: str) -> dict[str, Any]:
    return dict(
        PROTOCOL_PARSERS[protocol](described).parse(
            {
                "body": b"" if protocol in ("ec2", "query") else request.get_data(),
                "headers": request.headers,
                "method": request.method,
                "url_params": {},
                "url_path": request.path,
                "values": request.values,
            }
        )
    )


def _check(value: dict[str, Any], shape: Shape, what: str) -> None:
    report = ParamValidator().validate(value, shape)
    assert not report.has_errors(), f"{what}: {report.generate_report()}"
    _check_names(value, shape, what)


def _check_names(value: Any, shape: Any, what: str) -> None:
    """Raises for unknown members, which botocore's validator accepts."""
    if shape.type_name == "structure":
        unknown = set(value) - set(shape.members)
        assert not unknown, f"{what}: AWS has no {sorted(unknown)}"
        for name, inner in value.items():
            _check_names(inner, shape.members[name], f"{what}.{name}")
    elif shape.type_name == "list":
        for inner in value:
            _check_names(inner, shape.member, what)


def _fault(fault: AwsFault, protocol: str) -> Response:
    if fault.body is not None:
        return Response(fault.body, fault.status)
    error = f"<Error><Code>{fault.code}</Code><Message>{fault.message}</Message></Error>"
    if protocol in ("rest-xml", "query"):
        return Response(error if protocol == "rest-xml" else f"<ErrorResponse>{error}</ErrorResponse>", fault.status)
    if protocol == "ec2":
        return Response(f"<Response><Errors>{error}</Errors><RequestID>r</RequestID></Response>", fault.status)
    return Response(
        json.dumps({"__type": fault.code, "message": fault.message}),
        fault.status,
        {"x-amzn-ErrorType": fault.code, "Content-Type": "application/x-amz-json-1.1"},
    )


@contextmanager
def serve_cloud() -> Iterator[AwsCloud]:
    """Serves the cloud on a free port during the block."""
    cloud = AwsCloud()

    class QuietMotoHandler(MotoRequestHandler):  # type: ignore[misc]  # mypy does not read moto
        def log(self, *args: Any) -> None:
            pass

    server = make_server("127.0.0.1", 0, AwsGate(cloud), threaded=True, request_handler=QuietMotoHandler)
    cloud.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield cloud
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
