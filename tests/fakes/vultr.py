"""Vultr's public lists of plans, with the fields of its API v2 ("List Plans", "List Bare Metal Plans")."""

from typing import Any

from pydantic import Field

from tests.fakes.server import HttpAnswer, HttpRequest
from tests.fakes.strict import StrictBody


class VultrCost(StrictBody):
    monthly_cost: float
    hourly_cost: float
    monthly_cost_preemptible: float
    hourly_cost_preemptible: float


class VultrPlan(VultrCost):
    """A cloud GPU plan."""

    id: str
    vcpu_count: int = 12
    ram: int = 122880
    disk: int = 1400
    disk_count: int = 1
    bandwidth: int = 10240
    type: str = "vcg"
    locations: list[str]
    gpu_vram_gb: int
    gpu_type: str
    invoice_type: str = "hourly"
    deploy_ondemand: bool = True
    deploy_preemptible: bool = False
    location_cost: dict[str, VultrCost] = Field(default_factory=dict)


class VultrMetal(VultrCost):
    """A bare metal plan."""

    id: str
    physical_cpus: int = 2
    cpu_count: int = 112
    cpu_threads: int = 224
    cpu_model: str = "Platinum 8480+"
    ram: int = 2097152
    disk: int = 960
    disk_count: int = 2
    bandwidth: int = 15360
    type: str = "NVMe"
    locations: list[str]
    deploy_ondemand: bool = True
    deploy_preemptible: bool = False


def vultr_cost(hourly: float, preemptible: float = 0.0) -> dict[str, Any]:
    """The price fields of a plan; 672 hours per month, as Vultr counts."""
    both = {"hourly_cost": hourly, "monthly_cost": hourly * 672}
    return {**both, "hourly_cost_preemptible": preemptible, "monthly_cost_preemptible": preemptible * 672}


class VultrMarket:
    """Answers both lists, with ``a_page`` plans per page."""

    def __init__(self, plans: list[VultrPlan], metal: list[VultrMetal], a_page: int = 500) -> None:
        self._lists: dict[str, tuple[str, list[dict[str, Any]]]] = {
            "/plans": ("plans", [plan.model_dump() for plan in plans]),
            "/plans-metal": ("plans_metal", [plan.model_dump() for plan in metal]),
        }
        self._a_page = a_page

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if request.method != "GET" or request.path not in self._lists:
            return HttpAnswer(404, {"error": "Invalid resource", "status": 404})
        key, rows = self._lists[request.path]
        first = int(request.query.get("cursor", "0"))
        last = first + min(self._a_page, int(request.query.get("per_page", "100")))
        page = rows[first:last]
        links = {"next": str(last) if last < len(rows) else "", "prev": ""}
        return HttpAnswer(200, {key: page, "meta": {"total": len(rows), "links": links}})
