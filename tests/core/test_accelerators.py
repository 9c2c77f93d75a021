"""The accelerator table: figures against published datasheets, names against what providers really say."""

import tomllib
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import UnknownName
from broker.core.market import accelerators
from broker.core.market.accelerators import (
    accelerator_names,
    canonical,
    card_share,
    lookup,
    nearest,
    part_of,
    relative_throughput,
    slices,
)
from broker.core.market.offers import part_price
from broker.core.values.money import Money

RAW = tomllib.loads(resources.files("broker.core.market").joinpath("gpus.toml").read_text(encoding="utf-8"))

# name: GB, dense 16-bit TFLOPS, dense FP8 TFLOPS, INT8 TOPS, memory bandwidth GB/s, W
DATASHEETS = {
    "T4": (16, 65, None, 130, 320, 70),
    "L4": (24, 121, 242.5, 242.5, 300, 72),
    "A10": (24, 125, None, 250, 600, 150),
    "A40": (48, 149.7, None, 299.3, 696, 300),
    "A6000": (48, 154.8, None, 309.7, 768, 300),
    "L40S": (48, 362, 733, 733, 864, 350),
    "RTX3090": (24, 71, None, 284, 936, 350),
    "RTX4090": (24, 165.2, 330.3, 660.6, 1008, 450),
    "RTX5090": (32, 209.5, 419, 838, 1792, 575),
    "V100": (16, 125, None, None, 900, 300),
    "A100": (40, 312, None, 624, 1555, 400),
    "A100-80GB": (80, 312, None, 624, 2039, 400),
    "H100": (80, 989, 1979, 1979, 3350, 700),
    "H100-PCIe": (80, 756, 1513, 1513, 2000, 350),
    "H100-NVL": (94, 835, 1671, 1671, 3900, 400),
    "H200": (141, 989, 1979, 1979, 4800, 700),
    "B200": (180, 2250, 4500, 4500, 8000, 1000),
    "GB200": (186, 2500, 5000, 5000, 8000, 1200),
    "B300": (288, 2250, 4500, None, 8000, 1100),
    "MI300X": (192, 1307.4, 2614.9, 2614.9, 5300, 750),
    "MI325X": (256, 1307.4, 2614.9, 2614.9, 6000, 1000),
    "MI355X": (288, 2516.6, 5033.2, 5033.2, 8000, 1400),
    "tpu-v4": (32, 275, None, 275, 1200, 192),
    "tpu-v5litepod": (16, 197, None, 393, 819, None),
    "tpu-v5p": (95, 459, None, 918, 2765, None),
    "tpu-v6e": (32, 918, None, 1836, 1638, None),
    "Inferentia2": (32, 190, 190, 380, 820, None),
    "Trainium": (32, 190, 190, 380, 820, None),
    "Trainium2": (96, 667, 1299, None, 2900, None),
    "Gaudi2": (96, 432, 865, None, 2460, 600),
    "Gaudi3": (128, 1835, 1835, None, 3700, 900),
}


@pytest.mark.parametrize("name", DATASHEETS)
def test_the_table_agrees_with_the_datasheet(name: str) -> None:
    card = lookup(name)
    shown = (
        card.memory_gb,
        card.tflops_16bit,
        card.tflops_fp8,
        card.tops_int8,
        card.bandwidth_gb_s,
        card.tdp_w,
    )
    for ours, theirs in zip(shown, DATASHEETS[name], strict=True):
        assert ours == (theirs if theirs is None else pytest.approx(theirs, rel=0.001))


