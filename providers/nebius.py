"""Nebius's GPU machines on demand and preemptible, by region, with the machines available at once. Needs a login.

Nebius has no list of prices: for each preset of each platform in each region where the login has a project, its
calculator is queried for an hour of one machine (without disks), at list prices in dollars. That is one call for each;
what is available comes in one list for a tenant. Traps: a preset's GPUs are in its ``resources``; ``gpu-rtx6000`` is
the RTX PRO 6000, identified by its memory; availability is clipped by the tenant's quota, and says how old it is.
No rate limit is published.

Interface: github.com/nebius/api (``billing.v1.CalculatorService``, ``compute.v1.PlatformService``,
``capacity.v1.ResourceAdviceService``, ``iam.v2``), in the SDK ``nebius`` 0.6. Read in November 2026.
"""

import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from os import environ
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import SecretStr

from broker.core.errors import (
    BrokerError,
    HostUnknown,
    InvalidInput,
    LoginMissing,
    Malformed,
    MissingExtra,
    NoLogin,
    Refused,
    Throttled,
    Unreachable,
)
from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import Clock
from broker.core.values.money import Money
from providers import rows as parse
from providers.failures import Failures
from providers.http import NO_NETWORK, HttpSettings, Url, endpoint, setting, usable_key
from providers.rows import OfferRows, RowRejected, short

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


_VARIABLE = "NEBIUS_IAM_TOKEN"
_GPU = "gpu-"
_FORM = re.compile(r"-[a-z]$")  # gpu-l40s-a, gpu-b200-sxm-a: of one card in other machines
_PRO_6000 = ("rtx6000", 90)  # its canonical name, and the memory (GB) from which it is that card
_MAX_AGE = {CapacityType.ON_DEMAND: timedelta(hours=6), CapacityType.SPOT: timedelta(minutes=30)}
_FRESH = "DATA_STATE_FRESH"


class NebiusSettings(HttpSettings):
    """``base_url``: of Nebius's API; if changed, all services are called there. ``iam_token``: default:
    NEBIUS_IAM_TOKEN. ``credentials_file``: of a service account, as Nebius's command line writes it."""

    base_url: Url = DOMAIN
    iam_token: SecretStr | None = None
    credentials_file: Path | None = None


@dataclass(frozen=True, slots=True)
class _Preset:
    """One size of machine in one region. ``stock``: Nebius's ResourceAdviceStatus, None if it is not reported."""

    region: str
    project: str
    platform: str
    name: str
    accelerator: str
    count: int
    cpus: float | None
    memory_gib: float | None
    stock: Any

    def __str__(self) -> str:
        return f"{self.region}: {self.platform} {self.name}"


class Nebius:
    """Every preset with GPUs, in every region where the login has a project."""

    name = NAME
    Settings: ClassVar = NebiusSettings
    _source = "nebius-calculator"

    def __init__(
        self, *, clock: Clock, settings: NebiusSettings | None = None, environment: Mapping[str, str] = environ
    ) -> None:
        self._clock = clock
        self._settings = settings or NebiusSettings()
        self._token = usable_key(self._settings.iam_token) or usable_key(environment.get(_VARIABLE))
        file_hint = f"{setting(NAME, 'credentials_file')} to a service account's file"
        self._how = f"set {_VARIABLE} to a token (`nebius iam get-access-token`), or {file_hint}"

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """All offers, whatever the query. A failure in one region does not stop the others. Raises `LoginMissing`,
        `MissingExtra`, `RetryLater`, `Refused` and `Malformed`."""
        file = self._settings.credentials_file
        if self._token is None and file is None:
            raise NoLogin("Nebius's prices need a login, and none is set", where=NAME, hint=self._how)
        login = {"credentials_file_name": file} if file else {"credentials": self._token}
        failures = Failures()
        with NebiusCalls(self._settings, self._settings.base_url, login, self._how) as calls:
            yield from parse.distinct(self._everywhere(calls, failures))
        failures.raise_any()

    def describe_setup(self) -> Mapping[str, Any]:
        has_login = self._token is not None or self._settings.credentials_file is not None
        return {
            "endpoints": {"api": endpoint(NAME, "base_url", self._settings.base_url)},
            "logins": {"iam_token": {"found": has_login, "how": self._how, "adds": "Nebius's prices and capacity"}},
        }

    def _everywhere(self, calls: NebiusCalls, failures: Failures) -> OfferRows:
        seen_regions = set[str]()
        for tenant in [row.metadata.id for row in calls.tenants()]:
            stock = yield from _stock(calls, tenant, failures)
            for project in failures.until_failure(calls.projects(tenant)):
                region = project.spec.region
                if not region:
                    yield SkippedRow("no_region", f"project {short(project.metadata.id)}")
                elif region not in seen_regions:  # prices are a region's, not a project's
                    seen_regions.add(region)
                    yield from failures.until_failure(self._in_region(calls, region, project.metadata.id, stock))

    def _in_region(
        self, calls: NebiusCalls, region: str, project: str, stock: Mapping[tuple[str, str, str], Any]
    ) -> OfferRows:
        for platform in calls.platforms(project):
            for preset in _presets(platform, region, project, stock):
                if isinstance(preset, SkippedRow):
                    yield preset
                    continue
                kinds = [CapacityType.ON_DEMAND]
                kinds += [CapacityType.SPOT] if platform.status.allowed_for_preemptibles else []
                for kind in kinds:
                    try:
                        hourly = _estimated_price(calls, preset, kind)
                    except RowRejected as error:
                        yield error.skipped
                    else:
                        yield self._offer(preset, kind, hourly)

    def _offer(self, preset: _Preset, kind: CapacityType, hourly: Money) -> Offer:
        availability, reason, slots = _availability(preset.stock, kind)
        link = Interconnect.NVLINK if "sxm" in preset.platform else Interconnect.PCIE
        return Offer(
            provider=NAME,
            region=preset.region,
            zone=None,
            instance_type=f"{preset.platform}_{preset.name}",
            accelerator=preset.accelerator,
            count=preset.count,
            capacity_type=kind,
            price=hourly,
            as_of=self._clock.now(),
            source=self._source,
            cpus=preset.cpus,
            memory_gib=preset.memory_gib,
            interconnect=link if preset.count > 1 else None,
            availability=availability,
            unavailable_because=reason,
            slots=slots,
            max_age=_MAX_AGE[kind],
        )


