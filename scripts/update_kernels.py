# /// script
# requires-python = ">=3.10"
# dependencies = ["packaging>=22"]
# ///
"""Refresh compat/kernels.json: for which devices and types each release has kernels.

    python scripts/update_kernels.py                 # the last patch of every minor from 1.14 on that is not there
    python scripts/update_kernels.py 2.20.0 2.15.1   # these, again
    python scripts/update_kernels.py --check         # offline: the table is in order

Downloads each wheel (up to 650 MB) with pip into a temporary folder, one after the other, and has a Python of a minor
version that the wheel is for ask the wheel's own libraries (update_support/registered_kernels.py). No GPU is needed.
`--lists DIR` keeps these answers there, and takes those that are there.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from checkout import ROOT
from tfdoctor import versions
from tfdoctor.compat import Compat
from tfdoctor.compat.kernels import Types, load_kernels
from update_support.by_release import spans
from update_support.registered_kernels import group_by_operation
from update_support.trials import find_python
from update_support.whole_wheels import download, last_patches, select_releases

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.compat.releases import Release

    Operations = Mapping[str, Mapping[str, Types]]
    """Operation → "cpu", "gpu" → types; a device without kernels is left out."""

TABLE = ROOT / "compat" / "kernels.json"
ASKING = ROOT / "scripts" / "update_support" / "registered_kernels.py"
SINCE = "1.14"
"""Older ones are linked with the driver's library, or have no such list."""
MINIMUM = 24
"""Releases; fewer mean that a table was lost."""
FEWEST, FEWEST_OF_GPU = 1100, 600
"""Operations of a release that have kernels, and kernels for a GPU; fewer mean that a library was not loaded."""
SOURCES = ["TF_GetAllRegisteredKernels of each wheel's own libraries: scripts/update_kernels.py"]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("releases", nargs="*", metavar="VERSION")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--lists", type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    compat = Compat.load()
    known = load_known() if TABLE.exists() else {}
    if options.check:
        return check(compat, known)
    wanted = options.releases or [version for version in last_patches(compat, SINCE) if version not in known]
    releases = {release.version: release for release in select_releases(compat, wanted)}
    failed = len(set(wanted)) - len(releases)
    for version, release in releases.items():
        kept = options.lists / f"{version}.bin" if options.lists else None
        data = kept.read_bytes() if kept and kept.exists() else ask(release)
        if data is None:
            failed += 1
            continue
        if kept:
            kept.write_bytes(data)
        known[version] = {
            operation: {
                kind: {name: frozenset(types) for name, types in limits.items()}
                for kind, limits in kinds.items()
            }
            for operation, kinds in group_by_operation(data).items()
        }
        TABLE.write_text(text(known), encoding="utf-8")
        print(f"{version}: {len(known[version])} operations")
    return 1 if failed else check(compat, known)


def ask(release: Release) -> bytes | None:
    """The list of one wheel; None, and said, where it cannot be had."""
    pythons = sorted(release.pythons("linux"), key=versions.parse, reverse=True)
    here = next(((one, found) for one in pythons if (found := find_python(one))), None)
    if here is None:
        print(f"{release.version}: no Python {', '.join(pythons)} here", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory() as folder:
        wheel = download(release, folder, here[0])
        if wheel is None:
            return None
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if ".so" in name:
                    archive.extract(name, f"{folder}/wheel")
        wheel.unlink()
        inside = next(Path(folder, "wheel").glob("*/libtensorflow_framework.so*")).parent
        answer = Path(folder, "list")
        quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run([here[1], ASKING, inside, answer], check=False, env=quiet)
        if done.returncode:
            print(f"{release.version}: its libraries did not answer", file=sys.stderr)
            return None
        return answer.read_bytes()


# ---------------------------------------------------------------- the table


def text(known: Mapping[str, Operations]) -> str:
    """The file: the same bytes of the same values."""
    releases = sorted(known, key=versions.parse)
    sets = sorted(
        {
            ",".join(sorted(types))
            for operations in known.values()
            for kinds in operations.values()
            for limits in kinds.values()
            for types in limits.values()
        }
    )
    number = {one: place for place, one in enumerate(sets)}
    rows = {}
    for operation in sorted({one for operations in known.values() for one in operations}):
        row = {}
        for kind in ("cpu", "gpu"):
            places: dict[str, list[int]] = {}
            for place, release in enumerate(releases):
                limits = known[release].get(operation, {}).get(kind)
                if limits is not None:
                    words = (f"{name}={number[','.join(sorted(limits[name]))]}" for name in sorted(limits))
                    places.setdefault(";".join(words), []).append(place)
            if places:
                row[kind] = " ".join(f"{limits}:{spans(where)}" for limits, where in places.items())
        rows[operation] = row
    head = {
        "schema_version": 1,
        "as_of": str(dt.datetime.now(tz=dt.timezone.utc).date()),
        "sources": SOURCES,
        "releases": releases,
        "sets": sets,
    }
    lines = "".join(f"{json.dumps(key)}:{_compact(value)},\n" for key, value in head.items())
    every = ",\n".join(f"{json.dumps(operation)}:{_compact(row)}" for operation, row in rows.items())
    return f'{{{lines}"operations":{{\n{every}\n}}}}\n'


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def load_known() -> dict[str, dict[str, dict[str, Types]]]:
    """What the table has of each release."""
    table = load_kernels(TABLE.parent)
    known: dict[str, dict[str, dict[str, Types]]] = {}
    for release in table.releases:
        of_release = known.setdefault(release, {})
        for operation in table.operations:
            found = table.find_kernels(release, operation)
            kinds = {"cpu": found.cpu, "gpu": found.gpu} if found is not None else {}
            there = {kind: types for kind, types in kinds.items() if types is not None}
            if there:
                of_release[operation] = there
    return known


def check(compat: Compat, known: Mapping[str, Operations]) -> int:
    """Each row is of a release and has what every release has; the file is what is written of it."""
    wrong = []
    missing = [one for one in last_patches(compat, SINCE) if one not in known]
    if missing:
        wrong.append(f"not measured: {', '.join(missing)}")
    if len(known) < MINIMUM:
        wrong.append(f"only {len(known)} releases; at least {MINIMUM} are expected")
    for version, operations in known.items():
        if compat.release(version) is None:
            wrong.append(f"{version}: not in compat/tensorflow.json")
        of_gpu = sum("gpu" in kinds for kinds in operations.values())
        if len(operations) < FEWEST or of_gpu < FEWEST_OF_GPU:
            wrong.append(f"{version}: only {len(operations)} operations, {of_gpu} of them for a GPU")
    if known and text(known).splitlines()[3:] != TABLE.read_text(encoding="utf-8").splitlines()[3:]:
        wrong.append("the table is not as this script writes it")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
