"""The sort orders of a list of offers, in a module of their own because a command's help needs only their names."""

from enum import StrEnum


class OfferOrder(StrEnum):
    """Sort order of a list of offers."""

    GPU_PRICE = "gpu-price"
    PRICE = "price"
    PROVIDER = "provider"
    GPU = "gpu"
    AGE = "age"
    INTERRUPTIONS = "interruptions"