@pytest.mark.parametrize("name", RAW)
def test_each_row_is_sound(name: str) -> None:
    row = RAW[name]
    assert len(row["source"]) > 15, "names the document"
    assert row["vendor"] in {"nvidia", "amd", "google", "aws", "intel"}
    numbers = {key: value for key, value in row.items() if isinstance(value, int | float) and value is not True}
    assert {key: value for key, value in numbers.items() if value <= 0} == {}, "unknown is left out, never 0"
    assert 2014 <= row["year"] <= 2026
    assert 1 <= row["maturity"] <= 5
    assert ("link" in row) == ("link_gb_s" in row)
    low, high = row.get("street_price_usd", (1, 2))
    assert 0 < low < high
    assert 0.9 * row["memory_gb"] <= row.get("memory_gib", row["memory_gb"]) <= row["memory_gb"]
    if row["vendor"] == "nvidia":
        assert "compute_capability" in row
    if "tflops_bf16" in row and "tflops_fp16" in row:
        assert row["tflops_bf16"] == row["tflops_fp16"]
    if "tflops_fp8" in row:
        assert row["tflops_bf16"] <= row["tflops_fp8"] <= 2.1 * row["tflops_bf16"]


def test_no_name_means_two_things() -> None:
    owner: dict[str, str] = {}
    for name, row in RAW.items():
        for said in (name, *row.get("aliases", ())):
            key = accelerators._normalized_name(said)
            assert owner.setdefault(key, said) == said, f"{said!r} of {name} is also {owner[key]!r}"


SAID_BY = {
    # NVML and nvidia-smi
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H100 PCIe": "H100-PCIe",
    "NVIDIA H100 NVL": "H100-NVL",
    "NVIDIA A100-SXM4-40GB": "A100",
    "NVIDIA A100-PCIE-40GB": "A100",
    "NVIDIA A100-SXM4-80GB": "A100-80GB",
    "NVIDIA A100 80GB PCIe": "A100-80GB",
    "Tesla T4": "T4",
    "Tesla V100-SXM2-16GB": "V100",
    "Tesla V100-SXM2-32GB": "V100-32GB",
    "NVIDIA GeForce RTX 4090": "RTX4090",
    "NVIDIA RTX A6000": "A6000",
    "NVIDIA RTX 6000 Ada Generation": "RTX6000-Ada",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTXPRO6000",
    "NVIDIA GH200 480GB": "GH200",
    "AMD Instinct MI300X OAM": "MI300X",
    # EC2 DescribeInstanceTypes
    "A10G": "A10G",
    "RTX PRO Server 6000": "RTXPRO6000",
    "Trainium2": "Trainium2",
    # Google Cloud accelerator types
    "nvidia-tesla-t4": "T4",
    "nvidia-l4": "L4",
    "nvidia-tesla-a100": "A100",
    "nvidia-a100-80gb": "A100-80GB",
    "nvidia-h100-80gb": "H100",
    "nvidia-h100-mega-80gb": "H100",
    "nvidia-h200-141gb": "H200",
    "nvidia-b200": "B200",
    "nvidia-gb200": "GB200",
    "nvidia-rtx-pro-6000": "RTXPRO6000",
    "tpu-v5-lite-podslice": "tpu-v5litepod",
    # Azure families
    "StandardNDASv4_A100Family": "A100",
    "standardNDSH100v5Family": "H100",
    # RunPod, Vast.ai, Lambda, Verda, SkyPilot
    "NVIDIA B300 SXM6 AC": "B300",
    "H100 SXM": "H100",
    "RTX 6000Ada": "RTX6000-Ada",
    "RTX PRO 6000 WS": "RTXPRO6000-WK",
    "A100 (80 GB SXM4)": "A100-80GB",
    "H200 SXM5 141GB": "H200",
    "NVIDIA H200 NVL": "H200-NVL",
    "Quadro RTX 6000": "RTX6000",
    "T4g": "T4g",
    "B200 SXM6 180GB": "B200",
    "A100-80GB-SXM": "A100-80GB",
    "RTXA6000": "A6000",
    # people
    "h100": "H100",
    "a100-80gb": "A100-80GB",
    "rtx_4090": "RTX4090",
    "Gaudi 3": "Gaudi3",
    "TPU-v5e": "tpu-v5litepod",
}


@pytest.mark.parametrize("said", SAID_BY)
def test_what_providers_and_drivers_say_is_understood(said: str) -> None:
    assert canonical(said) == SAID_BY[said]


