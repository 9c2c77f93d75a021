"""The small clouds that gpuhunt reads, each under its name: the answers that gpuhunt's classes request.

Fields as gpuhunt 0.1.34 reads them and as the clouds' public documents have them. Logins are checked only if a test
requests it.
"""

from collections.abc import Callable
from typing import Any

from tests.fakes.server import HttpAnswer, HttpRequest

LOGINS = {
    "CRUSOE_ACCESS_KEY": "access-key-1", "CRUSOE_SECRET_KEY": "c2VjcmV0LW9mLWNydXNvZQ", "CRUSOE_PROJECT_ID": "p-1",
    "DIGITAL_OCEAN_API_KEY": "do-secret", "HOTAISLE_API_KEY": "ha-secret", "HOTAISLE_TEAM_HANDLE": "team",
    "JL_API_KEY": "jl-secret", "SEEWEB_API_TOKEN": "sw-secret",
}  # fmt: skip
GIB = 1024**3


def vultr_plan(id: str, gpu: str, vram: int, hourly: Any, *locations: str) -> dict[str, Any]:
    return {
        "id": id, "vcpu_count": 12, "ram": 122880, "disk": 1400, "disk_count": 1, "bandwidth": 10240,
        "monthly_cost": 1, "hourly_cost": hourly, "type": "vcg", "locations": list(locations), "gpu_vram_gb": vram,
        "gpu_type": gpu, "deploy_ondemand": True,
    }  # fmt: skip


