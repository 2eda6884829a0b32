"""What a person must author for a release: the facts that no script can measure, and how to find each of them."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from checkout import ROOT
from tfdoctor.core import versions
from update_support.authored import Authored, find_nearest
from update_support.targets import DAYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tfdoctor.compat import Compat
    from tfdoctor.compat.releases import Release

__all__ = ["format_checklist"]

RUNS = ROOT / "tests" / "compat" / "registration_runs.json"
CHANGELOG = ROOT / "CHANGELOG.md"
RANGE = re.compile(r'^(?:tensorflow|versions|releases|breaks) = "([^"]+)"')
TITLE = re.compile(r'^(?:id|title|subject|name|package|minor) = "([^"]+)"')


def format_checklist(compat: Compat, today: dt.date) -> str:
    """Return the open items of the newest final release and of its successors, as Markdown."""
    releases = sorted(
        {release.version: release for release in compat.releases if release.gpu}.values(),
        key=lambda release: release.parsed,
    )
    newest = max(number for number, release in enumerate(releases) if not release.is_prerelease)
    lines = []
    for number in range(newest, len(releases)):
        release = releases[number]
        items = list(list_open_items(compat, release, today))
        lines += [f"### TensorFlow {release.version}", ""]
        lines += [f"- [ ] {item}" for item in items] or ["Nothing is missing."]
        earlier = [known.version for known in releases[:number] if not known.is_prerelease][-1:]
        ranges = list_ended_ranges(compat.folder, [*earlier, releases[number - 1].version], release.version)
        if items and ranges:
            lines += [
                "",
                f"These end before {release.version}. Extend the ranges of those that still hold:",
                "",
            ]
            lines += [f"- {item}" for item in ranges]
        lines.append("")
    return "\n".join(lines)


def list_open_items(compat: Compat, release: Release, today: dt.date) -> Iterator[str]:
    """Yield what the authored tables lack about a release."""
    version, minor = release.version, release.minor
    authored = Authored(compat.folder / "registration.toml")
    table = "compat/registration.toml"
    record = f"python tests/lab/record_truth.py --python ENV/bin/python --output {version}.json"
    if authored.find_run(version) is None:
        yield f"{table}, `[[run]]`: the libraries that it opens; in an environment with it, `{record}`"
    if minor not in {versions.major_minor(known) for known in json.loads(RUNS.read_text(encoding="utf-8"))}:
        yield f"tests/compat/registration_runs.json: what it did without each library (the same `{version}.json`)"
    if not release.is_prerelease and version not in authored.floors and authored.find_run(version) is None:
        yield f"{table}, `[[floor]]`: the lowest compute capability that it registers (the same `{version}.json`)"
    if find_nearest(authored.compiled, version) is None and not release.is_prerelease:
        yield f"{table}, `[[compiled]]`: its cuDNN; `python tests/lab/compiled_cudnn.py {version}` prints the row"
    if authored.find_instructions(version) is None:
        yield f"{table}, `[[instructions]]`: extend the range if its log does not name AVX as not compiled in"
    if minor not in authored.documented:
        yield f"{table}, `[[documented]]`: what tensorflow.org/install/source says about {minor}"
    if release.pip_extra and compat.cuda_sets.find_for_release(version) is None:
        pins = ", ".join(release.extra_pins)
        yield f"compat/cuda_wheels.toml, `[[set]]`: wheels of NVIDIA's that go with it; its extra asks for {pins}"
    if not release.is_prerelease and compat.images.find_official(version) is None:
        yield f"compat/images.toml, `[[official]]`: the image tensorflow/tensorflow:{version}-gpu"
    imports = compat.folder / "imports" / f"{minor}.json"
    if not release.is_prerelease and not (
        imports.is_file() and json.loads(imports.read_text(encoding="utf-8")).get("runs")
    ):
        yield f"compat/imports/{minor}.json: `uv run scripts/update_companions.py {version}` (half an hour)"
    until = dt.date.fromisoformat(release.release_date) + dt.timedelta(days=DAYS)
    if not release.is_prerelease and today < until:
        yield f"compat/locks: dependencies are still released; on {until}, `uv run scripts/update_locks.py {version}`"
    if version not in CHANGELOG.read_text(encoding="utf-8") and today < until:
        yield "CHANGELOG.md, under *Data*; and compat/problems.toml, if it has a known problem"


def list_ended_ranges(folder: Path, earlier: Sequence[str], version: str) -> list[str]:
    """Return the rows of authored tables whose versions include an earlier release and not this one."""
    ended = []
    for path in sorted(folder.rglob("*.toml")):
        title = ""
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if line.startswith("[["):
                title = ""
            if match := TITLE.match(line):
                title = title or match[1]
            if match := RANGE.match(line):
                try:
                    specifier = SpecifierSet(match[1], prereleases=True)
                except InvalidSpecifier:
                    continue
                if any(map(specifier.contains, earlier)) and not specifier.contains(version):
                    ended.append(f"compat/{path.relative_to(folder)}:{number}: {title or match[1]}")
    return ended
