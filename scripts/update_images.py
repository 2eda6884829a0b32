# /// script
# requires-python = ">=3.10"
# dependencies = ["docker>=7", "packaging>=22", "requests>=2.28", "tomli>=2; python_version < '3.11'"]
# ///
"""Refresh compat/manifests.json: digest, size, variables and labels of the images that plans build on.

    python scripts/update_images.py                       # every one of them, from its registry
    python scripts/update_images.py python: nvidia/cuda:  # those whose names begin so
    python scripts/update_images.py --registry HOST:PORT  # from a mirror
    python scripts/update_images.py --check               # offline: the table is in order, and each row is of an image

Needs a network with a registry, and downloads no image. If the registry no longer has an image, this is reported and
its row stays; add it to `[[deleted]]` of compat/images.toml, which is authored. If the registry does not answer,
nothing is written for that image, the date of the table stays, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from typing import TYPE_CHECKING, Any

from checkout import ROOT
from tfdoctor.compat import Compat
from tfdoctor.prediction.fit.images import list_fitting_tags
from update_support.files import report_errors, write_file
from update_support.manifests import ManifestError, Registry

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLE = ROOT / "compat" / "manifests.json"
MINIMUM = 60
"""Minimum number of images that plans can name; fewer mean that a table was lost."""


def main(argv: Sequence[str] | None = None) -> int:
    """Update or check the table and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("prefix", nargs="*")
    parser.add_argument("--registry", metavar="HOST[:PORT][/PATH]")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(argv)
    names, rows = list_images(Compat.load()), load_rows()
    if options.check:
        return check(names, rows)
    chosen = [name for name in names if not options.prefix or name.startswith(tuple(options.prefix))]
    if not chosen:
        print("no image of a plan begins so", file=sys.stderr)
        return 2
    gone, unanswered = refresh(rows, chosen, Registry(options.registry))
    if unanswered < len(chosen):
        as_of = today() if chosen == names and not unanswered else load_date()
        write_file(TABLE, render_table(rows, as_of))
    return 1 if gone or unanswered else 0


def list_images(compat: Compat) -> list[str]:
    """Return the names of all images that a plan can build on."""
    names = {image.name for image in compat.images.python_images} | {
        image.image for image in compat.images.tool_images
    }
    names |= {
        image.name
        for image in compat.images.ngc_images
        if image.tensorflow is not None and image.python is not None
    }
    for release in compat.releases:
        if not release.gpu:
            continue
        names |= {tag.name for tag in list_fitting_tags(compat, release)}
        official = compat.images.find_official(release.version)
        if official is not None and official.recipe.has_working_libraries:
            names |= {*official.names}
    return sorted(names)


def today() -> dt.date:
    """Return the current date in UTC."""
    return dt.datetime.now(tz=dt.timezone.utc).date()


def load_rows() -> dict[str, dict[str, Any]]:
    """Return the rows of the present table by image name."""
    return {row["image"]: row for row in json.loads(TABLE.read_text(encoding="utf-8"))["images"]}


def load_date() -> dt.date:
    """Return the date of the present table: the day on which every image was asked for."""
    return dt.date.fromisoformat(json.loads(TABLE.read_text(encoding="utf-8"))["as_of"])


def refresh(rows: dict[str, dict[str, Any]], names: Sequence[str], registry: Registry) -> tuple[int, int]:
    """Ask the registry for each image, and update `rows` in place.

    Return how many images are gone and about how many the registry did not answer.
    """
    gone = unanswered = 0
    for name in names:
        try:
            facts = registry.describe_image(name)
        except ManifestError as error:
            gone += error.gone
            unanswered += not error.gone
            message = "is gone: see [[deleted]] in compat/images.toml" if error.gone else str(error)
            print(f"{name}: {message}", file=sys.stderr)
            continue
        row = {"image": name, **facts, "read": today().isoformat(), "evidence": "measured"}
        row["sources"] = ["its registry: manifest and configuration for linux/amd64"]
        rows[name] = {key: value for key, value in row.items() if value not in ({}, None)}
    return gone, unanswered


def render_table(rows: dict[str, dict[str, Any]], day: dt.date) -> str:
    """Return the text of the file, one image per line."""
    lines = [json.dumps(rows[name], separators=(",", ":"), ensure_ascii=False) for name in sorted(rows)]
    body = ",\n".join(lines)
    return f'{{\n"schema_version":1,\n"as_of":"{day.isoformat()}",\n"images":[\n{body}\n]\n}}\n'


def check(names: Sequence[str], rows: dict[str, dict[str, Any]]) -> int:
    """Return 1 if the table is not as this script writes it or has images that no plan names, and print why."""
    _ = Compat.load().manifests  # parses strictly, so it raises if the table is malformed
    problems = [f"no plan builds on {name}" for name in rows if name not in names]
    if len(names) < MINIMUM:
        problems.append(f"plans name {len(names)} images, and {MINIMUM} are the least")
    if TABLE.read_text(encoding="utf-8") != render_table(rows, load_date()):
        problems.append("the file is not as it is written: order or form")
    for problem in problems:
        print(f"compat/manifests.json: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(report_errors(main))
