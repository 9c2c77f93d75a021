"""The instance metadata service of a node, as a program in its network namespace: version 2 only, as on new machines.

The interruption notice is what lies in a file, from the moment it lies there. Only the standard library: it runs on the
system's Python.
"""

from __future__ import annotations

import http.server
import sys
from pathlib import Path

ADDRESS = ("169.254.169.254", 80)


class MetadataHandler(http.server.BaseHTTPRequestHandler):
    """Class variables: of the one node that this process serves."""

    node: dict[str, str]
    notice: Path

    def do_PUT(self) -> None:
        self._answer(200, f"token-{self.node['instance-id']}")

    def do_GET(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") != f"token-{self.node['instance-id']}":
            return self._answer(401)
        asked = self.path.removeprefix("/latest/meta-data/")
        if asked == "spot/instance-action" and self.notice.exists():
            return self._answer(200, self.notice.read_text())
        return self._answer(200, self.node[asked]) if asked in self.node else self._answer(404)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: every agent asks every few seconds."""

    def _answer(self, status: int, text: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


def main(instance: str, region: str, zone: str, notice: str) -> None:
    MetadataHandler.node = {"instance-id": instance, "placement/region": region, "placement/availability-zone": zone}
    MetadataHandler.notice = Path(notice)
    http.server.ThreadingHTTPServer(ADDRESS, MetadataHandler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
