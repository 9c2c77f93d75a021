"""What each cloud needs before jobs can run there, told without asking anybody: for `doctor`, `plan` and `setup`."""

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from urllib.parse import urlsplit

from broker.app import runs_root
from broker.app.providers import DoctorFinding, Health, describe_provider
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, UnknownName
from broker.core.extras import install_command
from broker.core.market.offers import Availability, OfferQuery

CLOUD_PROGRAMS, KUBERNETES_PROGRAMS = ("ssh", "rsync"), ("nc", "socat")
"""What SkyPilot starts here; see sky/utils/command_runner.py and sky/provision/kubernetes/utils.py of 0.14."""
_SKYPILOT = {"skypilot": "sky"}

_AZURE_CONTAINER = (
    "az storage container create --auth-mode login --account-name ACCOUNT --name NAME, then "
    "export GPUBROKER_RUNS=abfss://NAME@ACCOUNT.dfs.core.windows.net/gpubroker"
)


@dataclass(frozen=True, slots=True)
class Cloud:
    """``extras``: the module that shows whether each optional install is there. ``scheme``: of its own buckets.
    ``remote``: its machines cannot read this machine's disk. ``priced``: an hour costs money unless a setting says
    otherwise. ``has_identity``: its machines reach a bucket without keys."""

    title: str
    extras: Mapping[str, str] = field(default_factory=lambda: dict(_SKYPILOT))
    programs: tuple[str, ...] = CLOUD_PROGRAMS
    engine: str | None = "skypilot"
    scheme: str = "s3"
    remote: bool = True
    priced: bool = True
    has_identity: bool = True


CLOUDS: Mapping[str, Cloud] = {
    "aws": Cloud("AWS", {**_SKYPILOT, "aws": "boto3"}),
    "gcp": Cloud("Google Cloud", {**_SKYPILOT, "gcp": "google.cloud.compute_v1"}, scheme="gs"),
    "azure": Cloud("Azure", {**_SKYPILOT, "azure": "azure.mgmt.compute"}, scheme="az"),
    "kubernetes": Cloud("Kubernetes", programs=("kubectl", *KUBERNETES_PROGRAMS), priced=False),
    "slurm": Cloud("Slurm", {}, ("sbatch", "squeue", "scontrol", "scancel"), "slurm", remote=False, priced=False),
    "runpod": Cloud("RunPod", has_identity=False),
    "lambda": Cloud("Lambda", has_identity=False),
    "vast": Cloud("Vast.ai", {}, (), None, remote=False, priced=False),
}


def find_cloud(name: str) -> Cloud:
    """Raises `UnknownName`."""
    if name not in CLOUDS:
        raise UnknownName("cloud", name, CLOUDS)
    return CLOUDS[name]


def cloud_findings(broker: Broker, name: str) -> Iterator[DoctorFinding]:
    """The findings about one cloud; a job can start there once all are OK."""
    yield from install_findings(name)
    yield from login_findings(broker, name)
    yield from bucket_findings(broker, name)
    yield price_finding(broker, name)
    yield from quota_findings(broker, name)
    yield from budget_findings(broker, name)


def missing_for(broker: Broker, name: str) -> list[DoctorFinding]:
    """What is missing for jobs on that cloud; nothing for a cloud that `setup` does not know."""
    if name not in CLOUDS:
        return []
    return [finding for finding in cloud_findings(broker, name) if finding.health is not Health.OK]


def doctor_findings(broker: Broker) -> Iterator[DoctorFinding]:
    """One finding for each cloud with a login, with all that is missing; without any, how to begin."""
    logged_in = [name for name in ("aws", "gcp", "azure", "lambda") if _has_login(broker, name)]
    for name in logged_in:
        missing = missing_for(broker, name)
        facts = {"cloud": name, "missing": [finding.area for finding in missing]}
        if missing:
            lines = [
                f"jobs on {CLOUDS[name].title} lack:",
                *(f"{finding.message}: {finding.fix}" for finding in missing),
            ]
            yield DoctorFinding(
                "cloud", Health.NOTE, "\n  ".join(lines), f"each as said, or: gpubroker setup {name}", facts
            )
        else:
            yield DoctorFinding("cloud", Health.OK, f"{CLOUDS[name].title}: jobs can start", facts=facts)
    if not logged_in:
        fix = f"gpubroker setup CLOUD: {', '.join(CLOUDS)}"
        yield DoctorFinding("cloud", Health.NOTE, "no cloud is set up", fix, {"cloud": None, "missing": []})


def _has_login(broker: Broker, name: str) -> bool:
    try:
        return bool(describe_provider(broker, name).logins_found)
    except BrokerError:  # `provider_findings` tells it
        return False


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a parent package is missing
        return False


