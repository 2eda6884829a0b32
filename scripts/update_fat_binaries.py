# /// script
# requires-python = ">=3.10"
# dependencies = ["packaging>=22"]
# ///
"""Refresh compat/fat_binaries.json: for which cards the kernels of a release have machine code, and which PTX.

    python scripts/update_fat_binaries.py                 # the last patch of every minor from 2.1 on that is not there
    python scripts/update_fat_binaries.py 2.20.0 2.15.1   # these, again
    python scripts/update_fat_binaries.py --check         # offline: the table is in order

Downloads each wheel (up to 650 MB) with pip into a temporary folder, one after the other, and reads its shared objects
with the same script that `verify --simulate` has a Python run. What was read before stays where a wheel cannot be had.
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
from tfdoctor import versions
from tfdoctor.compat import Compat
from tfdoctor.compat.fat_binaries import load_fat_binaries
from tfdoctor.simulate.kernels import READ_TIMEOUT_S
from tfdoctor.system import LiveSystem
from tfdoctor.system.payloads import run_payload
from update_support.whole_wheels import download, last_patches, newest_python, select_releases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat.releases import Release

TABLE = ROOT / "compat" / "fat_binaries.json"
MINIMUM = 15
"""Releases; fewer mean that a table was lost."""
SINCE = "2.1"
SOURCES = ["fat binaries of the wheels' shared objects, as doctor/tfdoctor/payload/fatbins.py reads them"]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("releases", nargs="*", metavar="VERSION")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(argv)
    compat = Compat.load()
    known = (
        {row.version: dict(row.counts) for row in load_fat_binaries(TABLE.parent).releases}
        if TABLE.exists()
        else {}
    )
    if options.check:
        return check(compat, known)
    wanted = options.releases or [version for version in last_patches(compat, SINCE) if version not in known]
    releases = {release.version: release for release in select_releases(compat, wanted)}
    failed = len(set(wanted)) - len(releases)
    for version, release in releases.items():
        counts = read(release)
        if counts is None:
            failed += 1
            continue
        known[version] = counts
        write(known)
        print(f"{version}: {sum(counts.values())} fat binaries")
    return 1 if failed else check(compat, known)


def read(release: Release) -> dict[str, int] | None:
    """Of one wheel; None, and said, where it cannot be had or read."""
    with tempfile.TemporaryDirectory() as folder:
        downloaded = download(release, folder, newest_python(release))
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
        why = answer.get("failed") or ("no GPU code" if result.ok else result.describe_end())
        print(f"{release.version}: {why}", file=sys.stderr)
        return None
    return dict(sorted(answer["binaries"].items()))


def write(known: dict[str, dict[str, int]]) -> None:
    rows = [{"version": one, "counts": known[one]} for one in sorted(known, key=versions.parse)]
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    head = f'"schema_version": 1,\n "as_of": "{today}",\n "sources": {json.dumps(SOURCES)}'
    TABLE.write_text(f'{{{head},\n "releases": [\n  {lines}\n ]}}\n', encoding="utf-8")


def check(compat: Compat, known: dict[str, dict[str, int]]) -> int:
    """Each row is of a release, and says of its architectures what compat/tensorflow.json says."""
    wrong = []
    if len(known) < MINIMUM:
        wrong.append(f"only {len(known)} releases; at least {MINIMUM} are expected")
    for version, counts in known.items():
        release = compat.release(version)
        if release is None:
            wrong.append(f"{version}: not in compat/tensorflow.json")
            continue
        code = {part for kinds in counts for part in kinds.partition("|")[0].split(",") if part}
        inside = {text.replace(".", "") for text in release.cubin}
        if code != inside:
            wrong.append(
                f"{version}: machine code for {sorted(code)}; compat/tensorflow.json has {sorted(inside)}"
            )
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