def _stock(calls: NebiusCalls, tenant: str, failures: Failures) -> Any:
    """The tenant's available machines, by region, platform and preset; and a generator of unknown ones."""
    stock: dict[tuple[str, str, str], Any] = {}
    try:
        for row in calls.advice(tenant):
            machine = row.spec.compute_instance
            if machine is not None:
                stock[row.spec.region, machine.platform, machine.preset.name] = row.status
    except Refused as error:  # a login without that right still has prices
        yield SkippedRow("not_told", f"what is available: {error.message}")
    except BrokerError as error:
        failures.add(error)
    return stock


def _presets(
    platform: Any, region: str, project: str, stock: Mapping[tuple[str, str, str], Any]
) -> Iterator[_Preset | SkippedRow]:
    raw_name, rows = platform.metadata.name, list(platform.spec.presets)
    if not raw_name.startswith(_GPU) and rows and not any(row.resources.gpu_count for row in rows):
        return  # machines without GPUs
    try:
        kind, memory = parse.name(raw_name, f"{region}: platform"), platform.spec.gpu_memory_gigabytes
        if not rows:
            raise RowRejected("malformed_row", f"{region}: {kind}: no presets")
        card = _card(kind, memory)
    except RowRejected as error:
        yield error.skipped
        return
    for row in rows:
        resources = row.resources
        try:
            preset = parse.name(row.name, f"{region}: {kind}: preset")
            yield _Preset(
                region=parse.name(region, "region"),
                project=project,
                platform=kind,
                name=preset,
                accelerator=card,
                count=parse.whole(resources.gpu_count, f"{region}: {kind} {preset}: GPUs"),
                cpus=parse.figure(resources.vcpu_count),
                memory_gib=parse.figure(resources.memory_gibibytes),
                stock=stock.get((region, raw_name, row.name)),
            )
        except RowRejected as error:
            yield error.skipped


def _card(platform: str, memory: int) -> str:
    """From ``gpu-h100-sxm`` or ``gpu-l40s-a``, and the memory of one card."""
    if not 0 < memory < 10_000:
        raise RowRejected("malformed_row", f"{platform}: {memory} GB a card")
    plain = _FORM.sub("", platform.removeprefix(_GPU))
    if plain == _PRO_6000[0] and memory >= _PRO_6000[1]:
        plain = "RTX PRO 6000"
    return parse.accelerator(plain, plain.removesuffix("-sxm"), memory_gib=float(memory))


def _estimated_price(calls: NebiusCalls, preset: _Preset, kind: CapacityType) -> Money:
    """USD per hour, by Nebius's calculator."""
    label = f"{preset}, {kind}"
    estimate = partial(calls.estimate, preset.project, preset.platform, preset.name)
    try:
        answer = estimate(spot=kind is CapacityType.SPOT)
    except Refused as error:
        raise RowRejected("no_estimate", f"{label}: {error.message}") from error
    parse.usd(answer.currency)
    costs = [cost for cost in answer.total_costs if cost.aggregation_unit.unit.lower() == "hour"]
    general = costs[0].general if len(costs) == 1 else None
    if general is None:
        raise RowRejected("no_price", f"{label}: {len(costs)} costs of an hour")
    return parse.price(parse.decimal_text(general.total.cost or None), label)


def _availability(status: Any, kind: CapacityType) -> tuple[Availability, str, int | None]:
    advice = None if status is None else status.preemptible if kind is CapacityType.SPOT else status.on_demand
    if advice is None or advice.data_state.name != _FRESH:
        return Availability.UNKNOWN, "", None
    if advice.available:
        return Availability.AVAILABLE, "", int(advice.available)
    if not advice.limit:
        return Availability.NO_QUOTA, "the tenant has no quota for it", None
    return Availability.UNAVAILABLE, "none is available now", None
