# /// script
# requires-python = ">=3.10"
# dependencies = ["packaging>=22"]
# ///
"""Refresh compat/kernels.json: the devices and types for which each release has kernels.

    python scripts/update_kernels.py                 # the last patch of every minor from 1.14 on that is not there
    python scripts/update_kernels.py 2.20.0 2.15.1   # these, again
    python scripts/update_kernels.py --check         # offline: the table is in order

Downloads each wheel (up to 650 MB) with pip into a temporary folder, one after the other. A Python version that the
wheel supports then queries the wheel's own libraries (update_support/registered_kernels.py). No GPU is needed.
`--lists DIR` keeps these answers in DIR and reuses those that exist.
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
from tfdoctor.compat import Compat
from tfdoctor.compat.kernels import Types, load_kernels
from tfdoctor.core import versions
from update_support.by_release import format_spans
from update_support.files import report_errors, write_file
from update_support.registered_kernels import group_by_operation
from update_support.trials import find_python
from update_support.whole_wheels import download_wheel, list_last_patches, select_releases

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.compat.releases import Release

    Operations = Mapping[str, Mapping[str, Types]]
    """Operation → "cpu", "gpu" → types; a device without kernels is left out."""

TABLE = ROOT / "compat" / "kernels.json"
QUERY_SCRIPT = ROOT / "scripts" / "update_support" / "registered_kernels.py"
SINCE = "1.14"
"""First release to measure. Older ones link to the driver's library, or have no such list."""
MINIMUM = 24
"""Minimum number of releases; fewer mean that a table was lost."""
MIN_OPERATIONS, FEWEST_OF_GPU = 1100, 600
"""Minimum numbers of operations with any kernel and with a kernel for a GPU.

Fewer mean that a library was not loaded.
"""
SOURCES = ["TF_GetAllRegisteredKernels of each wheel's own libraries: scripts/update_kernels.py"]


def main(argv: Sequence[str] | None = None) -> int:
    """Update or check the table and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("releases", nargs="*", metavar="VERSION")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--lists", type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    compat = Compat.load()
    measured = load_known() if TABLE.exists() else {}
    if options.check:
        return check(compat, measured)
    requested = options.releases or [
        version for version in list_last_patches(compat, SINCE) if version not in measured
    ]
    releases = {release.version: release for release in select_releases(compat, requested)}
    failed = len(set(requested)) - len(releases)
    for version, release in releases.items():
        list_path = options.lists / f"{version}.bin" if options.lists else None
        data = list_path.read_bytes() if list_path and list_path.exists() else query_kernels(release)
        if data is None:
            failed += 1
            continue
        if list_path:
            list_path.write_bytes(data)
        measured[version] = {
            operation: {
                kind: {name: frozenset(types) for name, types in limits.items()}
                for kind, limits in kinds.items()
            }
            for operation, kinds in group_by_operation(data).items()
        }
        write_file(TABLE, render_table(measured))
        print(f"{version}: {len(measured[version])} operations")
    return 1 if failed else check(compat, measured)


def query_kernels(release: Release) -> bytes | None:
    """Return the kernel list of one wheel. Print the reason and return None if that fails."""
    pythons = sorted(release.pythons("linux"), key=versions.parse, reverse=True)
    interpreter = next(((python, path) for python in pythons if (path := find_python(python))), None)
    if interpreter is None:
        print(f"{release.version}: no Python {', '.join(pythons)} here", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory() as folder:
        wheel = download_wheel(release, folder, interpreter[0])
        if wheel is None:
            return None
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if ".so" in name:
                    archive.extract(name, f"{folder}/wheel")
        wheel.unlink()
        libraries = next(Path(folder, "wheel").glob("*/libtensorflow_framework.so*")).parent
        answer = Path(folder, "list")
        env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run([interpreter[1], QUERY_SCRIPT, libraries, answer], check=False, env=env)
        if done.returncode:
            print(f"{release.version}: its libraries did not answer", file=sys.stderr)
            return None
        return answer.read_bytes()


# ---------------------------------------------------------------- the table


def render_table(measured: Mapping[str, Operations]) -> str:
    """Return the text of the table; equal values give equal bytes."""
    releases = sorted(measured, key=versions.parse)
    sets = sorted(
        {
            ",".join(sorted(types))
            for operations in measured.values()
            for kinds in operations.values()
            for limits in kinds.values()
            for types in limits.values()
        }
    )
    set_numbers = {item: index for index, item in enumerate(sets)}
    lines_of = {}
    for operation in sorted({item for operations in measured.values() for item in operations}):
        types_by_device = {}
        for kind in ("cpu", "gpu"):
            release_numbers: dict[str, list[int]] = {}
            for index, release in enumerate(releases):
                limits = measured[release].get(operation, {}).get(kind)
                if limits is not None:
                    entries = (
                        f"{name}={set_numbers[','.join(sorted(limits[name]))]}" for name in sorted(limits)
                    )
                    release_numbers.setdefault(";".join(entries), []).append(index)
            if release_numbers:
                types_by_device[kind] = " ".join(
                    f"{limits}:{format_spans(releases_of)}" for limits, releases_of in release_numbers.items()
                )
        lines_of[operation] = types_by_device
    head = {
        "schema_version": 1,
        "as_of": str(dt.datetime.now(tz=dt.timezone.utc).date()),
        "sources": SOURCES,
        "releases": releases,
        "sets": sets,
    }
    lines = "".join(f"{json.dumps(key)}:{_compact(value)},\n" for key, value in head.items())
    operation_lines = ",\n".join(
        f"{json.dumps(operation)}:{_compact(types_by_device)}"
        for operation, types_by_device in lines_of.items()
    )
    return f'{{{lines}"operations":{{\n{operation_lines}\n}}}}\n'


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def load_known() -> dict[str, dict[str, dict[str, Types]]]:
    """Return what the table has for each release."""
    table = load_kernels(TABLE.parent)
    measured: dict[str, dict[str, dict[str, Types]]] = {}
    for release in table.releases:
        operations = measured.setdefault(release, {})
        for operation in table.operations:
            kernels = table.find_kernels(release, operation)
            kinds = {"cpu": kernels.cpu_types, "gpu": kernels.gpu_types} if kernels is not None else {}
            present = {kind: types for kind, types in kinds.items() if types is not None}
            if present:
                operations[operation] = present
    return measured


def check(compat: Compat, measured: Mapping[str, Operations]) -> int:
    """Return 1 if the table is incomplete or not as this script writes it, and print why."""
    problems = []
    missing = [release for release in list_last_patches(compat, SINCE) if release not in measured]
    if missing:
        problems.append(f"not measured: {', '.join(missing)}")
    if len(measured) < MINIMUM:
        problems.append(f"only {len(measured)} releases; at least {MINIMUM} are expected")
    for version, operations in measured.items():
        if compat.find_release(version) is None:
            problems.append(f"{version}: not in compat/tensorflow.json")
        gpu_count = sum("gpu" in kinds for kinds in operations.values())
        if len(operations) < MIN_OPERATIONS or gpu_count < FEWEST_OF_GPU:
            problems.append(f"{version}: only {len(operations)} operations, {gpu_count} of them for a GPU")
    if (
        measured
        and render_table(measured).splitlines()[3:] != TABLE.read_text(encoding="utf-8").splitlines()[3:]
    ):
        problems.append("the table is not as this script writes it")
    for line in problems:
        print(line, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(report_errors(main))
