# /// script
# requires-python = ">=3.10"
# dependencies = [
#   "packaging>=22",
#   "pyelftools>=0.30",
#   "pypi-simple>=1.5",
#   "requests>=2.28",
#   "tomli>=2; python_version < '3.11'",
# ]
# ///
"""Measure compat/source_lines.json: which release logs from which line of its source, read from the wheels.

    uv run scripts/update_source_lines.py            # releases that are missing
    uv run scripts/update_source_lines.py '>=2.20'   # these anew, where they are not in the cache
    uv run scripts/update_source_lines.py --builds   # candidates, 0.12 and those for AMD's cards, as the index has them
    python scripts/update_source_lines.py --cached   # the table anew from the cache, offline
    python scripts/update_source_lines.py --check    # offline: every release of compat/tensorflow.json is there

A message of TensorFlow names the file and the line that logs it: `gpu_device.cc:1663]`. Both are constants in the
machine code (update_support/log_lines.py), so nothing is run. One wheel a release is enough: its wheels for other
Pythons and systems are of the same source. Its large objects are streamed through a temporary file, one after the
other; what was read of them is kept in the cache, a file a wheel, so that an interrupted run goes on where it
stopped. Of what is not in it the table's rows stay. An hour and 45 GB are read for all.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from checkout import ROOT
from update_support import by_release
from update_support.by_release import releases
from update_support.log_lines import Logged, list_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from update_support.remote_zip import Member, Web

TABLE = ROOT / "compat" / "source_lines.json"
OBJECTS = re.compile(
    r"/(?:libtensorflow_framework|libtensorflow_cc|_pywrap_tensorflow(?:_internal|_common)?|libtftrt)\.so[.0-9]*$"
)
"""TensorFlow's own objects; smaller ones repeat what stands in these."""
SPEAKING = re.compile(
    r"(?:tensorflow/core/(?:common_runtime|platform|distributed_runtime|nccl|profiler)/"
    r"|tensorflow/core/lib/(?:core|io|monitoring)/"
    r"|tensorflow/core/framework/(?:allocator|cpu_allocator|dataset|local_rendezvous|model|op_def_util|op_kernel)"
    r"|tensorflow/core/grappler/(?:clusters/|devices\.|utils\.|optimizers/(?:meta_|custom_graph|generic_layout|remapper|data/auto_shard))"
    r"|tensorflow/core/kernels/(?:data/(?:shuffle|prefetch|cache|iterator)_|conv_ops|cuda_solver|gpu_|collective_ops|non_max)"
    r"|tensorflow/core/util/(?:[^/]+$|tensor_bundle/|autotune_maps/)"
    r"|tensorflow/(?:c|cc|tsl)/|tensorflow/stream_executor/"
    r"|tensorflow/compiler/(?:jit/xla_(?:cpu_|gpu_|interpreter_)?(?:device|compil)|jit/device_compil|mlir/(?:mlir_|tensorflow/utils)|tf2tensorrt/(?:common|kernels|segment|stub|utils))"
    r"|tensorflow/compiler/xla/(?:client|pjrt|stream_executor/|status|parse_flags|debug_options"
    r"|service/(?:service|platform_util|computation_placer|hlo_rematerialization|gpu/(?:nvptx|gpu_(?:compiler|executable|asm)|asm_|buffer_comp|[a-z_]*autotun|llvm_gpu|redzone)))"
    r"|external/(?:local_)?tsl/"
    r"|external/(?:local_)?xla/xla/(?:client|pjrt|stream_executor/|tsl|status|parse_flags|debug_options|backends"
    r"|service/(?:service|platform_util|computation_placer|hlo_rematerialization|gpu/(?:nvptx|gpu_(?:compiler|executable|asm)|asm_|buffer_comp|[a-z_]*autotun|llvm_gpu|redzone))))"
)
"""The sources that say something where nobody asked for more: the runtime, its devices, and what opens CUDA. The others
check and debug the compilers, and are most of all lines."""
WITHOUT_FOLDERS = "2.17"
"""The first release that prints some messages with Abseil's logger."""
OURS = re.compile(r"tensorflow/|external/(?:local_)?(?:xla|tsl)/")
UNPUBLISHED = (
    {
        "version": "2.0.0b1",
        "like": "1.14.0",
        "first": "2019-06-07",
        "last": "2019-09-30",
        "lines": {"tensorflow/stream_executor/cuda/cuda_gpu_executor.cc": [1006]},
        "source": "TensorFlow 2.0.0-beta0 and beta1 are of the sources of 1.14 and no longer on the index: their logs "
        "in public issues have its lines, but for this file's (tensorflow/tensorflow#29584, #30207)",
    },
)
"""What cannot be measured any more and has the lines of another release: with the dates between which people ran it,
and `lines`: the files in which it has others, as far as they were seen."""
CODE = re.compile(r"\(\)|->|[=!<>]=|::|\w_\.| [<>] \d|^!|^\.{0,2}/?(?:tensorflow|external)/")
"""A condition, a name or a header: it stands in the code beside a message, and is none."""
BUILDS = {"tensorflow": "", "tensorflow-gpu": "", "tensorflow-rocm": "+rocm"}
"""Packages, and what their versions get behind them: those for AMD's cards have the numbers of others."""
MINIMUM_RELEASES = 100
MINIMUM_LINES = 40_000
"""Fewer than were measured in November 2026: something was lost."""


