"""Checks of this machine: what works, what is missing, and how to fix it."""

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import unquote, urlsplit

from broker.app.alerts import notify
from broker.app.billing.report import ledger_faults
from broker.app.clouds import CLOUD_PROGRAMS, KUBERNETES_PROGRAMS, doctor_findings, is_installed
from broker.app.jobs import background
from broker.app.providers import DoctorFinding, Health, provider_findings
from broker.app.runs_root import MIN_FREE_BYTES
from broker.app.service import autostart
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, InvalidInput, MissingExtra, RetryLater, StoreProblem
from broker.core.extras import own_version
from broker.core.market.offers import Offer, OfferQuery, SkippedRow
from broker.settings import settings_files, unknown_variables

_LOW_DISK = 10**9
_FULL_DISK = MIN_FREE_BYTES
_OLDEST_PYTHON = (3, 11)
_THIS_MACHINE = "owned"

# Extra → the module that shows whether it is installed, and what it adds.
_EXTRAS = {
    "aws": ("boto3", "spot prices, quotas and reservations of an AWS account; list prices need none"),
    "gcp": ("google.cloud.compute_v1", "everything of Google Cloud, with a login: prices, quotas, reservations"),
    "azure": ("azure.mgmt.compute", "quotas, spot scores and reservations of an Azure subscription; prices need none"),
    "gpuhunt": ("gpuhunt", "prices of the smaller GPU clouds"),
    "nebius": ("nebius", "prices and capacity of Nebius, with a login"),
    "serve": ("apscheduler", "`gpubroker serve`: polls on a schedule, and alerts through Apprise"),
    "server": ("fastapi", "the web UI and the API of `gpubroker serve`"),
    "parquet": ("pyarrow", "reports as Parquet files"),
    "skypilot": ("sky", "runs jobs on clouds and Kubernetes, through SkyPilot"),
    "postgres": ("psycopg", "a PostgreSQL store that several machines share"),
    "torch": ("torch", "the PyTorch example"),
    "recipes": ("transformers", "the recipe for the Hugging Face Trainer"),
}
_PROGRAMS = {"clouds": CLOUD_PROGRAMS, "Kubernetes": KUBERNETES_PROGRAMS}  # by where jobs run


def examine(make_broker: Callable[[], Broker]) -> Iterator[DoctorFinding]:
    """All findings, one after another, those that others depend on first. Contacts no provider; creates the store and
    the folder for run folders if they do not exist. If the store cannot be used, findings that need it are left out."""
    yield _python()
    yield from _extras()
    yield from _programs()
    yield from _variables(os.environ)
    try:
        broker = make_broker()
    except InvalidInput as error:
        yield DoctorFinding("settings", Health.PROBLEM, str(error), error.hint)
        return
    yield _settings_finding()
    url, home = broker.settings.store or "", broker.settings.home.absolute()
    store_folder = Path(url.partition(":///")[2].partition("?")[0]).absolute().parent
    yield _disk_finding(home, "GPUBROKER_HOME")
    if url.startswith("sqlite:") and store_folder != home:
        yield _disk_finding(store_folder, "GPUBROKER_STORE")
    yield _runs_finding(broker)
    store = _store(broker)
    yield store
    if store.health is Health.PROBLEM:
        return  # all later checks read it
    yield from _gpu_findings(broker)
    yield _reconciler(broker)
    yield from _autostart(broker)
    yield from _unreadable_jobs(broker)
    yield from _policy(broker)
    yield from _engines(broker)
    yield from provider_findings(broker)
    yield from doctor_findings(broker)
    yield from _notify(broker)


def verify_store(broker: Broker) -> Iterator[DoctorFinding]:
    """Rebuild every projection from the events, report differences, and check the ledger. Rebuilding corrects the
    differences."""
    report = broker.store.prove()
    if report.differing:
        message = f"the projections of {', '.join(report.differing)} differed from the events; they have been rebuilt"
        yield DoctorFinding("rebuild", Health.PROBLEM, message, "please report this", {"differed": report.differing})
    else:
        message = f"rebuilding {report.jobs:,} jobs from their events gives the stored projections"
        yield DoctorFinding("rebuild", Health.OK, message, facts={"jobs": report.jobs, "differed": []})
    if report.sums_differing:
        message = f"{report.sums_differing} spending sums differed from the ledger entries; they have been rebuilt"
        yield DoctorFinding("sums", Health.PROBLEM, message, "please report this", {"differed": report.sums_differing})
    else:
        message = f"{report.sums:,} spending sums equal the ledger entries"
        yield DoctorFinding("sums", Health.OK, message, facts={"sums": report.sums, "differed": 0})
    faults = ledger_faults(broker)
    health = Health.PROBLEM if faults else Health.OK
    message = "; ".join(faults) or "every movement of the ledger balances"
    yield DoctorFinding("ledger", health, message, "please report this" if faults else "", {"balanced": not faults})


