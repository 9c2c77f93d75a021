"""Which files of a folder a snapshot leaves out.

As Git does it: patterns of ``.gitignore`` in every folder, and of ``.git/info/exclude``. As SkyPilot does it: a
``.skyignore`` at the top replaces those. ``.gpubrokerignore``, in any folder, has the last word; with ``!`` it brings
back what the others leave out. ``.git`` itself is never taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

OWN = ".gpubrokerignore"
_GIT, _SKYPILOT = ".gitignore", ".skyignore"


@dataclass(frozen=True)
class IgnoreRules:
    """The patterns that hold in one folder. ``layers``: each with the folder it was written for, relative to the top;
    a later one prevails. ``git``: whether ``.gitignore`` counts."""

    layers: tuple[tuple[str, GitIgnoreSpec], ...] = ()
    own: tuple[tuple[str, GitIgnoreSpec], ...] = ()
    git: bool = True

    @classmethod
    def at_top(cls, root: Path) -> IgnoreRules:
        """Those of the top folder. Raises OSError, and ValueError for patterns that make no sense."""
        sky = _read(root / _SKYPILOT)
        if sky is not None:
            return cls((("", sky),), git=False)._with_own(root, "")
        exclude = _read(root / ".git" / "info" / "exclude")
        return cls((("", exclude),) if exclude else ()).below(root, "")

    def below(self, folder: Path, place: str) -> IgnoreRules:
        """Those of a folder, whose place relative to the top is ``place``. Raises as `at_top` does."""
        found = _read(folder / _GIT) if self.git else None
        layers = (*self.layers, (place, found)) if found else self.layers
        return IgnoreRules(layers, self.own, self.git)._with_own(folder, place)

    def _with_own(self, folder: Path, place: str) -> IgnoreRules:
        own = _read(folder / OWN)
        return IgnoreRules(self.layers, (*self.own, (place, own)) if own else self.own, self.git)

    def leave_out(self, path: str, *, folder: bool) -> bool:
        """Whether the entry at that path relative to the top is left out."""
        if path == ".git" or path.endswith("/.git"):
            return True
        for place, spec in reversed((*self.layers, *self.own)):
            local = path[len(place) + 1 :] if place else path
            said = spec.check_file(f"{local}/" if folder else local).include
            if said is not None:
                return said
        return False


def _read(file: Path) -> GitIgnoreSpec | None:
    try:
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    return GitIgnoreSpec.from_lines(text.splitlines())
