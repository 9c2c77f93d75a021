"""The program ``gpubroker-agent enter``: runs a program, or serves one SSH connection, inside a running job."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from broker.agent.running_command import CannotEnter, exec_ssh_program, find_running_command, run, scratch_of, shell


def main(argv: Sequence[str]) -> int:
    """``enter``; returns the exit status of the program, or one of this module's."""
    options, command = _split(argv)
    parser = argparse.ArgumentParser(prog="gpubroker-agent enter", description=__doc__)
    parser.add_argument("--scratch", type=Path, help="the agent's folder")
    parser.add_argument("--folder", help="or the attempt's run folder, by which the agent is found")
    parser.add_argument("--rank", type=int, default=0, help="with --folder: which node of the gang (default 0)")
    parser.add_argument("--sshd", metavar="PUBLIC_KEY", help="serve one SSH connection for the owner of this key")
    parser.add_argument("--lines", action="store_true", help="with --sshd: encode the output as lines of base64")
    parser.add_argument("--over-ssh", action="store_true", help="run what the SSH client asked for")
    arguments = parser.parse_args(options)
    try:
        scratch = arguments.scratch or scratch_of(arguments.folder or "", arguments.rank)
        at = find_running_command(scratch)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, os.sched_getaffinity(at.guard))
        if arguments.over_ssh:
            return exec_ssh_program(at)
        if arguments.sshd:
            from broker.agent.ssh_server import serve  # imported only when needed

            return serve(at, arguments.sshd, lines=arguments.lines)
        return run(at, command or [shell(at.variables)])
    except CannotEnter as error:
        print(f"gpubroker: {error}", file=sys.stderr)  # noqa: T201 (what the person sees)
        return error.status


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options, and the command after ``--``."""
    words = list(argv)
    separator = words.index("--") if "--" in words else len(words)
    return words[:separator], words[separator + 1 :]
