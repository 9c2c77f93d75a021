"""`gpubroker setup`: from a login to a cloud to a first job there, step by step."""

from typing import Annotated

import typer

from broker.cli.options import AsJson, examples, expand_options
from broker.cli.service.setup_options import SetupOptions
from broker.cli.terminal import Terminal

EXAMPLES = examples(
    "gpubroker setup aws",
    "gpubroker setup aws --dry-run",
    "gpubroker setup gcp --create-bucket my-runs --budget '$50' --yes",
    "gpubroker setup slurm --run --yes --json",
)


@expand_options
def setup(
    context: typer.Context,
    cloud: Annotated[
        str, typer.Argument(metavar="CLOUD", help="aws, azure, gcp, kubernetes, lambda, runpod, slurm or vast.")
    ],
    given: SetupOptions,
    as_json: AsJson = False,
) -> None:
    """Set up a cloud: check what is installed, the login and its rights; create a bucket, poll prices, apply a first
    budget; run a trial job.

    Each step says what it did and how to undo it. Nothing is created unless you agree or an option says so; what is
    already there is kept. Exits with 0 if jobs can start there, 2 if something is missing.
    """
    from broker.app.clouds import find_cloud
    from broker.app.service.documents import SetupReport
    from broker.cli.service.setup_walk import SetupWalk

    terminal = Terminal.of(context)
    find_cloud(cloud)
    walk = SetupWalk(terminal, cloud, given)
    assert walk.broker  # settings that cannot be read, and a team server, end it before the first step
    try:
        for step in (walk.check, walk.bucket, walk.prices, walk.budget, walk.trial):
            walk.add(step())
    except (KeyboardInterrupt, typer.Abort):
        terminal.say(f"Stopped. What is marked ✓ is done and stays; `gpubroker setup {cloud}` continues.")
        raise typer.Exit(130) from None
    report = SetupReport.of(cloud, walk.findings, dry_run=given.dry_run)
    terminal.result(report, lambda: walk.summary(ready=report.ready))
    if not report.ready:
        raise typer.Exit(2)
