"""The steps of `gpubroker setup`: each tries or makes one thing that a cloud needs, and is done once."""

import secrets
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from broker.app import runs_root
from broker.app.access.callers import local_caller
from broker.app.clouds import CLOUDS, bucket_findings, find_cloud
from broker.app.market.offer_lists import matching_offers
from broker.app.market.offer_rows import OfferFilter
from broker.app.providers import DoctorFinding, Health
from broker.app.use_cases.policies import apply_policy
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import BrokerError, InvalidInput, Refused
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.market.offers import CapacityType, Offer
from broker.core.market.price_basis import Standing
from broker.core.ports import Bucket, ChecksAccess, ChecksClouds, MakesBuckets
from broker.core.values.money import Money
from broker.settings import settings_files

POLICY_FILE = Path("gpubroker-policy.yaml")
TRIAL_COST = Money.usd(1)
"""The most that the trial job may cost."""
_BUCKET_PROVIDERS = {"s3": "aws", "gs": "gcp"}  # by scheme
_POLICY = """\
# The first policy, by `gpubroker setup`. Change it, then: gpubroker policy apply {file}
version: 1
policy: first
budgets:
  - {{name: monthly, amount: {amount}, period: month}}
"""
_TRIAL = """\
name: setup-{cloud}
resources: {{infra: {cloud}{machine}}}
run: {command}
max_duration: 10m
max_cost: {cost}
"""


def dry_run_finding(area: str, message: str) -> DoctorFinding:
    """What a dry run would do."""
    return DoctorFinding(area, Health.OK, message, facts={"planned": True})


def access_findings(broker: Broker, name: str, *, dry_run: bool) -> Iterator[DoctorFinding]:
    """The login and its rights, tried."""
    try:
        provider = broker.provider(name)
        if isinstance(provider, ChecksAccess) and dry_run:
            yield dry_run_finding("login", "would try the login and its rights, without changing anything")
        elif isinstance(provider, ChecksAccess):
            yield from map(_access_finding, provider.check_access())
    except BrokerError as error:
        yield _access_finding(error)


def engine_finding(broker: Broker, name: str, *, dry_run: bool) -> DoctorFinding:
    """Whether the engine may use the cloud."""
    engine_name = find_cloud(name).engine
    if engine_name is None:
        return DoctorFinding("engine", Health.OK, f"no engine starts jobs on {CLOUDS[name].title}: prices only")
    if dry_run:
        return dry_run_finding("engine", f"would ask {engine_name}, or start it")
    try:
        engine = broker.engine(engine_name)
        problem = engine.cloud_problem(name) if isinstance(engine, ChecksClouds) else ""
    except BrokerError as error:
        return DoctorFinding("engine", Health.PROBLEM, error.message, error.hint)
    if problem:
        return DoctorFinding("engine", Health.PROBLEM, problem, f"sky check {name}")
    return DoctorFinding("engine", Health.OK, f"{engine_name} is ready")


def _access_finding(result: str | BrokerError) -> DoctorFinding:
    if isinstance(result, BrokerError):
        return DoctorFinding("login", Health.PROBLEM, str(result), result.hint)
    return DoctorFinding("login", Health.OK, result)


def probe_bucket(broker: Broker) -> DoctorFinding:
    """Write, read and delete a small object in the place of run folders."""
    from broker.agent.store import ObjectFolder, StoreTrouble  # imports the object store

    url, path, content = runs_root.search_root(broker), f"setup-probe-{secrets.token_hex(4)}", secrets.token_bytes(16)
    step = "write to"
    try:
        folder = ObjectFolder.open(url)
        folder.write(path, content)
        step = "read from"
        if folder.read(path) != content:
            raise StoreTrouble("it returns something else than was written")
        step = "delete in"
        folder.delete(path)
    except StoreTrouble as error:
        left = "" if step == "write to" else f"; the object {path} may be left in it"
        scheme = urlsplit(url).scheme
        fix = f"give the login rights to write, read, list and delete objects there, or set GPUBROKER_RUNS to another ({scheme}://…)"
        return DoctorFinding("bucket", Health.PROBLEM, f"cannot {step} {url}: {error}{left}", fix)
    return DoctorFinding("bucket", Health.OK, f"an object in {url} was written, read and deleted")


