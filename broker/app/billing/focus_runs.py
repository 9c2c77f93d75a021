"""Which files of a folder are a FOCUS export. Clouds deliver the whole month again with each run, and keep the files of
earlier runs next to it.

A manifest (AWS Data Exports, Azure Cost Management) names the files of its run; the newest run of each export and
period counts. Without manifests, files that contain the same charges are refused, because their sum counts twice.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from broker.core.errors import InvalidInput
from broker.core.values.figures import join_names

SUFFIXES = (".csv", ".csv.gz", ".parquet")
IDENTITY = (
    "BillingAccountId", "SubAccountId", "BillingPeriodStart", "ResourceId", "ResourceName", "ServiceName", "SkuId",
    "SkuPriceId", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "CommitmentDiscountId",
    "CommitmentDiscountStatus", "PricingCategory", "RegionId",
)  # fmt: skip
"""Columns that, with provider and charge period, say what is charged. A later run may correct the amounts."""

_RUN_STAMP = re.compile(r"\d{12,14}")  # a folder for each run, next to its id (Azure)
_MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class ExportFiles:
    """The files to read, and those of earlier runs, which are left out."""

    files: Sequence[Path]
    superseded: Sequence[Path] = ()


@dataclass(frozen=True, slots=True)
class _Run:
    """``series``: the export and period, of which each run is the whole; ``order``: sorts the runs of a series by time;
    ``files``: by their names in the manifest, None for those that the folder lacks."""

    manifest: Path
    id: str
    series: tuple[str, ...]
    order: tuple[str, bool]
    files: Mapping[str, Path | None]


def export_files(export: Path) -> ExportFiles:
    """The files of an export, a file or a folder, in the order of their names. Raises `InvalidInput` for a folder
    without files, for a file that the newest manifest names and the folder lacks, and for runs of unknown order."""
    if not export.is_dir():
        return ExportFiles([export])
    folder_files = sorted(file for file in export.rglob("*") if file.is_file())
    data_files = [file for file in folder_files if file.name.lower().endswith(SUFFIXES)]
    if not data_files:
        raise InvalidInput(f"the folder has no file that ends in {', '.join(SUFFIXES)}", where=str(export))
    newest: dict[tuple[str, ...], _Run] = {}
    listed_files: set[Path | None] = set()
    for manifest in (file for file in folder_files if file.name.lower().endswith("manifest.json")):
        if (run := _run(manifest, data_files)) is None:
            continue
        listed_files |= set(run.files.values())
        newest_run = newest.get(run.series, run)
        if run.order == newest_run.order and run.id != newest_run.id:
            raise InvalidInput(
                f"the manifests {newest_run.manifest} and {manifest} do not say which run is newer",
                where=str(export), hint="move the files of the older run out of the folder",
            )  # fmt: skip
        newest[run.series] = max(newest_run, run, key=lambda run: run.order)
    files, folders = set[Path](), set[Path]()
    for run in newest.values():
        for name, file in run.files.items():
            if file is None:
                hint = "copy the whole export, or name one file"
                raise InvalidInput(f"names {name}, which is not in the folder", where=str(run.manifest), hint=hint)
            files.add(file)
            folders.add(file.parent.parent if run.id and run.id in file.parent.name else file.parent)
    outdated = [
        file
        for file in data_files
        if file not in files and (file in listed_files or not folders.isdisjoint(file.parents))
    ]
    return ExportFiles([file for file in data_files if file not in outdated], outdated)


def _run(manifest: Path, data_files: Sequence[Path]) -> _Run | None:
    """None for a JSON file that lists no files of an export."""
    try:
        body = json.loads(manifest.read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"is not a manifest: {error}", where=str(manifest), hint="copy the file again") from error
    body = body if isinstance(body, dict) else {}
    azure: Mapping[str, Any] = body.get("runInfo") or {}
    blobs = body.get("blobs") or ()
    names = [str(name) for name in body.get("dataFiles") or ()] + [str(blob.get("blobName")) for blob in blobs]
    if not names:
        return None
    id = str(body.get("executionId") or azure.get("runId") or "")
    folder = PurePosixPath(names[0]).parent.parts
    run_folders = [part for part in folder if (id and id in part) or _RUN_STAMP.fullmatch(part)]
    started = str(azure.get("submittedTime") or next((part for part in run_folders if part != id), ""))
    return _Run(
        manifest,
        id,
        tuple(part for part in folder if part not in run_folders),
        (started, not (id and id in str(manifest))),  # next to the folders of runs is the manifest of the newest
        {name: _local_file(name, manifest, data_files) for name in names},
    )


def _local_file(name: str, manifest: Path, data_files: Sequence[Path]) -> Path | None:
    """The file of that name in the cloud. Its folder has the same name here, or contains the manifest, too."""
    reversed_parts = PurePosixPath(name).parts[::-1]

    def match(file: Path) -> tuple[int, bool]:
        path = file.absolute().parts[::-1]
        matching_parts = sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(path, reversed_parts, strict=False))
        )
        return matching_parts, file.parent == manifest.parent

    best = max(data_files, key=match)
    matching_parts, is_beside_manifest = match(best)
    return best if matching_parts > 1 or (matching_parts and is_beside_manifest) else None


@dataclass(slots=True)
class Duplicates:
    """Charges that several files contain. Memory grows with the rows."""

    _file_of: dict[int, Path] = field(default_factory=dict)  # by what is charged, the file that had it last
    _charges: Counter[Path] = field(default_factory=Counter)
    _shared: Counter[tuple[Path, Path]] = field(default_factory=Counter)

    def add(self, file: Path, row: Mapping[str, Any], about: tuple[object, ...]) -> None:
        """``about``: the provider and the charge period."""
        values = (str(row.get(name) or "").casefold() for name in IDENTITY)
        charge = hash((*about, *(value[:10] if at == 2 else value for at, value in enumerate(values))))
        if (earlier_file := self._file_of.get(charge)) != file:
            self._charges[file] += 1
            self._file_of[charge] = file
            if earlier_file is not None:
                self._shared[earlier_file, file] += 1

    def check(self, export: Path) -> None:
        """Raises `InvalidInput` for files that contain the same charges. Numbered parts of one run may share some,
        whose rows differ in other columns."""
        shared_pairs = [
            (first, second)
            for (first, second), count in self._shared.items()
            if not _is_same_series(first, second) or 2 * count >= min(self._charges[first], self._charges[second])
        ]
        if shared_pairs:
            names = sorted({str(file.relative_to(export)) for pair in shared_pairs for file in pair})
            raise InvalidInput(
                f"{join_names(names, _MAX_NAMED)} contain the same charges, which would count twice",
                where=str(export),
                hint="leave the files of one run in the folder, or name one file; "
                "parts of one run need the columns SkuId and ChargeDescription",
            )


def _is_same_series(first: Path, second: Path) -> bool:
    return first.parent == second.parent and re.sub(r"\d+", "0", first.name) == re.sub(r"\d+", "0", second.name)
