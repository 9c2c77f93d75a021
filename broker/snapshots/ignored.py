"""Which files of a folder a snapshot leaves out.

As in Git: patterns of ``.gitignore`` in every folder, and of ``.git/info/exclude``. As in SkyPilot: a ``.skyignore`` in
the top folder replaces them. ``.gpubrokerignore``, in any folder, overrides all of them; with ``!`` it includes what
they leave out. ``.git`` is never included. `NAMED_DEFAULTS` and caches are left out unless one of these files includes
them: ``!.env``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pathspec import GitIgnoreSpec

OWN = ".gpubrokerignore"
_GIT, _SKYPILOT = ".gitignore", ".skyignore"
NAMED_DEFAULTS = (".env", ".env.local", ".venv", "node_modules", "wandb")
"""Secrets of this machine, and what its programs installed or recorded; a submitter is told that it is left out."""
_CACHES = (
    "__pycache__/",
    ".ipynb_checkpoints/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".tox/",
    ".DS_Store",
)
_DEFAULTS = GitIgnoreSpec.from_lines((*NAMED_DEFAULTS, *_CACHES))


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
        found = _read(folder / _GIT) if self.git else None
        layers = (*self.layers, (place, found)) if found else self.layers
        return replace(self, layers=layers)._with_own(folder, place)

    def _with_own(self, folder: Path, place: str) -> IgnoreRules:
        own = _read(folder / OWN)
        return replace(self, own=(*self.own, (place, own))) if own else self

    def leave_out(self, path: str, *, folder: bool) -> bool:
        """Whether the entry at ``path``, relative to the top, is left out."""
        rule = self.rule_for(path, folder=folder)
        return bool(_DEFAULTS.check_file(f"{path}/" if folder else path).include) if rule is None else rule

    def rule_for(self, path: str, *, folder: bool) -> bool | None:
        """Whether a file leaves the entry out; None if none says anything about it."""
        if path == ".git" or path.endswith("/.git"):
            return True
        for place, spec in reversed((*self.layers, *self.own)):
            local = path[len(place) + 1 :] if place else path
            said = spec.check_file(f"{local}/" if folder else local).include
            if said is not None:
                return said
        return None


def _read(file: Path) -> GitIgnoreSpec | None:
    try:
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    return GitIgnoreSpec.from_lines(text.splitlines())
