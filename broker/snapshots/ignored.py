"""Which files of a folder a snapshot leaves out.

As in Git: patterns of ``.gitignore`` in every folder, and of ``.git/info/exclude``. As in SkyPilot: a ``.skyignore`` in
the top folder replaces them. ``.gpubrokerignore``, in any folder, overrides all of them; with ``!`` it includes what
they leave out. ``.git`` is never included.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

OWN = ".gpubrokerignore"
_GIT, _SKYPILOT = ".gitignore", ".skyignore"


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
        return IgnoreRules(layers, self.own, self.git)._with_own(folder, place)

    def _with_own(self, folder: Path, place: str) -> IgnoreRules:
        own = _read(folder / OWN)
        return IgnoreRules(self.layers, (*self.own, (place, own)) if own else self.own, self.git)

    def leave_out(self, path: str, *, folder: bool) -> bool:
        """Whether the entry at ``path``, relative to the top, is left out."""
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
