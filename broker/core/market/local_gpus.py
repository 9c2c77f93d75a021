"""The NVIDIA GPUs of this machine, as NVML reports them. The NVML binding is passed in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker.core.errors import UnknownName
from broker.core.market.accelerators import canonical
from broker.core.market.offers import SkippedRow

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class LocalGpu:
    """One GPU. ``index``: NVML's index, in PCI bus order. ``linked``: its first NVLink is up."""

    index: int
    accelerator: str
    linked: bool


def local_gpus(nvml: Any) -> tuple[list[LocalGpu], list[SkippedRow]]:
    """The usable GPUs in order, and the others with the reason. Never raises the binding's NVMLError."""
    gpus: list[LocalGpu] = []
    skipped: list[SkippedRow] = []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return gpus, [SkippedRow("nvml_unavailable", f"NVML does not answer: {error}")]
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                result = _device(nvml, index)
            except nvml.NVMLError as error:
                skipped.append(SkippedRow("gpu_unreadable", f"GPU {index}: {error}"))
                continue
            if isinstance(result, SkippedRow):
                skipped.append(result)
            else:
                gpus.append(result)
    except nvml.NVMLError as error:
        skipped.append(SkippedRow("nvml_unavailable", f"the GPUs cannot be counted: {error}"))
    finally:
        _call_optional(nvml, nvml.nvmlShutdown)
    return gpus, skipped


def _device(nvml: Any, index: int) -> LocalGpu | SkippedRow:
    """Raises the binding's NVMLError."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    raw = nvml.nvmlDeviceGetName(handle)
    name = raw.decode() if isinstance(raw, bytes) else str(raw)
    memory_gib = nvml.nvmlDeviceGetMemoryInfo(handle).total / _GIB
    mig = _call_optional(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if mig is not None and mig[0]:
        return SkippedRow("gpu_in_mig_mode", f"GPU {index}: {name} is cut into MIG slices, which are not offered")
    try:
        accelerator = canonical(name, memory_gib)
    except UnknownName:
        return SkippedRow(
            "unknown_accelerator", f"GPU {index}: {name!r} ({memory_gib:.0f} GiB) is not in the GPU table"
        )
    return LocalGpu(index, accelerator, bool(_call_optional(nvml, nvml.nvmlDeviceGetNvLinkState, handle, 0)))


def _call_optional(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of an optional call; None if this GPU or driver does not support it."""
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None
