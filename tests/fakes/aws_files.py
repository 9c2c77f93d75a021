"""AWS's public files on loopback: bulk price lists and the spot advisor's data.

The price list has the columns and the first lines of the real one (EC2, 2025). A product is defined once; its rows
appear one per price dimension, among rows about other systems and tenancies, as in the real file.
"""

import csv
import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PREAMBLE = (
    ("FormatVersion", "v1.0"),
    ("Disclaimer", "This pricing list is for informational purposes only."),
    ("Publication Date", "2026-11-12T22:53:08Z"),
    ("Version", "20261112225308"),
    ("OfferCode", "AmazonEC2"),
)
COLUMNS = (
    "SKU", "OfferTermCode", "RateCode", "TermType", "PriceDescription", "EffectiveDate", "StartingRange", "EndingRange",
    "Unit", "PricePerUnit", "Currency", "RelatedTo", "LeaseContractLength", "PurchaseOption", "OfferingClass",
    "Product Family", "serviceCode", "Location", "Location Type", "Instance Type", "Current Generation",
    "Instance Family", "vCPU", "Physical Processor", "Clock Speed", "Memory", "Storage", "Network Performance",
    "Processor Architecture", "Storage Media", "Volume Type", "Max Volume Size", "Max IOPS/volume", "Provisioned",
    "Tenancy", "EBS Optimized", "Operating System", "License Model", "Group", "Group Description", "Transfer Type",
    "usageType", "operation", "AvailabilityZone", "CapacityStatus", "Dedicated EBS Throughput", "ECU", "GPU",
    "GPU Memory", "MarketOption", "Normalization Size Factor", "Physical Cores", "Pre Installed S/W",
    "Processor Features", "Region Code", "serviceName",
)  # fmt: skip
ON_DEMAND_TERM = "JRTCKXETXF"

Row = dict[str, str]


def product(instance_type: str, region: str, *, sku: str = "", **attributes: str) -> Row:
    """The attributes of a plain Linux machine; others by keyword (column names with ``_`` for a space)."""
    made = {
        "SKU": sku or f"{instance_type}-{region}".upper().replace(".", "").replace("-", ""),
        "Product Family": "Compute Instance", "serviceCode": "AmazonEC2", "Location": f"Region {region}, with a comma",
        "Location Type": "AWS Region", "Instance Type": instance_type, "Current Generation": "Yes",
        "Instance Family": "GPU instance", "Memory": "2048 GiB", "Tenancy": "Shared", "Operating System": "Linux",
        "License Model": "No License required", "usageType": f"BoxUsage:{instance_type}", "operation": "RunInstances",
        "AvailabilityZone": "NA", "CapacityStatus": "Used", "GPU": "8", "MarketOption": "OnDemand",
        "Pre Installed S/W": "NA", "Region Code": region, "serviceName": "Amazon Elastic Compute Cloud",
    }  # fmt: skip
    made.update({name.replace("_", " "): value for name, value in attributes.items()})
    return made


def on_demand(of: Row, usd: str, **more: str) -> Row:
    return {**of, "OfferTermCode": ON_DEMAND_TERM, "TermType": "OnDemand", "Unit": "Hrs", "PricePerUnit": usd,
            "Currency": "USD", "EffectiveDate": "2026-11-01", "StartingRange": "0", "EndingRange": "Inf",
            "PriceDescription": f"${usd} per On Demand Linux {of['Instance Type']} Instance Hour", **more}  # fmt: skip