@pytest.mark.parametrize(
    ("said", "gib", "meant"),
    [
        ("A100", 40, "A100"),
        ("A100", 80, "A100-80GB"),
        ("A100 SXM4", 79.6, "A100-80GB"),
        ("V100", 32, "V100-32GB"),
        ("Tesla V100", 16, "V100"),
        ("H100", 79.6, "H100"),
        ("H100", 94, "H100-NVL"),
        ("L40S", 44.7, "L40S"),
        ("A10G", 22.35, "A10G"),
        ("B300", 268.6, "B300"),
        ("H200", 141, "H200"),
        ("B200", 179.06, "B200"),
    ],
)
def test_memory_tells_variants_of_one_name_apart(said: str, gib: float, meant: str) -> None:
    assert canonical(said, memory_gib=gib) == meant


@given(
    st.sampled_from(accelerator_names()),
    st.sampled_from([str.upper, str.lower, str.title]),
    st.sampled_from([" ", "_", "-"]),
)
def test_spelling_does_not_matter(name: str, case: object, separator: str) -> None:
    assert canonical(case(name.replace("-", separator))) == name  # type: ignore[operator]  # a str method


@pytest.mark.parametrize("name", accelerator_names())
def test_a_canonical_name_is_its_own(name: str) -> None:
    assert canonical(name) == name == lookup(name).name


@pytest.mark.parametrize("typo", ["H10O", "RTX4909", "A100-80G", "MI300Y"])
def test_an_unknown_name_is_refused_with_a_suggestion(typo: str) -> None:
    with pytest.raises(UnknownName, match="did you mean"):
        canonical(typo)


@pytest.mark.parametrize("nonsense", ["", " ", "-", "abacus", "tpu-v5p-0", "tpu-v4-1", "tpu-v99-8", "H100-8"])
def test_nonsense_is_refused(nonsense: str) -> None:
    with pytest.raises(UnknownName):
        lookup(nonsense)


def test_a_tpu_slice_is_the_sum_of_its_chips() -> None:
    assert lookup("tpu-v5litepod-8").memory_gb == 8 * 16
    assert lookup("tpu-v6e-4").tflops_bf16 == 4 * 918
    assert lookup("tpu-v5p-8").tflops_bf16 == 4 * 459, "v5p counts TensorCores, two a chip"
    assert lookup("v5p-16").name == canonical("TPU-v5p-16") == "tpu-v5p-16"
    assert lookup("tpu-v5e-1").name == "tpu-v5litepod-1"


def test_a_part_of_a_card_has_its_share_and_is_not_the_card() -> None:
    part, whole = lookup("a10-1OF6"), lookup("A10")
    assert (part.name, part.memory_gb) == ("A10-1of6", whole.memory_gb / 6)
    assert part.tflops_16bit == pytest.approx((whole.tflops_16bit or 0) / 6)
    assert canonical("NVIDIA L4-1of8") == part_of("L4", 8) == "L4-1of8"
    assert canonical("A10", 4) == "A10", "memory alone makes no part: providers say which is one"
    assert "A10-1of6" not in accelerator_names()
    for nonsense in ("A10-1of1", "A10-1of65", "A10-2of6", "Voodoo-1of2", "A10-1of2-1of2"):
        with pytest.raises(UnknownName):
            lookup(nonsense)


@pytest.mark.parametrize(
    ("said", "name", "gigabytes", "sevenths"),
    [
        ("H100-80GB-1g.10gb", "H100-1g.10gb", 10, 1),
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", "H100-3g.40gb", 40, 3),  # NVML
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.20gb", "H100-1g.20gb", 20, 1),  # GPU feature discovery
        ("nvidia_a100_3g.40gb", "A100-80GB-3g.40gb", 40, 3),  # Slurm: the profile tells the card
        ("a100-2G.10GB+me", "A100-2g.10gb", 10, 2),
        ("NVIDIA H200 MIG 1g.18gb", "H200-1g.18gb", 141 / 8, 1),
        ("GH200-1g.12gb.me", "GH200-1g.12gb", 12, 1),
    ],
)
def test_a_slice_has_the_memory_and_the_compute_of_its_profile(
    said: str, name: str, gigabytes: float, sevenths: int
) -> None:
    part = lookup(said)
    card = lookup(card_share(name)[0])
    assert (part.name, canonical(said, gigabytes)) == (name, name)
    assert part.memory_gb == pytest.approx(gigabytes)
    assert part.tflops_16bit == pytest.approx((card.tflops_16bit or 0) * sevenths / 7)
    assert (part.link, part.mig_profiles) == (None, ())


