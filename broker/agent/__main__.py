"""``gpubroker-agent``: run one rank of an attempt on this machine. Started by engines, seldom by hand."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from pathlib import Path

from broker.agent.access import ACCESS_VARIABLE, NodeAccess
from broker.agent.environment import Scratch
from broker.agent.formats import BadDocument
from broker.agent.signatures import KEY_VARIABLE
from broker.agent.store import ObjectFolder, StoreTrouble, make_private, split_folder
from broker.agent.supervise import FOLDER_OUT_OF_REACH, Attempt, JobFolders


def _parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpubroker-agent", description=__doc__)
    parser.add_argument("--folder", required=True, help="the attempt's run folder: <store>/<job>/attempts/<number>")
    parser.add_argument("--rank", type=int, default=0, help="which node of the gang this is (default 0)")
    parser.add_argument("--gang", default="", help="an id that all agents of one gang share")
    parser.add_argument("--scratch", type=Path, help="a private folder on this machine (default: a temporary one)")
    parser.add_argument("--hold", type=int, action="append", default=[], help="file descriptor to hold while alive")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: the command's; 143 interrupted or stopped; 79 another machine runs the attempt; 80 a
    newer attempt exists; 75 the run folder is unreachable; 2 wrong usage. ``enter …``: see `broker.agent.enter`.
    """
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["enter"]:
        from broker.agent.enter import main as enter

        return enter(words[1:])
    arguments = _parse_arguments(argv)
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", level=logging.INFO, stream=sys.stderr)
    try:
        job, attempt = split_folder(arguments.folder)
    except ValueError as error:
        logging.getLogger("gpubroker-agent").error("%s", error)
        return 2
    for descriptor in arguments.hold:
        os.set_inheritable(descriptor, False)  # the command must not inherit it
    scratch = arguments.scratch or Path(tempfile.mkdtemp(prefix="gpubroker-"))
    make_private(scratch)
    if scratch.is_symlink() or scratch.stat().st_uid != os.geteuid():
        logging.getLogger("gpubroker-agent").error(
            "%s is a link or belongs to another user; its content would run as this job. Give another --scratch",
            scratch,
        )
        return 2
    try:
        credentials = os.environ.pop(ACCESS_VARIABLE, None)
        access = NodeAccess(credentials) if credentials else None
        store = ObjectFolder.open(job, access)
    except (StoreTrouble, BadDocument) as error:
        logging.getLogger("gpubroker-agent").error("%s", error)
        return FOLDER_OUT_OF_REACH
    runs = job.rpartition("/")[0]
    os.environ.pop("GPUBROKER_TICKET", None)  # the ticket of the launch; the job's commands do not get it
    folders = JobFolders(
        store,
        lambda name: ObjectFolder.open(f"{runs}/{name}", access and access.beside(name)),
        os.environ.pop(KEY_VARIABLE, None),
        access,
    )
    return Attempt(folders, attempt, arguments.rank, arguments.gang, Scratch(scratch), arguments.hold).run()


if __name__ == "__main__":
    sys.exit(main())
