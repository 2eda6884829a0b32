# /// script
# requires-python = ">=3.10"
# dependencies = ["packaging>=22"]
# ///
"""Refresh compat/fat_binaries.json: the GPU architectures with machine code or PTX in each release.

    python scripts/update_fat_binaries.py                 # the last patch of every minor from 2.1 on that is not there
    python scripts/update_fat_binaries.py 2.20.0 2.15.1   # these, again
    python scripts/update_fat_binaries.py --check         # offline: the table is in order

Downloads each wheel (up to 650 MB) with pip into a temporary folder, one after the other, and reads its
shared
objects with the script that `verify --simulate` runs. If a wheel is not available, its earlier measurement is
kept.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import tempfile
import zipfile
from typing import TYPE_CHECKING

from checkout import ROOT
from tfdoctor.compat import Compat
from tfdoctor.compat.fat_binaries import load_fat_binaries
from tfdoctor.core import versions
from tfdoctor.system import LiveSystem
from tfdoctor.system.payloads import run_payload
from tfdoctor.verification.simulate.kernels import READ_TIMEOUT_S
from update_support.files import report_errors, write_file
from update_support.whole_wheels import download_wheel, find_newest_python, list_last_patches, select_releases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat.releases import Release

TABLE = ROOT / "compat" / "fat_binaries.json"
MINIMUM = 15
"""Minimum number of releases; fewer mean that a table was lost."""
SINCE = "2.1"
SOURCES = ["fat binaries of the wheels' shared objects, as doctor/tfdoctor/payload/fatbins.py reads them"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("releases", nargs="*", metavar="VERSION")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(argv)
    compat = Compat.load()
    measured = (
        {
            release_data.version: dict(release_data.count_by_architectures)
            for release_data in load_fat_binaries(TABLE.parent).releases
        }
        if TABLE.exists()
        else {}
    )
    if options.check:
        return check_table(compat, measured)
    requested = options.releases or [
        version for version in list_last_patches(compat, SINCE) if version not in measured
    ]
    releases = {release.version: release for release in select_releases(compat, requested)}
    failed = len(set(requested)) - len(releases)
    for version, release in releases.items():
        counts = load_wheel(release)
        if counts is None:
            failed += 1
            continue
        measured[version] = counts
        write_table(measured)
        print(f"{version}: {sum(counts.values())} fat binaries")
    return 1 if failed else check_table(compat, measured)


def load_wheel(release: Release) -> dict[str, int] | None:
    """Return the fat binaries of one wheel. Print the reason and return None if it cannot be downloaded or read."""
    with tempfile.TemporaryDirectory() as folder:
        downloaded = download_wheel(release, folder, find_newest_python(release))
        if downloaded is None:
            return None
        with zipfile.ZipFile(downloaded) as wheel:
            for name in wheel.namelist():
                if ".so" in name:
                    wheel.extract(name, f"{folder}/wheel")
        answer, result = run_payload(
            LiveSystem(),
            sys.executable,
            "fatbins",
            [f"{folder}/wheel"],
            timeout=READ_TIMEOUT_S,
            flags=("-S",),
        )
    if answer.get("failed") or not answer.get("binaries"):
        reason = answer.get("failed") or ("no GPU code" if result.ok else result.describe_outcome())
        print(f"{release.version}: {reason}", file=sys.stderr)
        return None
    return dict(sorted(answer["binaries"].items()))


def write_table(measured: dict[str, dict[str, int]]) -> None:
    """Write the table."""
    rows = [
        {"version": version, "counts": measured[version]} for version in sorted(measured, key=versions.parse)
    ]
    lines = ",\n  ".join(json.dumps(entry) for entry in rows)
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    head = f'"schema_version": 1,\n "as_of": "{today}",\n "sources": {json.dumps(SOURCES)}'
    write_file(TABLE, f'{{{head},\n "releases": [\n  {lines}\n ]}}\n')


def check_table(compat: Compat, measured: dict[str, dict[str, int]]) -> int:
    """Return 1 if the table is incomplete or contradicts compat/tensorflow.json, and print why."""
    problems = []
    if len(measured) < MINIMUM:
        problems.append(f"only {len(measured)} releases; at least {MINIMUM} are expected")
    for version, counts in measured.items():
        release = compat.find_release(version)
        if release is None:
            problems.append(f"{version}: not in compat/tensorflow.json")
            continue
        compiled = {part for kinds in counts for part in kinds.partition("|")[0].split(",") if part}
        expected = {text.replace(".", "") for text in release.cubin}
        if compiled != expected:
            problems.append(
                f"{version}: machine code for {sorted(compiled)}; compat/tensorflow.json has {sorted(expected)}"
            )
    for line in problems:
        print(line, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(report_errors(main))
