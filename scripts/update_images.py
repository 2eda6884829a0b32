# /// script
# requires-python = ">=3.10"
# dependencies = ["packaging>=22", "requests>=2.28", "tomli>=2; python_version < '3.11'"]
# ///
"""Refresh compat/manifests.json: digest, size, variables and labels of the images that plans build on.

    python scripts/update_images.py                       # every one of them, from its registry
    python scripts/update_images.py python: nvidia/cuda:  # those whose names begin so
    python scripts/update_images.py --registry HOST:PORT  # from a mirror
    python scripts/update_images.py --check               # offline: the table is in order, and each row is of an image

Needs a network with a registry, and downloads no image. An image that its registry does not have any more is told, and
its row stays: it belongs into `[[deleted]]` of compat/images.toml, which is authored. Where the registry does not
answer, nothing is written for that image, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from typing import TYPE_CHECKING, Any

from checkout import ROOT
from tfdoctor.compat import Compat
from tfdoctor.fit.images import list_fitting_tags
from update_support.manifests import ManifestError, Registry

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLE = ROOT / "compat" / "manifests.json"
MINIMUM = 60
"""Images that plans can name; fewer mean that a table was lost."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("prefix", nargs="*")
    parser.add_argument("--registry", metavar="HOST[:PORT][/PATH]")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args(argv)
    names, rows = images(Compat.load()), load_rows()
    if given.check:
        return check(names, rows)
    wanted = [name for name in names if not given.prefix or name.startswith(tuple(given.prefix))]
    if not wanted:
        print("no image of a plan begins so", file=sys.stderr)
        return 2
    failed = refresh(rows, wanted, Registry(given.registry))
    TABLE.write_text(text_of(rows, today()), encoding="utf-8")
    return 1 if failed else 0


def images(compat: Compat) -> list[str]:
    """Every image that a plan can build on, by name."""
    found = {row.name for row in compat.images.python} | {row.image for row in compat.images.tool}
    found |= {row.name for row in compat.images.ngc if row.tensorflow is not None and row.python is not None}
    for release in compat.releases:
        if not release.gpu:
            continue
        found |= {tag.name for tag in list_fitting_tags(compat, release)}
        official = compat.official_image(release.version)
        if official is not None and official.recipe.works:
            found |= {*official.names}
    return sorted(found)


def today() -> dt.date:
    """The day, as tables tell it."""
    return dt.datetime.now(tz=dt.timezone.utc).date()


def load_rows() -> dict[str, dict[str, Any]]:
    """The rows as they are, by name."""
    return {row["image"]: row for row in json.loads(TABLE.read_text(encoding="utf-8"))["images"]}


def refresh(rows: dict[str, dict[str, Any]], names: Sequence[str], registry: Registry) -> int:
    """Ask for each image; how many could not be told. `rows` is changed."""
    failed = 0
    for name in names:
        try:
            told = registry.image(name)
        except ManifestError as error:
            failed += 1
            where = "is gone: see [[deleted]] in compat/images.toml" if error.gone else str(error)
            print(f"{name}: {where}", file=sys.stderr)
            continue
        row = {"image": name, **told, "read": today().isoformat(), "evidence": "measured"}
        row["sources"] = ["its registry: manifest and configuration for linux/amd64"]
        rows[name] = {key: value for key, value in row.items() if value not in ({}, None)}
    return failed


def text_of(rows: dict[str, dict[str, Any]], day: dt.date) -> str:
    """The file, one image a line."""
    lines = [json.dumps(rows[name], separators=(",", ":"), ensure_ascii=False) for name in sorted(rows)]
    body = ",\n".join(lines)
    return f'{{\n"schema_version":1,\n"as_of":"{day.isoformat()}",\n"images":[\n{body}\n]\n}}\n'


def check(names: Sequence[str], rows: dict[str, dict[str, Any]]) -> int:
    """Whether the table is as this script writes it, and of images that plans name."""
    as_of = json.loads(TABLE.read_text(encoding="utf-8"))["as_of"]
    _ = Compat.load().manifests  # strict
    wrong = [f"no plan builds on {name}" for name in rows if name not in names]
    if len(names) < MINIMUM:
        wrong.append(f"plans name {len(names)} images, and {MINIMUM} are the least")
    if TABLE.read_text(encoding="utf-8") != text_of(rows, dt.date.fromisoformat(as_of)):
        wrong.append("the file is not as it is written: order or form")
    for text in wrong:
        print(f"compat/manifests.json: {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
