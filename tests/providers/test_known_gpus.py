"""GPUs that other tools list: those that we do not know are few, and each has its reason."""

import pytest

from broker.core.market.accelerators import canonical
from providers.azure.machines import machine

NAMES_OF_2026 = """\
GB300, MI350X, MI250X, Trainium3, TPU7x, RTX PRO 4000, RTX PRO 4500, RTX PRO 5000, RTX PRO 6000 Max-Q, H800, H20, A800,
RTX PRO 6000 Blackwell, GH200 SXM, A16, A2, Gaudi1, Inferentia1, P40, M60, Quadro RTX 8000, RTX A4500, RTX 2000 Ada,
RTX 4000 Ada, RTX 5000 Ada, RTX 3060, RTX 3070, RTX 3080, RTX 4060 Ti, RTX 4070S Ti, RTX 4080 Super, RTX 5070 Ti,
RTX 5080, Radeon Pro V520, VR200, Rubin VR200, MI430X, AMD Instinct MI440X, MI455X,
L20, GB10, RTX 4000 SFF Ada, tpu-v7, Radeon PRO V710"""


@pytest.mark.parametrize("name", [name.strip() for name in NAMES_OF_2026.split(",")])
def test_gpus_that_providers_list_in_2026_are_known(name: str) -> None:
    assert canonical(name)


@pytest.mark.parametrize(
    ("said", "gib", "meant"),
    [
        ("RTX 3080", 12, "RTX3080-12GB"),
        ("RTX 4060 Ti", 16, "RTX4060Ti-16GB"),
        ("RTX A2000", 12, "A2000-12GB"),
        ("A100_40GB", 80, "A100"),
    ],
)
def test_memory_tells_the_variants_of_one_name_apart(said: str, gib: float, meant: str) -> None:
    assert canonical(said, gib) == meant


@pytest.mark.parametrize(
    ("name", "gpu", "count"),
    [
        ("Standard_ND96asr_A100_v4", "A100", 8),
        ("Standard_ND96is_flex_H100_v5", "H100", 8),
        ("Standard_ND96isr_noIB_H100_v5", "H100", 8),
        ("Standard_ND96isrf_H100_v5", "H100", 8),
        ("Standard_ND40s_v2", "V100-32GB", 8),
        ("Standard_NV48s_v3", "M60", 4),
        ("Standard_ND128isr_GB300_v6", "GB300", 4),
        ("Standard_NC36ds_xl_RTXPRO6000BSE_v6", "RTXPRO6000-1of4", 1),
        ("Standard_NC288ds_xl_RTXPRO6000BSE_v6", "RTXPRO6000", 2),
        ("Standard_NV28adms_V710_v5", "V710", 1),
    ],
)
def test_azure_machines_of_other_names_are_known(name: str, gpu: str, count: int) -> None:
    assert (machine(name).gpu, machine(name).n) == (gpu, count)
