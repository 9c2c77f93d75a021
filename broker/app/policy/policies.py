"""Policy files: read, check, test and activate them, and explain their verdict on a job."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from broker.app.market.market import market_for
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.documents import read_document
from broker.core.errors import InvalidInput, did_you_mean
from broker.core.job.jobs import Job
from broker.core.policy.policy import Answer, CaseResult, Facts
from broker.core.ports import PolicySet
from broker.placement.planner import make_plan
from broker.reconciler.admission.admission import Admission, admit
from broker.reconciler.admission.facts import facts_of
from broker.store import PolicyVersion

_SUFFIXES = (".yaml", ".yml")
_CASE_SUFFIXES = (".test.yaml", ".test.yml")
_MAX_BYTES = 1_000_000
_SAME_NAME = 0.85  # similarity of names with the same suffix


def read_files(paths: Iterable[Path]) -> dict[str, str]:
    """The texts of policy files by name. For a folder, its YAML files, sorted. Files of test cases (``*.test.yaml``)
    are left out (`case_files`). Raises `InvalidInput` for an unreadable file, an empty folder, and if all files are
    test cases."""
    texts: dict[str, str] = {}
    given_paths = list(paths)
    cases = case_files(given_paths)
    if cases and len(cases) == len(given_paths):
        hint = f"to run them: `gpubroker policy test {' '.join(map(str, cases))}`"
        raise InvalidInput("contains test cases, not rules", where=str(cases[0]), hint=hint)
    for path in given_paths:
        if path in cases:
            continue
        policy_files = [path]
        if path.is_dir():
            policy_files = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES and not _is_cases(p))
        if not policy_files:
            raise InvalidInput("no policy files (*.yaml) in this folder", where=str(path))
        for file in policy_files:
            if str(file) in texts:
                continue
            texts[str(file)] = _read_text(file)
    return texts


def case_files(paths: Iterable[Path]) -> list[Path]:
    """The files of test cases among ``paths``."""
    return [path for path in paths if _is_cases(path) and path.is_file()]


def _read_text(file: Path) -> str:
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise InvalidInput(f"too large for a policy file; the limit is {_MAX_BYTES:,} bytes", where=str(file))
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput("not a text file in UTF-8", where=str(file)) from error
    except FileNotFoundError as error:
        suggestion = did_you_mean(file.name, _sibling_names(file)).removeprefix("; ")
        raise InvalidInput("the file does not exist", where=str(file), hint=suggestion) from error
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=str(file)) from error


def _sibling_names(file: Path) -> list[str]:
    """The names of the YAML files in the same folder."""
    try:
        return [path.name for path in file.parent.iterdir() if path.suffix in _SUFFIXES]
    except OSError:
        return []


def run_case_files(broker: Broker, paths: Sequence[Path]) -> list[CaseResult]:
    """Run the test cases of these files (``*.test.yaml``), of these policy files, or of all such files in these
    folders.

    A file names its policy files in ``policies:``, relative to itself; by default ``x.test.yaml`` tests ``x.yaml``.
    Does not read the store. Raises `InvalidInput` for an unreadable or invalid file.
    """
    case_paths: list[Path] = []
    for path in paths:
        if path.is_dir():
            folder_cases = sorted(p for p in path.iterdir() if _is_cases(p))
        else:
            folder_cases = [path if _is_cases(path) else path.with_suffix(f".test{path.suffix}")]
        if not folder_cases:
            raise InvalidInput("no policy cases (*.test.yaml) in this folder", where=str(path))
        case_paths += folder_cases
    return [result for path in case_paths for result in _run_case_file(broker, path)]


def _run_case_file(broker: Broker, path: Path) -> Sequence[CaseResult]:
    if not path.exists():
        known = [name for name in _sibling_names(path) if name.endswith(_CASE_SUFFIXES)]
        hint = did_you_mean(path.name, known, _SAME_NAME).removeprefix("; ") or "see `gpubroker policy test --help`"
        raise InvalidInput("there is no such file; cases of a policy are in *.test.yaml", where=str(path), hint=hint)
    text = _read_text(path)
    policy_names = read_document(text, file=str(path), kind="file of policy cases").data.get("policies")
    names = [policy_names] if isinstance(policy_names, str) else policy_names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        names = [path.name.replace(".test.", ".")]
    if missing := [name for name in names if not (path.parent / name).exists()]:
        hint = "name the policy files that it tests, relative to it: `policies: [team.yaml]`"
        raise InvalidInput(f"there is no policy file {missing[0]} to test", where=str(path), hint=hint)
    policy = broker.registries.load_policies(read_files(path.parent / name for name in names))
    return policy.try_cases(str(path), text)


def _is_cases(path: Path) -> bool:
    return path.name.endswith(_CASE_SUFFIXES)


def load_policy(broker: Broker, files: Mapping[str, str]) -> PolicySet:
    """The policy set of these texts; their rules of thumb are checked as well. Raises `InvalidInput`."""
    policy_set = broker.registries.load_policies(files)
    if any("assumptions" in text for text in files.values()):
        from broker.app.assumptions import assumptions_from_files  # only if a file has some

        assumptions_from_files(files)
    return policy_set


def apply(broker: Broker, paths: Sequence[Path], note: str = "", *, by: Actor) -> tuple[PolicyVersion, str]:
    """Activate the files. Returns the version, and the difference from the one before as a unified diff. Idempotent.
    Raises `InvalidInput` for an invalid set; the active one then stays in force."""
    return activate(broker, read_files(paths), note, by=by)


def find_version(broker: Broker, number: int | None = None) -> PolicyVersion:
    """The version with that number; None: the last one that differs from the active one. Raises `InvalidInput` if there
    is none."""
    history = broker.store.policy_history()
    if number is None:
        previous = next((version for version in history if version.sha256 != history[0].sha256), None)
        if previous is None:
            raise InvalidInput("there is no earlier version to go back to", hint="`gpubroker policy show --versions`")
        return previous
    for version in history:
        if version.number == number:
            return version
    hint_text = f"versions are 1 to {history[0].number}" if history else "none was ever applied"
    raise InvalidInput(f"there is no version {number}; {hint_text}", hint="`gpubroker policy show --versions`")


def rollback_note(version: PolicyVersion, reason: str) -> str:
    """The recorded note of a return to an earlier version."""
    return f"rollback to version {version.number}" + (f": {reason}" if reason else "")


def activate(
    broker: Broker, files: Mapping[str, str], note: str = "", *, by: Actor, base: int | None = None
) -> tuple[PolicyVersion, str]:
    """As `apply`, also in what it raises, for texts by name. ``base``: as in `Store.activate_policy`."""
    load_policy(broker, files)
    previous = broker.store.active_policy()
    version = broker.store.activate_policy(files, by=by.identity, note=note, base=base)
    return version, difference(previous.files if previous else {}, files)


def policy_warnings(broker: Broker, policy: PolicySet) -> list[str]:
    """Warnings about valid files: conditions on optional fields, unknown names."""
    from broker.app.jobs.unknown_names import unknown_names

    return [*policy.warnings, *unknown_names(broker, policy)]


def adopt_configured(broker: Broker, *, by: Actor) -> PolicyVersion | None:
    """Activate the policy files that ``GPUBROKER_POLICY`` names, if no set was ever activated; None if there is nothing
    to do. Raises `InvalidInput` for invalid files."""
    if not broker.settings.policy or broker.store.active_policy() is not None:
        return None
    paths = [Path(part).expanduser() for part in broker.settings.policy.split(":") if part]
    version, _ = apply(broker, paths, note="adopted from GPUBROKER_POLICY", by=by)
    return version


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The changes between two sets of files as one unified diff."""
    lines: list[str] = []
    for name in sorted({*before, *after}):
        old, new = before.get(name, "").splitlines(), after.get(name, "").splitlines()
        lines += difflib.unified_diff(old, new, f"{name} (before)", f"{name} (after)", lineterm="", n=2)
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Every rule's verdict on a placement, and the facts that it saw. ``planned``: whether it is the first placement of
    the plan; otherwise the policies reject every placement, and it is the best of those."""

    admission: Admission
    facts: Facts
    planned: bool

    @property
    def answer(self) -> Answer:
        """The policies' verdict on the job, as a plan of it shows."""
        return self.admission.answer if self.planned else Answer.DENY


def explain(broker: Broker, job: Job, policy: PolicySet | None = None, *, by: Actor) -> Explanation | None:
    """Every rule's verdict on the placement of the job's plan, with all the money to be held; if the policies leave
    none, on the best one that they reject. None if no offer can serve the job. ``policy``: for what-if questions;
    default: the active set. Raises as `preview`."""
    from broker.app.jobs.preview import preview

    job_preview, policy_set = preview(broker, job, policy, by=by), policy or broker.policy()
    admission = job_preview.admission
    now = job_preview.plan.made_at
    with broker.store.reading() as reader:
        facts_for = facts_of(reader, policy_set, now)
        if admission is not None:
            return Explanation(admission, facts_for(admission.action), planned=True)
        market = market_for(broker, job_preview.job, policy_set, reader=reader)
        conditions = replace(market.conditions, allow_reference_prices=True)
        plan = make_plan(job_preview.job, market.offers, now=now, submitted_at=now, conditions=conditions)
        if not plan.placements:
            return None
        admission = admit(
            job_preview.job, by.identity, plan, policy_set, facts_for, max_duration=job_preview.max_duration, now=now
        )
        return Explanation(admission, facts_for(admission.action), planned=False)
