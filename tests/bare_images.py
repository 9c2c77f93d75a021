"""The Python versions that an agent may find on a bare image, as far as this machine has them, each with its obstore.

``python -m tests.bare_images`` installs missing obstores into the folder that `LIBRARIES` names. It downloads no
Python: tests of missing versions are skipped.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from broker.engines.runfolder.agent_bundle import OBSTORE, requirements

LIBRARIES = "GPUBROKER_TEST_AGENT_LIBS"
VERSIONS = ("3.9", "3.10", "3.12")


def python(version: str) -> Path | None:
    """The interpreter of that version: on the PATH, or one of pyenv's."""
    homes = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    candidates = [*(home / "bin" / "python" for home in sorted(homes.glob(f"{version}.*")))]
    on_path = shutil.which(f"python{version}")
    for candidate in [*candidates, *([Path(on_path)] if on_path else [])]:
        asked = subprocess.run(
            [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode == 0 and asked.stdout.strip() == version:
            return candidate
    return None


def requirement(version: str) -> str:
    """The requirement of obstore for that Python, as in the agent's archive."""
    known = tuple(int(part) for part in version.split("."))
    return next(wanted for least, wanted in OBSTORE if known >= least)


def library(version: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder with obstore for that version; None if it was not installed."""
    place = environment.get(LIBRARIES)
    folder = Path(place) / version if place else None
    return folder if folder and (folder / "obstore").is_dir() else None


def main() -> None:
    root = Path(os.environ[LIBRARIES])
    for version in VERSIONS:
        if python(version) is None or library(version) is not None:
            continue
        wanted = ["--target", str(root / version), "--python-version", version, "--only-binary", ":all:"]
        quiet = ["--quiet", "--disable-pip-version-check", "--root-user-action", "ignore"]
        place = root / f"{version}.txt"
        root.mkdir(parents=True, exist_ok=True)
        place.write_text(requirements(requirement(version)))
        exact = ["--require-hashes", "--requirement", str(place)]  # as a node installs it
        subprocess.run([sys.executable, "-m", "pip", "install", *quiet, *wanted, *exact], check=True)


if __name__ == "__main__":
    main()