def _python() -> DoctorFinding:
    python_version = platform.python_version()
    facts = {
        "python": python_version,
        "executable": sys.executable,
        "system": platform.platform(),
        "gpubroker": own_version(),
    }
    if sys.version_info < _OLDEST_PYTHON:
        return DoctorFinding(
            "python", Health.PROBLEM, f"Python {python_version} is too old", "install Python 3.11 or newer", facts
        )
    return DoctorFinding("python", Health.OK, f"gpubroker {facts['gpubroker']} on Python {python_version}", facts=facts)


def _extras() -> Iterator[DoctorFinding]:
    """A finding for each installed extra, and one for all others, because most people need few of them."""
    missing = {}
    for extra, (module, adds) in _EXTRAS.items():
        if is_installed(module):
            yield DoctorFinding("extra", Health.OK, f"{extra}: {adds}", facts={"extra": extra, "installed": True})
        else:
            missing[extra] = adds
    if missing:
        message = f"extras not installed: {', '.join(missing)}"
        fix = "none is needed; what each adds: gpubroker doctor --verbose"
        yield DoctorFinding("extra", Health.NOTE, message, fix, {"installed": False, "adds": missing})


def _programs() -> Iterator[DoctorFinding]:
    """The missing programs that SkyPilot starts on this machine; launches fail without them."""
    if not is_installed("sky"):
        return
    for platform_name, names in _PROGRAMS.items():
        if missing := [name for name in names if shutil.which(name) is None]:
            message = (
                f"not installed: {', '.join(missing)}: no job starts on {platform_name} through SkyPilot without them"
            )
            yield DoctorFinding(
                "program", Health.NOTE, message, f"install {' and '.join(missing)}", {"missing": missing}
            )


def _variables(environment: Mapping[str, str]) -> Iterator[DoctorFinding]:
    """Environment variables that look like settings but are not."""
    for name, sentence in unknown_variables(environment).items():
        yield DoctorFinding("settings", Health.NOTE, sentence, "unset it, or correct it", {"variable": name})


def _settings_finding() -> DoctorFinding:
    """The settings files, the one that takes precedence first."""
    files = [str(file.absolute()) for file in reversed(settings_files())]
    present = [file for file in files if Path(file).is_file()]
    message = f"from {' before '.join(present)}" if present else f"no file {' or '.join(files)}; none is needed"
    return DoctorFinding("settings file", Health.OK, f"{message}; GPUBROKER_* variables win", facts={"files": present})


