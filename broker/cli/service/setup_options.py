"""The options of `gpubroker setup`, apart from its walk, which is slow to import."""

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True)
class SetupOptions:
    """What is made, and what is asked."""

    create_bucket: Annotated[
        str | None,
        typer.Option(
            "--create-bucket", metavar="NAME", help="Create this private bucket: NAME, s3://NAME, gs://NAME, …"
        ),
    ] = None
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="USD", help="Monthly amount of a first policy, if none is active.")
    ] = None
    run: Annotated[bool, typer.Option("--run", help="Submit the trial job, which costs at most $1.")] = False
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask; only options create a bucket or submit a job.")
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False
