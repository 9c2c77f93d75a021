"""The agent stands alone: old syntax, few imports, and it runs out of one file on a bare node."""

import ast
import os
import shutil
import subprocess
import sys
import zipapp
from pathlib import Path

import pytest

import broker.agent as agent
from broker.core.events.outcomes import Cause
from tests.agent.node import SAVE, Node

PACKAGE = Path(agent.__file__).parent
FILES = sorted(PACKAGE.glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_syntax_of_python_3_9(file: Path) -> None:
    ast.parse(file.read_text("utf-8"), feature_version=(3, 9))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_only_the_standard_library_and_obstore(file: Path) -> None:
    found = set()
    for line in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(line, ast.Import):
            found |= {alias.name for alias in line.names}
        elif isinstance(line, ast.ImportFrom):
            found.add(line.module or "")
    strangers = {
        name
        for name in found
        if name.partition(".")[0] not in sys.stdlib_module_names | {"obstore"} and not name.startswith("broker.agent")
    }
    # Imported only where boto3 is installed, as on the machine of somebody who ran `aws configure`.
    assert strangers <= ({"botocore.exceptions"} if file.name == "aws.py" else set())
    if file.name in ("guard.py", "gpubroker_checkpoint.py"):
        assert not [name for name in found if name.startswith(("broker", "obstore"))], "runs on its own"


def test_it_runs_out_of_one_file(node: Node, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(PACKAGE, source / "broker" / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    (source / "broker" / "__init__.py").touch()
    archive = tmp_path / "agent.pyz"
    zipapp.create_archive(source, archive, main="broker.agent.__main__:main")
    node.spec(SAVE + "save step_1; python3 -c 'import gpubroker_checkpoint'")
    arguments = ["--folder", node.runs.attempt_url(1), "--scratch", str(tmp_path / "scratch")]
    program = [sys.executable, "-P", str(archive), *arguments]
    done = subprocess.run(program, cwd="/", env={"PATH": os.environ["PATH"]}, check=False, timeout=240)
    assert done.returncode == 0
    assert node.ending().cause is Cause.COMPLETED
    assert node.saved() == [1]