def _disk_finding(folder: Path, setting: str) -> DoctorFinding:
    """The free space on the disk of a folder; if it does not exist, of its nearest existing parent."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    facts = {"folder": str(folder), "free_bytes": free}
    message = f"{free / 1e9:,.1f} GB free for {folder}" if free >= _LOW_DISK else f"{free / 1e6:,.0f} MB free"
    if not os.access(existing, os.W_OK):
        fix = f"change its owner or mode, or set {setting}"
        return DoctorFinding("disk", Health.PROBLEM, f"{existing} cannot be written to", fix, facts)
    if free < _FULL_DISK:
        return DoctorFinding(
            "disk", Health.PROBLEM, f"full: {message} for {folder}", f"free some, or set {setting}", facts
        )
    if free < _LOW_DISK:
        fix = f"free some: checkpoints need it; or set {setting}"
        return DoctorFinding("disk", Health.NOTE, f"nearly full: {message} for {folder}", fix, facts)
    return DoctorFinding("disk", Health.OK, message, facts=facts)


def _runs_finding(broker: Broker) -> DoctorFinding:
    """The place of run folders and checkpoints. Logins in the URL are not shown."""
    url_parts = urlsplit(broker.settings.runs_url)
    shown_url = url_parts._replace(netloc=url_parts.netloc.rpartition("@")[2], query="").geturl()
    facts = {"url": shown_url, "local": url_parts.scheme == "file"}
    try:
        _check_runs_folder(broker.settings.runs_url)
    except BrokerError as error:
        fix = error.hint or "correct GPUBROKER_RUNS"
        return DoctorFinding(
            "runs", Health.PROBLEM, f"run folders cannot be kept in {shown_url}: {error.message}", fix, facts
        )
    if url_parts.scheme == "file":
        message = (
            f"run folders and checkpoints are on this machine ({url_parts.path}): enough for local and owned capacity"
        )
        return DoctorFinding(
            "runs", Health.OK, message, "for machines elsewhere: set GPUBROKER_RUNS to s3://BUCKET/…", facts
        )
    message = f"run folders and checkpoints are in {shown_url}; not tested now"
    fix = ""
    if url_parts.scheme in ("s3", "s3a"):
        from broker.agent.aws import bucket_region

        facts["region"] = region = bucket_region(broker.settings.runs_url)
        message += f"; region {region}" if region else "; its region is unknown: set AWS_REGION"
        fix = "to give each node access to its own job's folder only, set GPUBROKER_RUNS_ROLE to a role's ARN"
    if url_parts.scheme == "gs":
        fix = (
            "to give each node access to its own job's folder only, set GPUBROKER_RUNS_NARROWED=true (requires uniform "
            "bucket-level access)"
        )
    is_azure = url_parts.scheme in ("az", "adl", "azure", "abfs", "abfss")
    if is_azure:
        fix = "to give nodes signatures of this login instead of their own identities, set GPUBROKER_RUNS_NARROWED=true"
    role, is_requested = broker.settings.runs_role, broker.settings.runs_narrowed
    facts["narrowed"] = is_narrowed = bool(fix) and (
        is_requested if url_parts.scheme == "gs" or is_azure else role is not None
    )
    if is_narrowed:
        message += "; each node has access to its own job's folder only"
        message += " (without a hierarchical namespace: the container, for a time)" if is_azure else ""
        return DoctorFinding("runs", Health.OK, message, facts=facts)
    if is_requested:
        message += "; GPUBROKER_RUNS_NARROWED is set, but has no effect on this store"
        return DoctorFinding("runs", Health.PROBLEM, message, fix or "unset it", facts)
    fix = fix or "nodes cannot be limited to one folder in this store: use a bucket for each team"
    return DoctorFinding("runs", Health.OK, f"{message}; nodes have access with their own identities", fix, facts)


def _check_runs_folder(url: str) -> None:
    """Write a small file in the place of run folders; if it is remote, only check the URL. Raises `InvalidInput`,
    `Unreachable`."""
    url_parts = urlsplit(url)
    if url_parts.scheme != "file":
        from broker.engines.runfolder.runfolder import RunFolder  # imports the object store

        RunFolder(url, "doctor")
        return
    folder = Path(unquote(url_parts.path))
    try:
        for directory in (folder.parent, folder):  # mkdir does not apply the mode to parents
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with TemporaryFile(dir=folder) as file:
            file.write(b"gpubroker" * 1000)
            file.flush()
    except OSError as error:
        fix = "free some space, change its owner or mode, or set GPUBROKER_RUNS to another place"
        raise InvalidInput(error.strerror or str(error), hint=fix) from error


def _gpu_findings(broker: Broker) -> Iterator[DoctorFinding]:
    """The accelerators of this machine and of other local sources."""
    for name in broker.registries.local_providers:
        try:
            provider = broker.provider(name)
            if not getattr(provider, "refresh_before_deciding", False):
                continue
            rows = list(provider.offers(OfferQuery()))
        except BrokerError as error:
            is_temporary = isinstance(error, RetryLater)
            yield DoctorFinding(
                "gpu", Health.NOTE if is_temporary else Health.PROBLEM, f"{name}: {error.message}", error.hint
            )
            continue
        cards = sorted({row.machine for row in rows if isinstance(row, Offer) and row.accelerator})
        skipped_reasons = "; ".join(row.detail or row.reason for row in rows if isinstance(row, SkippedRow))
        facts = {"accelerators": cards, "nvml": skipped_reasons or "ok"}
        if cards:
            subject = "this machine has" if name == _THIS_MACHINE else f"{name} has"
            yield DoctorFinding("gpu", Health.OK, f"{subject} {', '.join(cards)}", facts=facts)
        elif name == _THIS_MACHINE:
            message = (
                f"no GPU found in this machine{f' ({skipped_reasons})' if skipped_reasons else ''}; CPU jobs run here"
            )
            yield DoctorFinding("gpu", Health.NOTE, message, "install the NVIDIA driver if there is a GPU", facts)


def _store(broker: Broker) -> DoctorFinding:
    try:
        store = broker.store
        with store.writing():
            pass
        schema, offers = store.setting("gpubroker_version"), store.count_offers()
    except (StoreProblem, MissingExtra) as error:
        return DoctorFinding("store", Health.PROBLEM, str(error), error.hint, {"writable": False})
    facts = {"where": store.where, "writable": True, "made_by": schema, "offers": offers}
    return DoctorFinding("store", Health.OK, f"{store.where}: writable, {offers:,} offers", facts=facts)


def _reconciler(broker: Broker) -> DoctorFinding:
    is_running, work_left = background.is_running(broker), background.has_work_left(broker)
    facts = {"running": is_running, "work_left": work_left, "log": str(broker.settings.home / "reconciler.log")}
    if is_running:
        return DoctorFinding("background process", Health.OK, "running", facts=facts)
    if work_left:
        message = "not running, although jobs need it: they continue, but none is re-placed or settled"
        return DoctorFinding(
            "background process", Health.PROBLEM, message, "any command restarts it: gpubroker jobs list", facts
        )
    return DoctorFinding("background process", Health.OK, "not running; no job needs it", facts=facts)


def _autostart(broker: Broker) -> Iterator[DoctorFinding]:
    """Whether jobs continue after a restart of this machine; nothing where neither systemd nor launchd is."""
    if autostart.autostart_file() is None:
        return
    current = autostart.state(broker)
    facts = {"on": current.on, "lingering": current.lingering}
    if not current.on:
        message = "off: after a restart of this machine, jobs continue with the next command"
        yield DoctorFinding("autostart", Health.NOTE, message, "gpubroker autostart on", facts)
        return
    fix = "to start with the machine: loginctl enable-linger" if current.lingering is False else ""
    yield DoctorFinding("autostart", Health.OK, "on: jobs continue at the next login after a restart", fix, facts)


def _unreadable_jobs(broker: Broker) -> Iterator[DoctorFinding]:
    """The open jobs that this version cannot read and therefore does not reconcile."""
    with broker.store.reading() as reader:
        reader.unclosed()
        unreadable_jobs = reader.unreadable
    for unreadable_job in unreadable_jobs:
        facts = {"job": unreadable_job.job_id, "newer": unreadable_job.newer}
        message = (
            f"{unreadable_job.message}; it is not reconciled: its money stays held, its machines run until that is "
            "used up"
        )
        yield DoctorFinding("job", Health.PROBLEM, message, unreadable_job.hint, facts)


def _policy(broker: Broker) -> Iterator[DoctorFinding]:
    try:
        active, policy = broker.store.active_policy(), broker.policy()
    except InvalidInput as error:
        message = f"the active policy cannot be read by this version: {error}"
        yield DoctorFinding("policy", Health.PROBLEM, message, "fix the files, then `gpubroker policy apply FILES`")
        return
    if active is None:
        message = "none is active: nothing that costs real money is launched"
        yield DoctorFinding("policy", Health.NOTE, message, "gpubroker policy apply FILES", {"active": None})
        return
    facts = {"active": active.number, "files": sorted(active.files), "grants_cash": policy.defaults.grants_cash}
    cash_note = "" if policy.defaults.grants_cash else "; it grants no cash, so none is spent"
    yield DoctorFinding(
        "policy", Health.OK, f"version {active.number} by {active.by}, {len(policy.rules)} rules{cash_note}", "", facts
    )


def _engines(broker: Broker) -> Iterator[DoctorFinding]:
    for name in broker.registries.engines:
        facts: dict[str, Any] = {"engine": name}
        try:
            engine = broker.engine(name)
        except MissingExtra as error:
            yield DoctorFinding("engine", Health.NOTE, f"{name}: {error}", error.hint, facts | {"ready": False})
        except BrokerError as error:
            yield DoctorFinding("engine", Health.PROBLEM, f"{name}: {error}", error.hint, facts | {"ready": False})
        else:
            facts |= {"ready": True, "honours": sorted(engine.honours)}
            yield DoctorFinding("engine", Health.OK, f"{name}: ready", facts=facts)


def _notify(broker: Broker) -> Iterator[DoctorFinding]:
    """The recipients of alerts. Addresses are checked without contacting anybody."""
    targets = broker.settings.notify
    for name, address in targets.items():
        facts = {"target": name, "address": notify.redact_address(address), "setting": notify.setting_variable(name)}
        try:
            notify.check_addresses({name: address})
        except MissingExtra as error:
            yield DoctorFinding("notify", Health.NOTE, f"{name}: {error}", error.hint, facts)
        except InvalidInput as error:
            yield DoctorFinding("notify", Health.PROBLEM, str(error), error.hint, facts)
        else:
            fix = f"to try it: gpubroker notices {name} --test"
            yield DoctorFinding("notify", Health.OK, f"{name}: {notify.redact_address(address)}", fix, facts)
