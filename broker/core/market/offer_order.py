"""The sort orders of a list of offers, apart from what sorts: the help of a command needs their names alone."""

from __future__ import annotations

from enum import StrEnum


class OfferOrder(StrEnum):
    """Sort order of a list of offers."""

    GPU_PRICE = "gpu-price"
    PRICE = "price"
    PROVIDER = "provider"
    GPU = "gpu"
    AGE = "age"
    INTERRUPTIONS = "interruptions"