@pytest.mark.parametrize("nonsense", ["H100-1g.5gb", "T4-1g.10gb", "1g.10gb", "H100-1c.3g.40gb", "H100-1g.10gb-shared"])
def test_a_slice_that_no_card_has_is_unknown(nonsense: str) -> None:
    with pytest.raises(UnknownName):
        lookup(nonsense)


_CUT = [name for name in accelerator_names() if lookup(name).mig_profiles]


@given(st.sampled_from(_CUT), st.lists(st.integers(0, 4), max_size=9), st.integers(0, 10**9))
def test_slices_that_fit_on_a_card_never_cost_more_than_it(card: str, chosen: list[int], micros: int) -> None:
    names = [slices(card)[number % len(slices(card))][0] for number in chosen]
    while sum(card_share(name)[1] for name in names) > 1:
        names.pop()
    stranded = Money(micros) - sum((part_price(Money(micros), name) for name in names), Money.ZERO)
    left = 1 - sum(card_share(name)[1] for name in names)
    assert 0 <= stranded.micros - left * micros <= len(names)
    assert part_price(Money(micros), card) == Money(micros)


def test_every_slice_of_the_table_is_an_equal_part_or_several_of_its_card() -> None:
    for card in _CUT:
        shares = [share for _, share in slices(card)]
        parts = 4 if lookup(card).mig_profiles[-1].startswith("4") else 8
        assert {share * parts for share in shares} == ({1, 2} if parts == 4 else {1, 2, 4}), card


def test_a_part_that_software_shares_is_another_than_one_that_hardware_cuts() -> None:
    assert lookup("l4-1of4-SHARED").name == "L4-1of4-shared" != lookup("L4-1of4").name
    assert card_share("L4-1of4-shared") == card_share("L4-1of4")


def test_work_is_converted_by_dense_16_bit_compute() -> None:
    assert relative_throughput("H100", "A100-80GB") == pytest.approx(989.5 / 312)
    assert relative_throughput("T4", "V100") == pytest.approx(65 / 125)
    assert relative_throughput("K80", "K80") == 1.0
    assert relative_throughput("K80", "A100") is None
    with pytest.raises(UnknownName):
        relative_throughput("A100", "abacus")


@given(st.sampled_from(accelerator_names()), st.sampled_from(accelerator_names()))
def test_conversion_there_and_back_changes_nothing(one: str, other: str) -> None:
    there, back = relative_throughput(one, other), relative_throughput(other, one)
    assert (there is None) == (back is None)
    if there is not None and back is not None:
        assert there * back == pytest.approx(1)


@pytest.mark.parametrize(
    ("written", "meant"), [("H100x8", "H100:8"), ("8xH100", "H100:8"), ("a100 X 4", "A100:4"), ("l4×2", "L4:2")]
)
def test_a_count_written_otherwise_is_recognised(written: str, meant: str) -> None:
    with pytest.raises(UnknownName, match=f"did you mean '{meant}'"):
        canonical(written)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("A10-1/6", "A10-1of6"), ("A10 2of6", "A10-1of3"), ("A10-3of3", "A10"), ("A10-2of3", ""), ("X9-1/2", "")],
)
def test_a_part_that_is_written_otherwise_is_recognised(text: str, meant: str) -> None:
    with pytest.raises(UnknownName) as error:
        canonical(text)
    assert (f"did you mean {meant!r}" in str(error.value)) == bool(meant)


def test_near_is_the_card_and_its_parts_then_its_vendor_by_size_and_speed() -> None:
    others = ["H100", "MI300X", "A10-1of2", "A10", "A10-1of6", "L4", "unknown"]
    assert nearest("A10-1of3", others, limit=5) == ["A10-1of2", "A10-1of6", "A10", "L4", "H100"]
    assert nearest("A10", ["A10"]) == []