def sort_patches(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest and the oldest patch of each minor before those between."""
    minors: dict[tuple[int, ...], list[dict[str, Any]]] = {}
    for row in rows:
        minors.setdefault(Version(row["version"]).release[:2], []).append(row)
    order: list[dict[str, Any]] = [group[-1] for group in minors.values()]
    order += [group[0] for group in minors.values() if len(group) > 1]
    return order + [row for group in minors.values() for row in group[1:-1]]


def measure(web: Web, url: str) -> list[Logged]:
    """What the objects of a wheel can log."""
    from update_support.remote_zip import central_directory, extract

    members, total = central_directory(web, url)
    found: set[Logged] = set()
    with tempfile.TemporaryDirectory(prefix="tfdoctor-lines-") as folder:
        path = Path(folder) / "object"

        def look(_member: Member, pieces: Iterator[bytes]) -> None:
            with path.open("wb") as out:
                for piece in pieces:
                    out.write(piece)
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                found.update(list_messages(data))

        for member in members:
            if OBJECTS.search(member.name):
                extract(web, url, [member], total, look)
    return sorted(found)


def spoken(text: str) -> str:
    """What is certainly in the message of which the code has this text: its longest part without a value in it;
    empty where that tells too little."""
    if CODE.search(text):
        return ""
    longest = max(re.split(r"%[-.\d]*[a-z]+|[\n\t]", text), key=len)[:24]
    return longest if len(re.findall("[A-Za-z]", longest)) >= 6 else ""


def rows(measured: dict[str, list[Logged]]) -> dict[str, dict[str, Any]]:
    """Of each source file its lines and texts, as compat/source_lines.json has them. `measured`: oldest first.

    Texts tell releases apart that log other things from the same line. What only stops a process (`Check failed: …`)
    is left out.
    """
    found: dict[str, dict[int, dict[int, str]]] = {}
    measured = {
        version: [one for one in messages if not one.text.startswith("Check failed")]
        for version, messages in measured.items()
    }
    chosen = _choose_sources(measured)
    for place, messages in enumerate(measured.values()):
        for one in messages:
            if one.file in chosen:
                of_line = found.setdefault(one.file, {}).setdefault(one.line, {})
                # two texts: the compiler shared their code
                of_line[place] = spoken(one.text) if place not in of_line else ""
    return {file: _row(lines) for file, lines in sorted(found.items())}


def _choose_sources(measured: dict[str, list[Logged]]) -> set[str]:
    """The sources that speak; of releases with Abseil's logger, which prints no folders, those of their names."""
    files: set[str] = set()
    of_absl: set[str] = set()
    for version, messages in measured.items():
        ours = {one.file for one in messages if OURS.match(one.file)}
        files |= {file for file in ours if SPEAKING.match(file)}
        if Version(version) >= Version(WITHOUT_FOLDERS):
            of_absl |= ours
    names = {file.rpartition("/")[2] for file in files}
    return files | {file for file in of_absl if file.rpartition("/")[2] in names}


def _row(lines: dict[int, dict[int, str]]) -> dict[str, Any]:
    texts = sorted({text for found in lines.values() for text in found.values() if text})
    number = {text: place for place, text in enumerate(texts)}
    words = []
    for line, found in sorted(lines.items()):
        groups: dict[str, list[int]] = {}
        for place, text in found.items():
            groups.setdefault(text, []).append(place)
        parts = [
            f"{span}={number[text]}" if text else span
            for text, places in sorted(groups.items(), key=lambda item: item[1])
            for span in by_release.spans(places).split(",")
        ]
        words.append(f"{line}:{','.join(parts)}")
    return {"lines": " ".join(words), **({"texts": texts} if texts else {})}


def render(measured: dict[str, list[Logged]], builds: list[dict[str, str]], as_of: str) -> str:
    """The table's text; the same bytes of the same measurements. `measured`: oldest first; `builds`: which of them are
    no releases."""
    head = {
        "as_of": as_of,
        "sources": [
            "the machine code of each release's Linux x86-64 wheel: scripts/update_support/log_lines.py",
        ],
        "unpublished": list(UNPUBLISHED),
        "builds": sorted(builds, key=lambda row: Version(row["version"])),
        "releases": list(measured),
    }
    return by_release.render(head, rows(measured))


def load_known(table: dict[str, Any]) -> dict[str, list[Logged]]:
    """What the table says of each release: the messages of which `rows` makes it, with the texts that it kept."""
    found: dict[str, list[Logged]] = {version: [] for version in table["releases"]}
    for file, row in table["files"].items():
        for word in row["lines"].split():
            line, _, groups = word.partition(":")
            for group in groups.split(","):
                places, _, text = group.partition("=")
                said = row["texts"][int(text)] if text else ""
                for version in by_release.expand_spans(table["releases"], places):
                    found[version].append(Logged(file, int(line), "", said))
    return found


def stale(table: dict[str, Any]) -> list[str]:
    """What is wrong with the table as it is, offline."""
    found = by_release.find_unmeasured(table, MINIMUM_RELEASES)
    count = sum(len(row["lines"].split()) for row in table["files"].values())
    return found if count >= MINIMUM_LINES else [*found, f"only {count} lines"]


def main() -> int:
    """Returns the exit status."""
    given = by_release.options(
        __doc__,
        ("--cached", {"action": "store_true", "help": "make the table of what is in the cache, offline"}),
        ("--builds", {"action": "store_true", "help": "measure what is no release, too"}),
        (
            "--cache",
            {
                "type": Path,
                "default": Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
                / "tfdoctor"
                / "lines",
            },
        ),
    )
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    if given.check:
        return by_release.finish_check(stale(table))
    if not (given.cached or given.builds or given.only) and not stale(table):
        print("every release is there")
        return 0
    given.cache.mkdir(parents=True, exist_ok=True)
    if not given.cached:
        there = set() if given.only else {*table["releases"]}
        wanted = [*sort_patches(releases()), *(builds() if given.builds else ())]
        fetch(given.cache, wanted, SpecifierSet(given.only or "", prereleases=True), there)
    text = render(*merge_sources(table, given.cache), given.as_of)
    if lines := [line for line in stale(json.loads(text)) if line.startswith("only")]:
        print("\n".join(lines), file=sys.stderr)
        return 1
    TABLE.write_text(text, encoding="utf-8")
    by_release.format_count(len(json.loads(text)["releases"]))
    return 0


def merge_sources(table: dict[str, Any], cache: Path) -> tuple[dict[str, list[Logged]], list[dict[str, str]]]:
    """What is in the cache, and of the rest what the table says; and which of them are no releases."""
    measured = load_known(table)
    others = {row["version"]: row for row in table.get("builds", ())}
    for path in cache.glob("*.json"):
        read = json.loads(path.read_text(encoding="utf-8"))
        measured[read["version"]] = [Logged(*one) for one in read["logged"]]
        if "package" in read:
            others[read["version"]] = {
                **{key: read[key] for key in ("version", "package", "released")},
                "source": f"the Linux x86-64 wheel of {read['package']} on the package index",
            }
    order = sorted(measured, key=Version)
    return {version: measured[version] for version in order}, [*others.values()]


def builds() -> list[dict[str, Any]]:
    """What the index has beside releases: rows as those of `releases`."""
    from pypi_simple import PyPISimple  # here, so that the pure parts can be tested without it

    found: dict[str, dict[str, Any]] = {}
    with PyPISimple() as client:
        for project, suffix in BUILDS.items():
            for package in client.get_project_page(project).packages:
                version = Version(package.version or "0")
                if not package.filename.endswith("x86_64.whl") or "-macosx" in package.filename:
                    continue
                if suffix or version.is_prerelease or version < Version("1.0"):
                    found[f"{version}{suffix}"] = {
                        "version": f"{version}{suffix}",
                        "package": project,
                        "released": str(package.upload_time)[:10],
                        "wheel": package.filename,
                        "url": package.url,
                        "sha256": package.digests["sha256"],
                    }
    return sorted(found.values(), key=lambda row: Version(row["version"]))


def fetch(cache: Path, rows: list[dict[str, Any]], wanted: SpecifierSet, there: set[str]) -> None:
    """Measure what is wanted, not in the cache, and not `there` already."""
    from update_support.remote_zip import Web

    urls = by_release.urls()
    web = Web()
    for row in rows:
        path = cache / f"{row['sha256']}.json"
        if path.exists() or row["version"] in there or not wanted.contains(row["version"]):
            continue
        start = time.monotonic()
        found = measure(web, row.get("url") or urls[row["wheel"]])
        part = path.with_suffix(".part")
        more = {key: row[key] for key in ("package", "released")} if "url" in row else {}
        text = json.dumps({"version": row["version"], **more, "logged": found})
        part.write_text(text, encoding="utf-8")
        part.replace(path)
        print(f"{row['version']}: {len(found)} messages, {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
