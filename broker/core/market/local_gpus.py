"""The NVIDIA GPUs of this machine and the MIG slices of those that are cut, as NVML reports them. The NVML binding is
passed in."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from broker.core.errors import UnknownName
from broker.core.market.accelerators import canonical
from broker.core.market.offers import SkippedRow

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class LocalGpu:
    """One GPU, or one MIG slice of it. ``index``: NVML's index of the card, in PCI bus order. ``linked``: its first
    NVLink is up. ``uuid``: of the slice; empty for a card."""

    index: int
    accelerator: str
    linked: bool = False
    uuid: str = ""

    @property
    def device(self) -> int | str:
        """How CUDA is told to use it."""
        return self.uuid or self.index


def local_gpus(nvml: Any) -> tuple[list[LocalGpu], list[SkippedRow]]:
    """The usable GPUs and slices in order, and the others with the reason. Never raises the binding's NVMLError."""
    gpus: list[LocalGpu] = []
    skipped: list[SkippedRow] = []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return gpus, [SkippedRow("nvml_unavailable", f"NVML does not answer: {error}")]
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                for result in _devices(nvml, index):
                    if isinstance(result, SkippedRow):
                        skipped.append(result)
                    else:
                        gpus.append(result)
            except nvml.NVMLError as error:
                skipped.append(SkippedRow("gpu_unreadable", f"GPU {index}: {error}"))
    except nvml.NVMLError as error:
        skipped.append(SkippedRow("nvml_unavailable", f"the GPUs cannot be counted: {error}"))
    finally:
        _call_optional(nvml, nvml.nvmlShutdown)
    return gpus, skipped


def _devices(nvml: Any, index: int) -> Iterator[LocalGpu | SkippedRow]:
    """The card, or its slices if it is in MIG mode. Raises the binding's NVMLError."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    mode = _call_optional(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if mode is None or not mode[0]:
        linked = bool(_call_optional(nvml, nvml.nvmlDeviceGetNvLinkState, handle, 0))
        yield _device(nvml, handle, index, linked=linked)
        return
    number = 0
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        part = _call_optional(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place)
        if part is not None:
            number += 1
            yield _device(nvml, part, index, uuid=_text(nvml.nvmlDeviceGetUUID(part)))
    if not number:
        detail = f"GPU {index} is in MIG mode, but not cut into slices: `nvidia-smi mig -cgi PROFILES -C` cuts it"
        yield SkippedRow("gpu_in_mig_mode", detail)


def _device(nvml: Any, handle: Any, index: int, *, linked: bool = False, uuid: str = "") -> LocalGpu | SkippedRow:
    """Raises the binding's NVMLError."""
    name = _text(nvml.nvmlDeviceGetName(handle))
    memory_gib = nvml.nvmlDeviceGetMemoryInfo(handle).total / _GIB
    try:
        accelerator = canonical(name, memory_gib)
    except UnknownName:
        return SkippedRow(
            "unknown_accelerator", f"GPU {index}: {name!r} ({memory_gib:.0f} GiB) is not in the GPU table"
        )
    return LocalGpu(index, accelerator, linked, uuid)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _call_optional(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of an optional call; None if this GPU or driver does not support it."""
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None
