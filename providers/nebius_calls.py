"""Nebius's interface through its own SDK: projects, machines, capacity and the price calculator; and our errors.

Interface: github.com/nebius/api (``billing.v1.CalculatorService``, ``compute.v1.PlatformService``,
``capacity.v1.ResourceAdviceService``, ``iam.v2``), in the SDK ``nebius`` 0.6. Read in November 2026.
"""

import socket
from collections.abc import Iterator, Mapping
from typing import Any, Self
from urllib.parse import urlsplit

from broker.core.errors import (
    BrokerError,
    HostUnknown,
    InvalidInput,
    LoginMissing,
    Malformed,
    MissingExtra,
    Refused,
    Throttled,
    Unreachable,
)
from providers.http import NO_NETWORK, HttpSettings, Url, setting

NAME = "nebius"
DOMAIN = "https://api.nebius.cloud"
_ROWS_PER_PAGE, _MAX_PAGES = 100, 100
_INSTANCE = "type.googleapis.com/nebius.compute.v1.CreateInstanceRequest"
_TRANSIENT = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "INTERNAL")


class NebiusCalls:
    """Calls for the length of one poll; use it in a ``with`` statement. ``login``: the SDK's keyword arguments with the
    credentials; ``how``: the hint for a refused login."""

    def __init__(self, settings: HttpSettings, base_url: Url, login: Mapping[str, Any], how: str) -> None:
        self._settings = settings
        self._base = base_url
        self._login = login
        self._how = how
        seconds = settings.timeout_seconds
        longest = seconds * settings.attempts
        self._times = {
            "per_retry_timeout": seconds,
            "timeout": longest,
            "auth_timeout": 2 * longest,
            "retries": settings.attempts,
        }

    def __enter__(self) -> Self:
        """Raises `MissingExtra` without the SDK, and `InvalidInput` for a login or certificates that cannot be used."""
        try:
            from nebius.base.options import INSECURE
            from nebius.base.resolver import Constant
            from nebius.sdk import SDK
        except ModuleNotFoundError as error:
            raise MissingExtra(NAME, "Nebius's prices") from error
        url = urlsplit(self._base)
        address = f"{url.hostname}:{url.port or (80 if url.scheme == 'http' else 443)}"
        domain_options = {"domain": address} if self._base == DOMAIN else {"resolver": Constant(address)}
        options = [(INSECURE, True)] if url.scheme == "http" else []
        try:
            self._sdk = SDK(
                **self._login,
                **domain_options,
                options=options,
                tls_credentials=self._trust(),
                user_agent_prefix="gpubroker/1",
            )
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise InvalidInput(f"the login cannot be used: {error}", where=NAME, hint=self._how) from error
        return self

    def __exit__(self, *exc: object) -> None:
        self._sdk.sync_close(timeout=self._settings.timeout_seconds)

    def tenants(self) -> Iterator[Any]:
        """The tenants of the login. Also raises `HostUnknown`: it is the first call, so that no timeout is waited for
        without a network."""
        from nebius.api.nebius.iam.v2 import ListTenantsRequest, TenantServiceClient

        host = self._sdk.get_addr_from_service_name(TenantServiceClient.__service_name__).rpartition(":")[0]
        try:
            socket.getaddrinfo(host, None)
        except OSError as error:
            raise HostUnknown(f"no address for {host}", where=NAME, hint=NO_NETWORK) from error
        yield from self._pages(TenantServiceClient, ListTenantsRequest)

    def projects(self, tenant: str) -> Iterator[Any]:
        """A tenant's projects, each in a region."""
        from nebius.api.nebius.iam.v2 import ListProjectsRequest, ProjectServiceClient

        yield from self._pages(ProjectServiceClient, ListProjectsRequest, parent_id=tenant)

    def platforms(self, project: str) -> Iterator[Any]:
        """The kinds of machines in the project's region, with their presets."""
        from nebius.api.nebius.compute.v1 import ListPlatformsRequest, PlatformServiceClient

        yield from self._pages(PlatformServiceClient, ListPlatformsRequest, parent_id=project)

    def advice(self, tenant: str) -> Iterator[Any]:
        """The machines available to the tenant now, by region and preset."""
        from nebius.api.nebius.capacity.v1 import ListResourceAdviceRequest, ResourceAdviceServiceClient

        yield from self._pages(ResourceAdviceServiceClient, ListResourceAdviceRequest, parent_id=tenant)

    def estimate(self, project: str, platform: str, preset: str, *, spot: bool) -> Any:
        """The list price of one machine per hour, without disks, in USD."""
        from nebius.api.google.protobuf import Any as Packed
        from nebius.api.nebius.billing.v1 import (
            CalculatorServiceClient,
            EstimateBatchRequest,
            FilterAggregationUnit,
            ResourceSpec,
        )
        from nebius.api.nebius.common.v1 import ResourceMetadata
        from nebius.api.nebius.compute.v1 import CreateInstanceRequest, InstanceSpec, PreemptibleSpec, ResourcesSpec

        machine = InstanceSpec(
            resources=ResourcesSpec(platform=platform, preset=preset), preemptible=PreemptibleSpec() if spot else None
        )
        create_request = CreateInstanceRequest(metadata=ResourceMetadata(parent_id=project), spec=machine)
        packed = Packed(type_url=_INSTANCE, value=create_request.SerializeToString())
        hour = FilterAggregationUnit.FilterAggregationUnitValue.FILTER_AGGREGATION_UNIT_HOUR
        request = EstimateBatchRequest(
            resource_specs=[ResourceSpec(spec=packed)],
            currency="usd",
            filter_aggregation_unit=FilterAggregationUnit(filter_aggregation_unit_values=[hour]),
        )
        return self._ask(CalculatorServiceClient(self._sdk).estimate_batch, request)

    def _pages(self, client: Any, request: Any, **parameters: str) -> Iterator[Any]:
        token, method = "", client(self._sdk).list
        for _ in range(_MAX_PAGES):
            answer = self._ask(method, request(page_size=_ROWS_PER_PAGE, page_token=token, **parameters))
            yield from answer.items
            token = answer.next_page_token
            if not token:
                return
        raise Malformed(f"{client.__name__}: more than {_MAX_PAGES} pages", where=NAME)

    def _ask(self, method: Any, request: Any) -> Any:
        from nebius.aio.service_error import RequestError
        from nebius.base.error import SDKError

        try:
            answer = method(request, **self._times).wait()
        except RequestError as error:
            code, message = error.status.code, error.status.message or ""
            raise self._failure(getattr(code, "name", str(code)), " ".join(message.split())[:200]) from error
        except SDKError as error:
            raise Unreachable(f"cannot be reached: {str(error)[:200]}", where=self._where, hint=self._change) from error
        if answer is None:  # gRPC's code for a message that its parser refuses
            raise Malformed("the response is not the expected message", where=self._where)
        return answer

    def _failure(self, code: str, message: str) -> BrokerError:
        text = f"{code}: {message}" if message else code
        if code == "UNAUTHENTICATED":
            return LoginMissing(f"{text}: the login is wrong or has expired", where=self._where, hint=self._how)
        if code == "RESOURCE_EXHAUSTED":
            return Throttled(f"{text}: rate limit exceeded", where=self._where, hint="poll less often")
        if code in _TRANSIENT:
            return Unreachable(text, where=self._where, hint=self._change)
        return Refused(text, where=self._where)

    @property
    def _where(self) -> str:
        return f"{NAME}: {urlsplit(self._base).hostname}"

    @property
    def _change(self) -> str:
        return f"is {setting(NAME, 'base_url')} right, and the network up?"

    def _trust(self) -> Any:
        bundle = self._settings.ca_bundle
        if bundle is None:
            return None
        from grpc import ssl_channel_credentials

        return ssl_channel_credentials(root_certificates=bundle.read_bytes())