def bucket_maker(broker: Broker, cloud: str, name: str) -> Callable[[], Bucket]:
    """Makes the bucket ``name`` (``s3://…``, ``gs://…``; without a scheme, of that cloud) for the run folders of this
    store. Raises `InvalidInput` if another place is set, or buckets of that cloud are not made here."""
    scheme, _, bare_name = name.rstrip("/").rpartition("://")
    scheme = scheme or find_cloud(cloud).scheme
    provider = broker.provider(_BUCKET_PROVIDERS[scheme]) if scheme in _BUCKET_PROVIDERS else None
    if not isinstance(provider, MakesBuckets):
        hint = next((finding.fix for finding in bucket_findings(broker, cloud)), "")
        raise InvalidInput(f"buckets of {scheme}:// are not made here", where="--create-bucket", hint=hint)
    if (place := broker.settings.runs) is not None and urlsplit(place).netloc != bare_name:
        hint = "leave out --create-bucket, or unset GPUBROKER_RUNS (`runs` of gpubroker.toml)"
        raise InvalidInput(f"run folders are set to be in {place}", where="--create-bucket", hint=hint)
    return partial(provider.make_bucket, bare_name)


def save_runs(broker: Broker, bucket: Bucket) -> Path:
    """Write the bucket into the user's settings file, before its sections; returns the file. Other processes read the
    old file or the new one. Raises `Refused`."""
    file = settings_files()[0].resolve()
    lines = [f'runs = "{bucket.url}"']
    if bucket.location and broker.settings.runs_location is None:
        lines.append(f'runs_location = "{bucket.location}"')
    try:
        text = "\n".join([*lines, file.read_text("utf-8") if file.is_file() else ""])
        tomllib.loads(text)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as draft:
            draft.write(text)
        Path(draft.name).replace(file)
    except (OSError, ValueError) as error:
        hint = f"the bucket exists: export GPUBROKER_RUNS={bucket.url}"
        raise Refused(f"the setting cannot be written: {error}", where=str(file), hint=hint) from error
    return file


def first_policy(amount: Money) -> str:
    """The text of a policy with that monthly amount; that of the file, if an earlier walk wrote it."""
    if POLICY_FILE.exists():
        return POLICY_FILE.read_text("utf-8")
    return _POLICY.format(file=POLICY_FILE, amount=f"${amount.as_json()}")


def apply_first_policy(broker: Broker, text: str, *, by: Actor) -> DoctorFinding:
    """Write the file unless it exists, and make it the active policy if none is."""
    if not POLICY_FILE.exists():
        POLICY_FILE.write_text(text, encoding="utf-8")
    applied = apply_policy(local_caller(broker, by), {str(POLICY_FILE): text}, "gpubroker setup", base=0)
    undo = f"undo: an empty policy file, `gpubroker policy apply` again, and rm {POLICY_FILE}"
    return DoctorFinding("budget", Health.OK, f"applied {POLICY_FILE} as version {applied.number} ({undo})")


def cheapest_offer(broker: Broker, name: str) -> Offer | None:
    """The cheapest machine of the cloud on which a job can start now: with an accelerator, if there is one."""
    rows = matching_offers(broker, OfferFilter(providers=(name,))).rows
    startable = [
        row.offer
        for row in rows
        if (row.standing, row.price_kind) == (Standing.LAUNCHABLE, "live")
        and row.offer.price is not None
        and row.offer.capacity_type is not CapacityType.SPOT  # it saves no checkpoints
    ]
    return min(startable, key=lambda offer: (offer.accelerator is None, offer.price or Money.ZERO), default=None)


def trial_job(cloud: str, offer: Offer) -> Job:
    """A job of seconds on such a machine."""
    machine = f', accelerators: "{offer.machine}"' if offer.accelerator else ""
    command = "nvidia-smi" if offer.accelerator else "uname -a"
    text = _TRIAL.format(cloud=cloud, machine=machine, command=command, cost=TRIAL_COST)
    return parse_job(text, file=f"setup-{cloud}.yaml", now=datetime.now(UTC))
