"""The composition root: connects providers, engines and rules with the command line. Decides nothing."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from broker.app.wiring import CatalogueReader, Registries
    from broker.core.ports import PolicySet


def registries() -> Registries:
    """All providers, engines and rules. Only commands that need them call this, so that `--help` imports none."""
    from broker.app.jobs.background import program_command
    from broker.app.wiring import Registries
    from broker.engines.registry import ENGINES
    from broker.engines.registry import EXTRAS as ENGINE_EXTRAS
    from providers.kubernetes import is_available as kubernetes_is_here
    from providers.registry import EXTRAS as PROVIDER_EXTRAS
    from providers.registry import PROVIDERS, build
    from providers.slurm import is_available as slurm_is_here

    return Registries(
        providers=PROVIDERS,
        build_provider=build,
        engines=ENGINES,
        load_policies=_load_policies,
        policy_schema=_policy_schema,
        open_catalogue=_open_catalogue,
        local_providers=(
            "owned",
            *(("slurm",) if slurm_is_here() else ()),
            *(("kubernetes",) if kubernetes_is_here() else ()),
            "pricebook",
        ),
        command=program_command(),
        # Not azure, whose list takes a minute, and not aws, whose lists are hundreds of megabytes.
        quick_providers=("runpod", "vast", "oci", "vultr", "ovh", "scaleway", "gpuhunt"),
        provider_extras=PROVIDER_EXTRAS,
        engine_extras=ENGINE_EXTRAS,
    )


def _load_policies(files: Mapping[str, str]) -> PolicySet:
    from policies.loader import load
    from providers.registry import PROVIDERS

    return load(files, PROVIDERS)


def _policy_schema() -> Mapping[str, Any]:
    from policies.schema import json_schema

    return json_schema()


def _open_catalogue(file: Path, *, provider: str, dated: datetime, now: datetime) -> CatalogueReader:
    from providers.catalogue.file import CatalogueFile

    return CatalogueFile(file, provider=provider, dated=dated, now=now)


def main() -> NoReturn:
    """The `gpubroker` command."""
    # A short command is mostly imports, which create some 200,000 objects but no garbage. Collecting garbage meanwhile
    # takes a tenth of the time, and a last collection at exit another sixth.
    gc.set_threshold(300_000, 20, 20)
    try:
        from broker.cli.program import run

        code = run(sys.argv[1:], registries)
    except KeyboardInterrupt:  # while modules are imported or the store is closed
        print("Stopped.", file=sys.stderr)  # noqa: T201  # there is no terminal yet
        code = 130
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    main()
