"""The providers by name, and their construction. A provider is imported on first use."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from broker.core.errors import InvalidInput, Problem, did_you_mean
from broker.core.ports import Provider
from broker.core.registry import load
from broker.core.values.clock import Clock

PROVIDERS: dict[str, str] = {
    "aws": "providers.aws.provider:Aws",
    "azure": "providers.azure.provider:Azure",
    "gcp": "providers.gcp.provider:Gcp",
    "gpuhunt": "providers.gpuhunt_tail:Gpuhunt",
    "hyperstack": "providers.hyperstack:Hyperstack",
    "kubernetes": "providers.kubernetes:KubernetesProvider",
    "lambda": "providers.lambda_cloud:LambdaCloud",
    "nebius": "providers.nebius:Nebius",
    "oci": "providers.oci:Oci",
    "ovh": "providers.ovh:Ovh",
    "owned": "providers.owned:Owned",
    "pricebook": "providers.pricebook:Pricebook",
    "prime_intellect": "providers.prime_intellect:PrimeIntellect",
    "runpod": "providers.runpod:Runpod",
    "sandbox": "providers.sandbox:SandboxProvider",
    "scaleway": "providers.scaleway:Scaleway",
    "sfcompute": "providers.sfcompute:Sfcompute",
    "shadeform": "providers.shadeform:Shadeform",
    "slurm": "providers.slurm:SlurmProvider",
    "vast": "providers.vast:Vast",
    "verda": "providers.verda:Verda",
    "vultr": "providers.vultr:Vultr",
}

# The optional install a provider needs, where it needs one.
EXTRAS: dict[str, str] = {"gpuhunt": "gpuhunt", "nebius": "nebius"}


class ProviderSettings(BaseModel):
    """Base of a provider's settings, ``[providers.NAME]`` of gpubroker.toml; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def split_commas(value: object) -> object:
    """Names separated by commas, as a variable has them."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def build(name: str, *, clock: Clock, settings: Mapping[str, Any] | None = None) -> Provider:
    """The provider of that name, with its section of the settings file (values as in TOML or the environment). Makes no
    connection.

    Raises `UnknownName`, `MissingExtra`, and `InvalidInput` with every invalid setting.
    """
    provider = load(PROVIDERS, name, "provider", extras=EXTRAS)
    try:
        parsed = provider.Settings.model_validate(dict(settings or {}))
    except ValidationError as error:
        fields = provider.Settings.model_fields
        problems = [_problem(detail, fields) for detail in error.errors(include_url=False, include_context=False)]
        raise InvalidInput(
            f"provider {name!r} cannot be set up: {'; '.join(str(problem) for problem in problems)}",
            where=f"[providers.{name}]",
            hint=f"settings of this provider: {', '.join(fields) or 'none'}",
            problems=problems,
        ) from error
    built: Provider = provider(clock=clock, settings=parsed)
    return built


def _problem(detail: Mapping[str, Any], fields: Mapping[str, Any]) -> Problem:
    key = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return Problem(0, 0, key, f"no such setting{did_you_mean(key, fields)}")
    return Problem(0, 0, key, detail["msg"].removeprefix("Value error, "))
