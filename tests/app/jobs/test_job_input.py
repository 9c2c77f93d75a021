"""A job as its submitter gives it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.app.jobs.job_input import job_of_command
from broker.core.errors import InvalidInput
from broker.core.job.file.reading import JobOverrides

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize("line", ["", "  "])
def test_an_empty_command_is_a_mistake_and_no_crash(tmp_path: Path, line: str) -> None:
    with pytest.raises(InvalidInput):
        job_of_command([line], tmp_path, NOW, JobOverrides())
