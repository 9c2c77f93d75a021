"""The program's name in printed commands."""

import shlex
import shutil
import sys
from pathlib import Path


def program_name() -> str:
    """The program's name in printed commands: ``gpubroker`` if the shell finds it under that name, else its path."""
    start_path = sys.argv[0]
    if Path(start_path).name != "gpubroker" or "/" not in start_path:
        return "gpubroker"
    shell_path = shutil.which("gpubroker")
    is_on_path = shell_path is not None and Path(shell_path).resolve() == Path(start_path).resolve()
    return "gpubroker" if is_on_path else shlex.quote(start_path)
