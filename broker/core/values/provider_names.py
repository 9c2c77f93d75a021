"""The names of providers: one for offers, policies, charges and commands, and what others call the same provider."""

import re
from collections.abc import Mapping
from functools import cache

NAMES: Mapping[str, tuple[str, ...]] = {
    "aws": ("amazon", "amazon web services", "amazon web services, inc.", "ec2"),
    "azure": ("microsoft", "microsoft azure", "microsoft corporation"),
    "cloudrift": (),
    "crusoe": ("crusoe cloud", "crusoe energy"),
    "cudo": ("cudo compute",),
    "daytona": (),
    "digitalocean": ("digital ocean", "do"),
    "gcp": ("google", "google cloud", "google cloud platform", "gce", "google llc"),
    "hotaisle": ("hot aisle",),
    "hyperstack": ("nexgen cloud",),
    "jarvislabs": ("jarvis labs",),
    "kubernetes": ("k8s",),
    "lambda": ("lambda_cloud", "lambda labs", "lambda cloud"),
    "lium": (),
    "nebius": ("nebius ai",),
    "oci": ("oracle", "oracle cloud", "oracle cloud infrastructure"),
    "ovh": ("ovhcloud",),
    "owned": ("on-premises", "on_prem"),
    "prime_intellect": ("primeintellect",),
    "runpod": ("runpod.io",),
    "sandbox": (),
    "scaleway": (),
    "seeweb": (),
    "sfcompute": ("sf compute", "san francisco compute"),
    "shadeform": (),
    "slurm": (),
    "vast": ("vast.ai", "vastai"),
    "verda": ("datacrunch",),
    "vultr": (),
}
"""Every provider of offers that gpubroker reads, by the name of its offers, with its aliases. SkyPilot's, dstack's and
FOCUS files' names are among them."""


def provider_name(name: str) -> str:
    """The name of that provider in offers: an alias resolved, another name unchanged. Case, spaces and punctuation of a
    known name do not count."""
    return _by_key().get(_key(name), name)


def is_provider_name(name: str) -> bool:
    """Whether the name or alias is of a provider that gpubroker reads."""
    return _key(name) in _by_key()


def place_name(place: str) -> str:
    """``provider/region`` or a region, with the provider's alias resolved and a region's display name ("East US") in
    its own form."""
    provider, slash, region = place.rpartition("/")
    if re.search(r"\s", region.strip()):
        region = re.sub(r"\s", "", region).lower()
    return f"{provider_name(provider) if provider else ''}{slash}{region}"


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9*?\[\]]", "", name.lower())


@cache
def _by_key() -> Mapping[str, str]:
    return {_key(alias): name for name, aliases in NAMES.items() for alias in (name, *aliases)}