def bodies() -> dict[str, Any]:
    """The answer of each path."""
    return {
        "/vultr/v2/plans-metal": {
            "plans_metal": [
                {
                    "id": "vbm-112c-2048gb-8-h100-gpu", "cpu_count": 2, "cpu_threads": 224, "cpu_model": "Platinum",
                    "ram": 2097152, "disk": 960, "locations": ["ewr"], "hourly_cost": 23.92, "type": "SSD",
                }
            ],
            "meta": {"total": 1, "links": {"next": "", "prev": ""}},
        },
        "/vultr/v2/plans": {
            "plans": [
                vultr_plan("vcg-l40s-16c-180g-48vram", "NVIDIA_L40S", 48, 1.671, "ewr", "ord"),
                vultr_plan("vcg-a100-12c-120g-80vram", "NVIDIA_A100", 80, 2.397, "ewr"),
                vultr_plan("vcg-a100-1c-6g-4vram", "NVIDIA_A100", 4, 0.123, "ewr"),
                {**vultr_plan("vc2-1c-1gb", "", 0, 0.007, "ewr"), "type": "vc2"},
            ],
            "meta": {"total": 4, "links": {"next": "", "prev": ""}},
        },
        "/lium/api/public/v1/nodes": {
            "nodes": [
                {
                    "id": "0b1c", "gpu_model": "RTX 4090", "gpu_count": 8, "available_gpu_count": 2,
                    "min_rentable_gpu_count": 1, "price_per_gpu_hour": 0.29, "gpu_memory_gb": 24, "cpu_count": 128,
                    "ram_gb": 512, "disk_free_gb": 1500, "country_code": "US", "region": "CA", "tier": "on_demand",
                    "rent_url": "https://lium.io/rent/0b1c",
                },
                {
                    "id": "7f3e", "gpu_model": "H100 80GB HBM3", "gpu_count": 8, "available_gpu_count": 8,
                    "min_rentable_gpu_count": 8, "price_per_gpu_hour": 1.8, "gpu_memory_gb": 80, "cpu_count": 192,
                    "ram_gb": 2048, "disk_free_gb": 9000, "country_code": "DE", "region": None, "tier": "spot",
                },
            ]
        },
        "/cloudrift/api/v1/instance-types/list": {
            "data": {
                "instance_types": [
                    {
                        "brand_short": "NVIDIA RTX 5090",
                        "variants": [
                            {
                                "name": "rtx59-16c-nr.1", "cost_per_hour": 65, "cpu_count": 16, "dram": 64 * GIB,
                                "disk": 512 * GIB, "gpu_count": 1, "vram": 32 * GIB, "nodes_per_dc": {"us-east": 3},
                            }
                        ],
                    }
                ]
            }
        },
        "/daytona/gpu-pricing": {
            "gpus": [{"type": "H100", "onDemandPricePerHour": 2.99, "spotPricePerHour": 1.49}],
            "resources": {
                "onDemand": {"vcpuPerHour": 0.0504, "memoryGiBPerHour": 0.0162, "diskGiBPerHour": 0.000108},
                "spot": {"vcpuPerHour": 0.0252, "memoryGiBPerHour": 0.0081, "diskGiBPerHour": 0.000054},
            },
        },
        "/daytona/api/shared-regions": [{"id": "us"}, {"id": "eu"}],
        "/digitalocean/v2/sizes": {
            "sizes": [
                {
                    "slug": "gpu-h100x8-640gb", "memory": 1966080, "vcpus": 160, "disk": 2046, "price_hourly": 23.92,
                    "regions": ["tor1", "nyc2"], "available": True,
                    "gpu_info": {"count": 8, "vram": {"amount": 640, "unit": "gib"}, "model": "nvidia_h100"},
                    "disk_info": [{"type": "local", "size": {"amount": 2046, "unit": "gib"}}],
                },
                {
                    "slug": "s-1vcpu-1gb", "memory": 1024, "vcpus": 1, "disk": 25, "price_hourly": 0.00893,
                    "regions": ["nyc1"], "available": True,
                    "disk_info": [{"type": "local", "size": {"amount": 25, "unit": "gib"}}],
                },
            ],
            "links": {},
            "meta": {"total": 2},
        },
        "/hotaisle/api/teams/team/virtual_machines/available/": [
            {
                "OnDemandPrice": 199,
                "Specs": {
                    "cpu_cores": 13, "ram_capacity": 224 * GIB, "disk_capacity": 13000 * GIB,
                    "gpus": [{"count": 1, "model": "MI300X", "manufacturer": "AMD"}],
                },
            }
        ],
        "/hotaisle/api/teams/team/bare_metal/available/": None,
        "/jarvislabs/misc/server_meta": {
            "server_meta": [
                {
                    "region": "india-noida-01", "gpu_type": "A100-80GB", "workload_type": "vm", "vram": "80",
                    "price_per_hour": 1.49, "cpus_per_gpu": 16, "ram_per_gpu": 120, "num_free_devices": 2,
                    "num_gpus": 8,
                }
            ],
            "cpu_meta": {},
        },
        "/seeweb/ecs/v2/plans": {
            "plans": [
                {
                    "name": "ECS1GPU8", "cpu": "16", "ram": "122880", "disk": "100", "gpu": "1",
                    "gpu_label": "H100 80GB", "hourly_price": "2.19", "available": True,
                    "available_regions": [{"location": "it-mi2"}],
                }
            ]
        },
        "/crusoe/v1alpha5/projects/p-1/compute/vms/types": {
            "items": [
                {
                    "product_name": "h100-80gb-sxm-ib.8x", "gpu_type": "H100-SXM-80GB", "num_gpu": 8, "cpu_cores": 176,
                    "memory_gb": 960, "disk_gb": 7680, "cpu_type": "x86_64",
                },
                {
                    "product_name": "b200-180gb-sxm-ib.8x", "gpu_type": "B200-SXM-180GB", "num_gpu": 8,
                    "cpu_cores": 192, "memory_gb": 1920, "disk_gb": 7680, "cpu_type": "x86_64",
                },
            ]
        },
        "/crusoe/v1alpha5/capacities": {
            "items": [
                {"type": "h100-80gb-sxm-ib.8x", "location": "us-east1-a", "quantity": 3},
                {"type": "b200-180gb-sxm-ib.8x", "location": "us-east1-a", "quantity": 1},
            ]
        },
    }  # fmt: skip


class LongTail:
    """Answers for all of these clouds. ``broken``: answers to return instead, by cloud."""

    def __init__(self) -> None:
        self.bodies = bodies()
        self.broken: dict[str, Callable[[HttpRequest], HttpAnswer]] = {}

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        cloud = request.path.split("/")[1]
        if cloud in self.broken:
            return self.broken[cloud](request)
        if request.path not in self.bodies:
            return HttpAnswer(404, {"error": f"no such path {request.path}"})
        return HttpAnswer(200, self.bodies[request.path])
