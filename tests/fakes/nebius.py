"""Nebius's gRPC services on loopback, with the SDK's own messages: a field that its API lacks is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

TOKEN = "nebius-test-token"
HOUR = "hour"


@dataclass
class NebiusMarket:
    """``presets``: by platform, its memory per card (GB) and its presets with GPUs and dollars per hour; None: no
    estimate. ``spot``: platforms with preemptible machines, at a third of the price. ``regions``: one project each.
    ``available``: by preset, on demand and preemptible (None: not reported at all). ``replace``: makes the bytes of an
    answer from the usual ones, by the service's method. ``refuse``: a status by method.
    """

    presets: dict[str, tuple[int, dict[str, tuple[int, str | None]]]]
    spot: tuple[str, ...] = ()
    regions: tuple[str, ...] = ("eu-north1",)
    available: dict[str, int] | None = field(default_factory=dict)
    replace: dict[str, Callable[[bytes], bytes]] = field(default_factory=dict)
    refuse: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def platform(self, called: str) -> Any:
        from nebius.api.nebius.common.v1 import ResourceMetadata
        from nebius.api.nebius.compute.v1 import Platform, PlatformSpec, PlatformStatus, Preset, PresetResources

        memory, presets = self.presets[called]
        rows = [
            Preset(name=name, resources=PresetResources(gpu_count=gpus, vcpu_count=16, memory_gibibytes=200))
            for name, (gpus, _) in presets.items()
        ]
        return Platform(
            metadata=ResourceMetadata(id=f"platform-{called}", name=called),
            spec=PlatformSpec(presets=rows, gpu_memory_gigabytes=memory),
            status=PlatformStatus(allowed_for_preemptibles=called in self.spot),
        )

    def answer(self, method: str, request: bytes) -> Any:
        """The answer of the service; None for a method that it lacks."""
        from nebius.api.nebius.common.v1 import ResourceMetadata
        from nebius.api.nebius.compute.v1 import ListPlatformsResponse
        from nebius.api.nebius.iam.v2 import ListProjectsResponse, ListTenantsResponse, Project, ProjectSpec, Tenant

        match method:
            case "nebius.iam.v2.TenantService/List":
                return ListTenantsResponse(items=[Tenant(metadata=ResourceMetadata(id="tenant-1"))])
            case "nebius.iam.v2.ProjectService/List":
                rows = [
                    Project(metadata=ResourceMetadata(id=f"project-{one}"), spec=ProjectSpec(region=one))
                    for one in self.regions
                ]
                return ListProjectsResponse(items=rows)
            case "nebius.compute.v1.PlatformService/List":
                return ListPlatformsResponse(items=[self.platform(one) for one in self.presets])
            case "nebius.capacity.v1.ResourceAdviceService/List":
                return self._advice()
            case "nebius.billing.v1.CalculatorService/EstimateBatch":
                return self._estimate(request)
        return None

    def _advice(self) -> Any:
        from nebius.api.nebius.capacity.v1 import (
            ComputeInstanceDetails,
            ListResourceAdviceResponse,
            ResourceAdvice,
            ResourceAdviceSpec,
            ResourceAdviceStatus,
        )

        def there(number: int) -> Any:
            made = ResourceAdviceStatus.Availability
            return made(data_state=made.DataState.DATA_STATE_FRESH, available=number, limit=8)

        rows = []
        for platform, (_, presets) in self.presets.items():
            for preset in presets if self.available is not None else ():
                number = (self.available or {}).get(preset, 2)
                machine = ComputeInstanceDetails(platform=platform, preset=ComputeInstanceDetails.Preset(name=preset))
                spec = ResourceAdviceSpec(region=self.regions[0], compute_instance=machine)
                status = ResourceAdviceStatus(on_demand=there(number), preemptible=there(0))
                rows.append(ResourceAdvice(spec=spec, status=status))
        return ListResourceAdviceResponse(items=rows)

    def _estimate(self, request: bytes) -> Any:
        from decimal import Decimal

        from nebius.api.nebius.billing.v1 import (
            AggregationUnit,
            CostBreakdown,
            EstimateBatchRequest,
            EstimateBatchResponse,
            GeneralResourceCost,
            TotalCost,
        )
        from nebius.api.nebius.compute.v1 import CreateInstanceRequest

        (wanted,) = EstimateBatchRequest.FromString(request).resource_specs
        assert wanted.spec.type_url.endswith("nebius.compute.v1.CreateInstanceRequest")
        machine = CreateInstanceRequest.FromString(wanted.spec.value).spec
        _, presets = self.presets.get(machine.resources.platform, (0, {}))
        dollars = presets.get(machine.resources.preset or "", (0, None))[1]
        if dollars is None:
            return "INVALID_ARGUMENT"
        hourly = Decimal(dollars) / (3 if machine.HasField("preemptible") else 1)
        total = CostBreakdown(cost=f"{hourly:f}"[:20])
        cost = TotalCost(aggregation_unit=AggregationUnit(unit=HOUR), general=GeneralResourceCost(total=total))
        return EstimateBatchResponse(currency="usd", total_costs=[cost])

    @contextmanager
    def served(self) -> Iterator[NebiusMarket]:
        """Served on loopback, at ``url``, during the block."""
        import grpc

        market = self

        class NebiusHandler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
            def service(self, details: Any) -> Any:
                method, metadata = details.method[1:], dict(details.invocation_metadata)
                return grpc.unary_unary_rpc_method_handler(partial(market._serve, method, metadata))

        server = grpc.server(ThreadPoolExecutor(2), handlers=(NebiusHandler(),))
        self.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield self
        finally:
            server.stop(0).wait()

    def _serve(self, method: str, metadata: dict[str, str], request: bytes, context: Any) -> bytes:
        import grpc

        def refuse(code: str, why: str) -> NoReturn:
            context.abort(grpc.StatusCode[code], why)
            raise AssertionError

        self.asked.append(method)
        if metadata.get("authorization") != f"Bearer {TOKEN}":
            refuse("UNAUTHENTICATED", "no such token")
        if method in self.refuse:
            refuse(self.refuse[method], "to order")
        found = self.answer(method, request)
        if found is None or isinstance(found, str):
            refuse(found or "UNIMPLEMENTED", method)
        content: bytes = found.SerializeToString()
        return self.replace.get(method, bytes)(content)