def reserved(
    of: Row, years: int, option: str, hourly: str | None, upfront: str | None, offering_class: str = "standard"
) -> list[Row]:
    """One row for the hourly price and one for the fee, if there are such prices; the fee comes first, as in the real
    file.
    """
    term: Row = {**of, "OfferTermCode": f"{offering_class[:3]}{years}{option[:2]}".upper(), "TermType": "Reserved",
                 "Currency": "USD", "EffectiveDate": "2026-01-01", "LeaseContractLength": f"{years}yr",
                 "PurchaseOption": option, "OfferingClass": offering_class}  # fmt: skip
    rows = []
    if upfront is not None:
        rows.append({**term, "Unit": "Quantity", "PricePerUnit": upfront, "PriceDescription": "Upfront Fee"})
    if hourly is not None:
        described = f"Linux/UNIX (Amazon VPC), {of['Instance Type']} reserved instance applied"
        rows.append({**term, "Unit": "Hrs", "PricePerUnit": hourly, "PriceDescription": described})
    return rows


def price_list(rows: list[Row]) -> str:
    """The content of the file."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows(PREAMBLE)
    writer.writerow(COLUMNS)
    writer.writerows([row.get(column, "") for column in COLUMNS] for row in rows)
    return text.getvalue()


def advisor(regions: dict[str, dict[str, tuple[int, int]]]) -> dict[str, Any]:
    """The spot advisor's data: region → instance type → (saving in %, index of the band)."""
    labels = ("<5%", "5-10%", "10-15%", "15-20%", ">20%")
    return {
        "global_rate": "<10%",
        "instance_types": {"p5.48xlarge": {"cores": 192, "ram_gb": 2048.0, "emr": True}},
        "ranges": [
            {"index": index, "label": label, "dots": index, "max": most}
            for index, (label, most) in enumerate(zip(labels, (5, 11, 16, 22, 100), strict=True))
        ],
        "spot_advisor": {
            region: {
                "Linux": {name: {"s": saving, "r": band} for name, (saving, band) in types.items()},
                "Windows": {name: {"s": saving // 2, "r": 4} for name, (saving, _) in types.items()},
            }
            for region, types in regions.items()
        },
    }


@dataclass
class FileAnswer:
    """One answer.

    ``modified``: its Last-Modified; ``cut``: the connection breaks after this number of bytes of the body.
    """

    body: bytes = b""
    status: int = 200
    etag: str = ""
    modified: str = ""
    cut: int | None = None


@dataclass
class Files:
    """A file server. ``answers``: path → answer, or a function of the number of earlier requests for the path."""

    answers: dict[str, FileAnswer | Callable[[int], FileAnswer]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    bodies: int = 0  # sent whole
    url: str = ""

    def put_list(self, region: str, rows: list[Row] | str, **how: Any) -> None:
        text = rows if isinstance(rows, str) else price_list(rows)
        self.answers[f"/offers/v1.0/aws/AmazonEC2/current/{region}/index.csv"] = FileAnswer(text.encode(), **how)

    def put_advisor(self, data: Any, **how: Any) -> None:
        self.answers["/spot-advisor-data.json"] = FileAnswer(json.dumps(data).encode(), **how)


@contextmanager
def serve_files() -> Iterator[Files]:
    """Runs the server during the block; paths without an answer return 404."""
    files = Files()

    class AwsFileHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            before = files.asked.count(self.path)
            files.asked.append(self.path)
            found = files.answers.get(self.path, FileAnswer(b"no such file", 404))
            answer = found(before) if callable(found) else found
            known, since = self.headers.get("If-None-Match"), self.headers.get("If-Modified-Since")
            # RFC 9110, 13.1.3: the date counts only if no ETag is sent.
            unchanged = known == answer.etag if known else bool(since) and since == answer.modified
            self.send_response(304 if unchanged else answer.status)
            for name, value in (("ETag", answer.etag), ("Last-Modified", answer.modified)):
                if value:
                    self.send_header(name, value)
            self.send_header("Content-Length", "0" if unchanged else str(len(answer.body)))
            self.end_headers()
            if not unchanged:
                files.bodies += answer.status == 200
                self.wfile.write(answer.body[: answer.cut])
            if answer.cut is not None:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    class QuietServer(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that hung up does not matter to the test

    server = QuietServer(("127.0.0.1", 0), AwsFileHandler)
    files.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield files
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
