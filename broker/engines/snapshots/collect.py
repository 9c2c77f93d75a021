"""Lists the content of a snapshot: every entry of a folder with its size, or all reasons why no snapshot is
possible.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pathspec import GitIgnoreSpec

from broker.agent.entries import FILE, FOLDER, LINK, inner_target, kind_of
from broker.agent.source_tree import TreeEntry
from broker.core.errors import InvalidInput, Problem
from broker.core.values.units import print_size

IGNORE_FILE = ".gpubrokerignore"
_GIT, _SKYPILOT = ".gitignore", ".skyignore"
_NAMED = GitIgnoreSpec.from_lines(
    [
        *(".env", ".env.*", "*.env", ".envrc", "!.env.example", "!.env.sample", "!.env.template", "!.env.dist"),
        *(".netrc", ".netrc.*", "_netrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".pgpass", ".my.cnf", ".boto", ".s3cfg"),
        *(".passwd-s3fs", ".git-credentials", ".vault-token", ".databrickscfg", ".modal.toml", "kaggle.json"),
        *("*.tfstate", "*.tfstate.*", "*.tfvars", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "kubeconfig"),
        *(".secrets", "credentials.json", "rclone.conf", ".htpasswd", ".comet.config", ".terraformrc"),
        *(".dockercfg", "**/.cargo/credentials*", "**/.gem/credentials", "**/.m2/settings.xml", ".snowflake/"),
        *("secrets.json", "secrets.toml", "secrets.yaml", "secrets.yml", "application_default_credentials.json"),
        *("id_rsa*", "id_ed25519*", "id_ecdsa*", "id_dsa*", ".ssh/", ".gnupg/", ".aws/", ".azure/", ".oci/", ".kube/"),
        *("**/.config/gcloud/", "**/.config/gh/", "**/.config/rclone/", "**/.docker/config.json"),
        *("**/.huggingface/token", "**/.cache/huggingface/token"),
        *(".venv", ".conda/", ".pixi/", ".direnv/", ".nox/", "node_modules/", ".terraform/", ".vagrant/"),
        *("wandb/", "mlruns/", "lightning_logs/", "tb_logs/", ".neptune/", ".aim/"),
    ]
)
"""Secrets of this machine, and what its programs installed or recorded, by names in lower case; a submitter is told of
what is left out."""
_KEY_FILES = frozenset(
    ("", ".asc", ".cer", ".crt", ".json", ".key", ".p8", ".pem", ".ppk", ".rsa", ".toml", ".txt", ".yaml", ".yml")
)
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----|^PuTTY-User-Key-File-")
_LARGEST_KEY = 64 << 10
_CACHES = GitIgnoreSpec.from_lines(
    ("__pycache__/", ".ipynb_checkpoints/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".tox/", ".DS_Store")
)


@dataclass(frozen=True)
class IgnoreRules:
    """The patterns that apply in one folder.

    ``layers``: each with its folder, relative to the top; later ones take precedence. ``git``: whether ``.gitignore``
    files apply.
    """

    layers: tuple[tuple[str, GitIgnoreSpec], ...] = ()
    own: tuple[tuple[str, GitIgnoreSpec], ...] = ()
    git: bool = True

    @classmethod
    def at_top(cls, root: Path) -> IgnoreRules:
        """The patterns of the top folder. Raises OSError, and ValueError for invalid patterns."""
        sky = _read(root / _SKYPILOT)
        if sky is not None:
            return cls((("", sky),), git=False)._with_own(root, "")
        exclude = _read(root / ".git" / "info" / "exclude")
        return cls((("", exclude),) if exclude else ()).below(root, "")

    def below(self, folder: Path, place: str) -> IgnoreRules:
        """The patterns of the folder at ``place``, relative to the top. Raises as `at_top`."""
        git_rules = _read(folder / _GIT) if self.git else None
        layers = (*self.layers, (place, git_rules)) if git_rules else self.layers
        return replace(self, layers=layers)._with_own(folder, place)

    def _with_own(self, folder: Path, place: str) -> IgnoreRules:
        own = _read(folder / IGNORE_FILE)
        return replace(self, own=(*self.own, (place, own))) if own else self

    def decision_for(self, path: str, *, folder: bool) -> bool | None:
        """Whether a file leaves the entry out; None if no file mentions it."""
        if path == ".git" or path.endswith("/.git"):
            return True
        for place, spec in reversed((*self.layers, *self.own)):
            local = path[len(place) + 1 :] if place else path
            verdict = spec.check_file(f"{local}/" if folder else local).include
            if verdict is not None:
                return verdict
        return None


def _read(file: Path) -> GitIgnoreSpec | None:
    try:
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    return GitIgnoreSpec.from_lines(text.splitlines())


_MAX_PROBLEMS = 10
_MAX_LISTED = 5


@dataclass(frozen=True, slots=True)
class DiskEntry:
    """An entry on disk. ``state``: size, time of change (ns) and inode, to detect a change of the file."""

    entry: TreeEntry
    place: Path
    state: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class CollectedTree:
    """The entries of one folder or file, ``root``.

    ``left_out`` without being listed in a file: virtual environments, which do not work in another place, files with
    private keys, and what is `_NAMED`.
    """

    root: Path
    entries: tuple[DiskEntry, ...]
    left_out: tuple[str, ...] = ()

    @property
    def files(self) -> Sequence[DiskEntry]:
        return [item for item in self.entries if item.entry.kind == FILE]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(item.entry.size for item in self.entries)


def collect(root: Path, name: str | None = None) -> CollectedTree:
    """List a folder, or one file, which gets the name ``name`` in the tree. Reads the content of ignore files, and of
    those that may be private keys, only.

    Raises `InvalidInput` with every problem: links that leave the folder, unreadable entries, sockets and similar.
    """
    problems: list[Problem] = []
    left_out: list[str] = []

    def report(path: Path, message: str) -> None:
        problems.append(Problem(0, 0, str(path), message))

    try:
        if root.is_dir():
            entries = tuple(_entries_below(root, root, IgnoreRules.at_top(root), report, left_out))
        else:
            entries = tuple(_entry_at(root, name or root.name, root.parent, report))
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", where=str(error.filename or root)) from error
    except ValueError as error:
        raise InvalidInput(f"an ignore file has an invalid pattern: {error}", where=str(root)) from error
    if problems:
        omitted = f"; and {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
        problem_texts = "; ".join(f"{problem.key}: {problem.message}" for problem in problems[:_MAX_PROBLEMS])
        raise InvalidInput(
            f"the snapshot cannot be taken: {problem_texts}{omitted}",
            where=str(root),
            hint=f"remove them, or list them in {IGNORE_FILE} (same format as .gitignore)",
            problems=problems,
        )
    return CollectedTree(root, entries, tuple(left_out))


def check_size(trees: Sequence[CollectedTree], limit: int) -> None:
    """Raises `InvalidInput`, with the largest entries, if all trees together exceed ``limit`` bytes."""
    total = sum(tree.size for tree in trees)
    if total <= limit:
        return
    sizes: dict[str, int] = {}
    for tree in trees:
        for entry_file in tree.files:
            top, rest, _ = entry_file.entry.path.partition("/")
            label = str(tree.root / top) + rest if len(trees) > 1 else top + rest
            sizes[label] = sizes.get(label, 0) + entry_file.entry.size
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:_MAX_LISTED]
    size_texts = ", ".join(f"{label} ({size_text(size)})" for label, size in largest)
    raise InvalidInput(
        f"the job's files take {size_text(total)}, more than the limit of {print_size(limit)}; the largest: "
        f"{size_texts}",
        where=", ".join(str(tree.root) for tree in trees),
        hint=f"name what the job does not need in {IGNORE_FILE} (same form as .gitignore), keep data in a bucket, or "
        "raise "
        "GPUBROKER_MAX_SNAPSHOT",
    )


def size_text(size: int) -> str:
    """Bytes for people: ``12.3 MB``."""
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


def file_state(place: Path) -> tuple[int, int, int]:
    """As `DiskEntry.state`; follows no link. Raises OSError."""
    status = place.lstat()
    return status.st_size, status.st_mtime_ns, status.st_ino


ReportProblem = Callable[[Path, str], None]


def _entries_below(
    folder: Path, root: Path, rules: IgnoreRules, report: ReportProblem, left_out: list[str]
) -> Iterator[DiskEntry]:
    with os.scandir(folder) as listing:
        children = sorted(listing, key=lambda item: item.name)
    for item in children:
        place = Path(item.path)
        path = place.relative_to(root).as_posix()
        is_folder = item.is_dir(follow_symlinks=False)
        ignored, pattern_path = rules.decision_for(path, folder=is_folder), f"{path}/" if is_folder else path
        if ignored is None and (_NAMED.match_file(pattern_path.lower()) or _is_private_key(place)):
            left_out.append(path)
            continue
        if ignored or (ignored is None and _CACHES.match_file(pattern_path)):
            continue
        if not is_folder:
            yield from _entry_at(place, path, root, report)
            continue
        if not os.access(place, os.R_OK | os.X_OK, effective_ids=True):
            report(place, "cannot be read: permission denied")
            continue
        if (place / "pyvenv.cfg").is_file():
            left_out.append(path)
            continue
        yield DiskEntry(TreeEntry(path, FOLDER, stat.S_IMODE(item.stat(follow_symlinks=False).st_mode) & 0o777), place)
        yield from _entries_below(place, root, rules.below(place, path), report, left_out)


def _is_private_key(place: Path) -> bool:
    """Whether a file contains a private key, as those of SSH, TLS and service accounts do."""
    if place.suffix.lower() not in _KEY_FILES or not place.is_file() or place.stat().st_size > _LARGEST_KEY:
        return False
    try:
        return _PRIVATE_KEY.search(place.read_bytes()) is not None
    except OSError:
        return False


def _entry_at(place: Path, path: str, root: Path, report: ReportProblem) -> Iterator[DiskEntry]:
    """The entry at ``path`` of the tree; if it cannot be included, calls ``report`` and yields nothing."""
    status = place.lstat()
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if stat.S_ISLNK(status.st_mode):
        target = inner_target(place, root)
        if target is None:
            report(place, f"a link that points outside the folder, to {place.readlink()}")
        else:
            yield DiskEntry(TreeEntry(path, LINK, 0o777, target=target), place)
    elif not stat.S_ISREG(status.st_mode):
        report(place, f"not a file, folder or link, but a {kind_of(status.st_mode)}")
    elif not os.access(place, os.R_OK, effective_ids=True):
        report(place, "cannot be read: permission denied")
    else:
        yield DiskEntry(
            TreeEntry(path, FILE, mode, status.st_size), place, (status.st_size, status.st_mtime_ns, status.st_ino)
        )
