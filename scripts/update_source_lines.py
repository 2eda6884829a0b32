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
"""Measure compat/source_lines.json: the source lines from which each release logs, read from the wheels.

    uv run scripts/update_source_lines.py            # releases that are missing
    uv run scripts/update_source_lines.py '>=2.20'   # these anew, where they are not in the cache
    uv run scripts/update_source_lines.py --builds   # candidates, 0.12 and those for AMD's cards, as the index has them
    python scripts/update_source_lines.py --cached   # the table anew from the cache, offline
    python scripts/update_source_lines.py --check    # offline: every release of compat/tensorflow.json is there

A message of TensorFlow names the file and the line that logs it: `gpu_device.cc:1663]`. Both are constants in the
machine code (update_support/log_lines.py), so nothing is run. One wheel per release is enough, because its wheels for
other Pythons and systems are built from the same source. Its large objects are streamed through a temporary file, one
after the other. The results are cached, one file per wheel, so that an interrupted run can continue. Rows of the
table whose wheel is not in the cache stay. A full run takes an hour and reads 45 GB.
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
from update_support.by_release import list_releases
from update_support.files import report_errors, write_file
from update_support.log_lines import Logged, list_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from update_support.remote_zip import Member, Web

TABLE = ROOT / "compat" / "source_lines.json"
OBJECTS = re.compile(
    r"/(?:libtensorflow_framework|libtensorflow_cc|_pywrap_tensorflow(?:_internal|_common)?|libtftrt)\.so[.0-9]*$"
)
"""TensorFlow's own shared objects; smaller ones repeat their messages."""
DEFAULT_LOGGERS = re.compile(
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
"""Sources that log at the default verbosity: the runtime, its devices, and the code that opens CUDA.

The other sources check and debug the compilers, and have most of all lines.
"""
ABSEIL_SINCE = "2.17"
"""First release that prints some messages with Abseil's logger, which omits the folders."""
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
"""Releases that cannot be measured any more and have the lines of another release.

`first` and `last` are the dates between which users ran it; `lines` are known lines that differ, by file.
"""
CODE = re.compile(r"\(\)|->|[=!<>]=|::|\w_\.| [<>] \d|^!|^\.{0,2}/?(?:tensorflow|external)/")
"""Pattern of conditions, names and headers, which stand beside messages in the machine code but are none."""
BUILDS = {"tensorflow": "", "tensorflow-gpu": "", "tensorflow-rocm": "+rocm"}
"""Suffix for the versions of each package.

The packages for AMD GPUs reuse the version numbers of other packages.
"""
MINIMUM_RELEASES = 100
MINIMUM_LINES = 40_000
"""Minimum number of lines, as measured in November 2026; fewer mean that something was lost."""


def sort_patches(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with the newest and the oldest patch of each minor release before those between."""
    minors: dict[tuple[int, ...], list[dict[str, Any]]] = {}
    for row in rows:
        minors.setdefault(Version(row["version"]).release[:2], []).append(row)
    order: list[dict[str, Any]] = [group[-1] for group in minors.values()]
    order += [group[0] for group in minors.values() if len(group) > 1]
    return order + [row for group in minors.values() for row in group[1:-1]]


def measure(web: Web, url: str) -> list[Logged]:
    """Return the messages that the objects of a wheel can log."""
    from update_support.remote_zip import extract, load_central_directory

    members, total = load_central_directory(web, url)
    messages: set[Logged] = set()
    with tempfile.TemporaryDirectory(prefix="tfdoctor-lines-") as folder:
        path = Path(folder) / "object"

        def load_object(_member: Member, pieces: Iterator[bytes]) -> None:
            with path.open("wb") as out:
                for piece in pieces:
                    out.write(piece)
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                messages.update(list_messages(data))

        for member in members:
            if OBJECTS.search(member.name):
                extract(web, url, [member], total, load_object)
    return sorted(messages)


def extract_message_text(text: str) -> str:
    """Return the longest part of a text in the code that certainly stands in the logged message.

    It has no placeholder for a value. Empty if it is too short to identify the message.
    """
    if CODE.search(text):
        return ""
    longest = max(re.split(r"%[-.\d]*[a-z]+|[\n\t]", text), key=len)[:24]
    return longest if len(re.findall("[A-Za-z]", longest)) >= 6 else ""


def rows(measured: dict[str, list[Logged]]) -> dict[str, dict[str, Any]]:
    """Return the lines and texts of each source file, as compat/source_lines.json has them.

    measured: ordered from the oldest release to the newest. Texts distinguish releases that log different messages
    from the same line. Messages that stop the process (`Check failed: …`) are left out.
    """
    texts_by_file: dict[str, dict[int, dict[int, str]]] = {}
    measured = {
        version: [message for message in messages if not message.text.startswith("Check failed")]
        for version, messages in measured.items()
    }
    sources = _choose_sources(measured)
    for number, messages in enumerate(measured.values()):
        for message in messages:
            if message.file in sources:
                texts = texts_by_file.setdefault(message.file, {}).setdefault(message.line, {})
                # the compiler merged the code of two messages
                texts[number] = extract_message_text(message.text) if number not in texts else ""
    return {file: _row(lines) for file, lines in sorted(texts_by_file.items())}


def _choose_sources(measured: dict[str, list[Logged]]) -> set[str]:
    """Return the sources that log at the default verbosity.

    Abseil's logger prints no folders. For releases that use it, include all sources with the same file names.
    """
    files: set[str] = set()
    abseil_files: set[str] = set()
    for version, messages in measured.items():
        own_files = {message.file for message in messages if OURS.match(message.file)}
        files |= {file for file in own_files if DEFAULT_LOGGERS.match(file)}
        if Version(version) >= Version(ABSEIL_SINCE):
            abseil_files |= own_files
    names = {file.rpartition("/")[2] for file in files}
    return files | {file for file in abseil_files if file.rpartition("/")[2] in names}


def _row(lines: dict[int, dict[int, str]]) -> dict[str, Any]:
    texts = sorted({text for texts_of in lines.values() for text in texts_of.values() if text})
    text_numbers = {text: release_number for release_number, text in enumerate(texts)}
    entries = []
    for line, texts_of in sorted(lines.items()):
        groups: dict[str, list[int]] = {}
        for release_number, text in texts_of.items():
            groups.setdefault(text, []).append(release_number)
        parts = [
            f"{span}={text_numbers[text]}" if text else span
            for text, releases_of in sorted(groups.items(), key=lambda item: item[1])
            for span in by_release.format_spans(releases_of).split(",")
        ]
        entries.append(f"{line}:{','.join(parts)}")
    return {"lines": " ".join(entries), **({"texts": texts} if texts else {})}


def render(measured: dict[str, list[Logged]], builds: list[dict[str, str]], as_of: str) -> str:
    """Return the text of the table; equal measurements give equal bytes.

    measured: ordered from the oldest release to the newest. builds: which of them are not releases.
    """
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
    """Return the messages of each release in the table, with the texts that it kept."""
    messages: dict[str, list[Logged]] = {version: [] for version in table["releases"]}
    for file, row in table["files"].items():
        for entry in row["lines"].split():
            line, _, groups = entry.partition(":")
            for group in groups.split(","):
                spans, _, text = group.partition("=")
                message_text = row["texts"][int(text)] if text else ""
                for version in by_release.expand_spans(table["releases"], spans):
                    messages[version].append(Logged(file, int(line), "", message_text))
    return messages


def find_problems(table: dict[str, Any]) -> list[str]:
    """Return the problems of the table that can be found offline."""
    problems = by_release.find_unmeasured(table, MINIMUM_RELEASES)
    count = sum(len(row["lines"].split()) for row in table["files"].values())
    return problems if count >= MINIMUM_LINES else [*problems, f"only {count} lines"]


def main() -> int:
    """Update or check the table and return the exit status."""
    options = by_release.parse_options(
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
    if options.check:
        return by_release.finish_check(find_problems(table))
    if not (options.cached or options.builds or options.only) and not find_problems(table):
        print("every release is there")
        return 0
    options.cache.mkdir(parents=True, exist_ok=True)
    if not options.cached:
        present = set() if options.only else {*table["releases"]}
        requested = [*sort_patches(list_releases()), *(list_builds() if options.builds else ())]
        fetch(options.cache, requested, SpecifierSet(options.only or "", prereleases=True), present)
    text = render(*merge_sources(table, options.cache), options.as_of)
    if problems := [problem for problem in find_problems(json.loads(text)) if problem.startswith("only")]:
        print("\n".join(problems), file=sys.stderr)
        return 1
    write_file(TABLE, text)
    by_release.print_count(len(json.loads(text)["releases"]))
    return 0


def merge_sources(table: dict[str, Any], cache: Path) -> tuple[dict[str, list[Logged]], list[dict[str, str]]]:
    """Return the messages of each version from the cache, else from the table, and the builds among them."""
    measured = load_known(table)
    builds_by_version = {row["version"]: row for row in table.get("builds", ())}
    for path in cache.glob("*.json"):
        cached = json.loads(path.read_text(encoding="utf-8"))
        measured[cached["version"]] = [Logged(*fields) for fields in cached["logged"]]
        if "package" in cached:
            builds_by_version[cached["version"]] = {
                **{key: cached[key] for key in ("version", "package", "released")},
                "source": f"the Linux x86-64 wheel of {cached['package']} on the package index",
            }
    order = sorted(measured, key=Version)
    return {version: measured[version] for version in order}, [*builds_by_version.values()]


def list_builds() -> list[dict[str, Any]]:
    """Return the builds on the index that are not releases, as rows like those of `list_releases`."""
    from pypi_simple import PyPISimple  # imported here so that tests of the pure parts do not need it

    rows_by_version: dict[str, dict[str, Any]] = {}
    with PyPISimple() as client:
        for project, suffix in BUILDS.items():
            for package in client.get_project_page(project).packages:
                version = Version(package.version or "0")
                if not package.filename.endswith("x86_64.whl") or "-macosx" in package.filename:
                    continue
                if suffix or version.is_prerelease or version < Version("1.0"):
                    rows_by_version[f"{version}{suffix}"] = {
                        "version": f"{version}{suffix}",
                        "package": project,
                        "released": str(package.upload_time)[:10],
                        "wheel": package.filename,
                        "url": package.url,
                        "sha256": package.digests["sha256"],
                    }
    return sorted(rows_by_version.values(), key=lambda row: Version(row["version"]))


def fetch(cache: Path, rows: list[dict[str, Any]], specifier: SpecifierSet, present: set[str]) -> None:
    """Measure the rows that `specifier` contains, unless they are in the cache or in `present`."""
    from update_support.remote_zip import Web

    urls = by_release.list_urls()
    web = Web()
    for row in rows:
        path = cache / f"{row['sha256']}.json"
        if path.exists() or row["version"] in present or not specifier.contains(row["version"]):
            continue
        start = time.monotonic()
        messages = measure(web, row.get("url") or urls[row["wheel"]])
        build_fields = {key: row[key] for key in ("package", "released")} if "url" in row else {}
        text = json.dumps({"version": row["version"], **build_fields, "logged": messages})
        write_file(path, text)
        print(f"{row['version']}: {len(messages)} messages, {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(report_errors(main))
