"""Run two commands at the same time: ``python -m tests.beside COMMAND -- COMMAND``.

The second writes to the terminal; the output of the first follows when both have ended. The exit status is 1 if either
failed. Ctrl-C reaches both, and each ends as it normally does.
"""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()


def run(first: Sequence[str], second: Sequence[str]) -> int:
    with tempfile.TemporaryFile() as written:
        both = [subprocess.Popen(first, stdout=written, stderr=subprocess.STDOUT), subprocess.Popen(second)]
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # only after the start: children inherit ignored signals
        signal.signal(signal.SIGTERM, lambda *_: end(both))
        ended = [(one.wait(), command) for one, command in zip(both, (first, second), strict=True)]
        written.seek(0)
        sys.stdout.buffer.write(written.read())
        sys.stdout.flush()
        for status, command in ended:
            if status:
                print(f"failed with exit status {status}: {' '.join(command)}", file=sys.stderr)
        return 1 if any(status for status, _ in ended) else 0


if __name__ == "__main__":
    cut = sys.argv.index("--")
    sys.exit(run(sys.argv[1:cut], sys.argv[cut + 1 :]))