def install_findings(name: str) -> Iterator[DoctorFinding]:
    """Whether the optional packages and programs of the cloud are installed."""
    cloud = find_cloud(name)
    if missing := [extra for extra, module in cloud.extras.items() if not is_installed(module)]:
        message = f"not installed: gpubroker[{','.join(missing)}]"
        yield DoctorFinding("extra", Health.NOTE, message, install_command(*missing), {"missing": missing})
    elif cloud.extras:
        yield DoctorFinding("extra", Health.OK, f"installed: gpubroker[{','.join(cloud.extras)}]")
    if absent := [program for program in cloud.programs if shutil.which(program) is None]:
        message = f"not installed: {', '.join(absent)}: no job starts on {cloud.title} without them"
        fix = f"install {' and '.join(absent)}"
        if cloud.engine == "slurm":
            fix = "run gpubroker where Slurm's commands work (a login node)"
        yield DoctorFinding("program", Health.NOTE, message, fix, {"missing": absent})
    elif cloud.programs:
        yield DoctorFinding("program", Health.OK, f"installed: {', '.join(cloud.programs)}")


def login_findings(broker: Broker, name: str) -> Iterator[DoctorFinding]:
    """The login for prices and rights, where the cloud has one. It is not tried."""
    if name not in broker.registries.providers:
        return
    try:
        setup = describe_provider(broker, name)
    except BrokerError as error:
        yield DoctorFinding("login", Health.PROBLEM, error.message, error.hint)
        return
    for login in setup.logins_found:
        yield DoctorFinding("login", Health.OK, f"found {login.where or login.name}")
    for login in setup.logins_missing:
        is_optional = login.how.startswith("optional")
        message = f"no login to {CLOUDS[name].title}, which would add {login.adds}"
        yield DoctorFinding("login", Health.OK if is_optional else Health.NOTE, message, login.how)


def bucket_findings(broker: Broker, name: str) -> Iterator[DoctorFinding]:
    """The place of run folders and checkpoints, and how machines get into it."""
    cloud, url = find_cloud(name), runs_root.search_root(broker)
    if not cloud.remote or broker.settings.engines.get("skypilot", {}).get("shared_disk"):
        return
    if url.startswith("file:"):
        fix = _AZURE_CONTAINER if cloud.scheme == "az" else f"export GPUBROKER_RUNS={cloud.scheme}://BUCKET/gpubroker"
        yield DoctorFinding("bucket", Health.NOTE, "no bucket for checkpoints, which the machines reach", fix)
        return
    parts = urlsplit(url)
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl() if parts.password else url
    yield DoctorFinding("bucket", Health.OK, f"run folders and checkpoints are in {shown}", facts={"url": shown})
    if not cloud.has_identity and not broker.settings.engines.get("skypilot", {}).get("environment"):
        fix = "export GPUBROKER_ENGINES__SKYPILOT__ENVIRONMENT='AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY'"
        message = f"machines of {cloud.title} have no identity: they need keys for that bucket alone"
        yield DoctorFinding("bucket keys", Health.NOTE, message, fix)


def price_finding(broker: Broker, name: str) -> DoctorFinding:
    """Whether the store has current prices of the provider."""
    known = broker.store.market.freshness(broker.clock.now()).get(name)
    if known is not None and known.offers and known.stale < known.offers and known.last_success is not None:
        message = f"{known.offers:,} offers, asked {known.last_success:%Y-%m-%d %H:%M} UTC"
        return DoctorFinding("prices", Health.OK, message, facts={"offers": known.offers})
    message = "its prices are too old" if known is not None and known.offers else "no live prices"
    return DoctorFinding("prices", Health.NOTE, message, f"gpubroker prices poll --provider {name}")


def quota_findings(broker: Broker, name: str) -> Iterator[DoctorFinding]:
    """A problem if the account's quotas allow none of its GPU machines, as in most new accounts."""
    sold = [
        offer
        for offer in broker.store.offers(OfferQuery(providers=(name,)))
        if offer.engine and offer.accelerator and not (offer.reference or offer.term_months)
    ]
    refused = [offer for offer in sold if offer.availability is Availability.NO_QUOTA]
    if refused and all(offer.availability in (Availability.NO_QUOTA, Availability.UNAVAILABLE) for offer in sold):
        (reason, _), *_ = Counter(offer.unavailable_because for offer in refused).most_common(1)
        page = getattr(broker.provider(name), "quota_page", "its console")
        message = f"the account's quotas allow no GPU machine ({reason})"
        yield DoctorFinding("quota", Health.NOTE, message, f"ask for more: {page}", {"offers": len(refused)})


def budget_findings(broker: Broker, name: str) -> Iterator[DoctorFinding]:
    """The policy that lets jobs spend money there."""
    if not find_cloud(name).priced and not broker.settings.providers.get(name, {}).get("price_per_gpu_hour"):
        return
    if (active := broker.store.active_policy()) is None:
        message = "no budget: nothing that costs money starts"
    elif not broker.policy().defaults.grants_cash:
        message = "the active policy has no budget of real money"
    else:
        yield DoctorFinding("budget", Health.OK, f"policy version {active.number} by {active.by} grants money")
        return
    yield DoctorFinding("budget", Health.NOTE, message, "gpubroker policy apply FILES")
