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
"""Measure compat/tensorflow.json from the package index and the wheels themselves.

    uv run scripts/update_tensorflow.py                 # what is new; of the rest what the index alone says
    uv run scripts/update_tensorflow.py --only 2.21     # only these releases anew, the rest as the table has them
    uv run scripts/update_tensorflow.py --all           # every release anew, from the cache or for hours
    uv run scripts/update_tensorflow.py --preview       # how the newest tf-nightly differs; changes nothing
    uv run scripts/update_tensorflow.py --no-binaries   # index and small members: six requests a wheel
    uv run scripts/update_tensorflow.py --check 5       # measure five again and compare; changes nothing
    uv run scripts/update_tensorflow.py --authored      # apply compat/registration.toml alone, offline

A wheel is a zip file and the index serves byte ranges, so METADATA, build_info.py and cuda_config.h of a
600 MB wheel cost a few kilobytes. The shared objects must be streamed once, because the architectures are
spread over all of them. The results are cached, one JSON file per wheel, named by the wheel's SHA-256, so
that an interrupted run can continue. There is one connection, and wheels are read one after the other.

If the shared objects of two wheels have equal CRC-32 (tensorflow and tensorflow-gpu from 2.1 on), only one is
read.

Facts that a wheel does not contain are authored in compat/registration.toml: the libraries that TensorFlow
opens, the cuDNN it was compiled with (both observed in runs), and the documentation of tensorflow.org. Equal
measurements give a table of equal bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from checkout import ROOT
from tfdoctor.compat.releases import SHARED_KEYS
from update_support.authored import CUDNN_SOURCE_PREFIX, Authored
from update_support.files import report_errors, write_file
from update_support.remote_zip import Web, load_central_directory
from update_support.targets import make_filter
from update_support.wheel_facts import (
    ReleaseFiles,
    WheelFacts,
    find_newest_nightly,
    load_cached,
    load_index,
    make_cache_path,
    measure_objects,
    measure_small,
    parse_capabilities,
    parse_defines,
    parse_requirements,
    python_number,
    save_cached,
    sort_architectures,
    strip_root,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypi_simple import DistributionPackage

    from update_support.remote_zip import Member
    from update_support.shared_objects import ObjectFacts

TABLE = ROOT / "compat" / "tensorflow.json"
AUTHORED = ROOT / "compat" / "registration.toml"
MINIMUM_ROWS = 181
"""Minimum number of releases, as counted in November 2026; fewer mean an incomplete index."""

CUDA_SONAME = re.compile(
    r"lib(?:cu(?:da|dart|blas|blasLt|fft|rand|solver|sparse|dnn)|nccl|nvinfer)\.so(?:\.[0-9.]+)?$"
)
NVIDIA_FOLDER = re.compile(r"nvidia/([a-z_]+)/lib$")
MAIN = re.compile(
    r"/(?:libtensorflow_framework|libtensorflow_cc|_pywrap_tensorflow(?:_internal)?)\.so(?:\.[0-9]+)?$"
)
"""TensorFlow's own objects.

Others may have more architectures: the wheels of 1.7 contain TensorRT.
"""


# --- rows -------------------------------------------------------------------------------------------------


def is_cuda_build(facts: WheelFacts, project: str) -> bool:
    """Return whether it is a CUDA build, by cuda_config.h, else build_info.py, else the project's name."""
    if "TF_CUDA_VERSION" in facts.cuda_config:  # on Windows the value is of the form 64_100
        return re.search(r'#define TF_CUDA_VERSION "[^"]', facts.cuda_config) is not None
    match = re.search(r"is_cuda_build['\"]?\s*[=:]\s*(True|False)", facts.build_info)
    if match:
        return match[1] == "True"
    return project == "tensorflow-gpu"


def list_linked_libraries(objects: dict[str, ObjectFacts]) -> list[str]:
    """Return the CUDA sonames that `import tensorflow` links.

    They are in the loader's order: breadth first from the binding.
    """
    by_name = {Path(name).name: facts for name, facts in objects.items()}
    root = next(
        (name for name in ("_pywrap_tensorflow_internal.so", "_pywrap_tensorflow.so") if name in by_name),
        None,
    )
    queue: list[str] = [root] if root else []
    sonames: list[str] = []
    for name in queue:
        for needed in by_name[name].needed:
            if CUDA_SONAME.match(needed) and needed not in sonames:
                sonames.append(needed)
            if needed in by_name and needed not in queue:
                queue.append(needed)
    return sonames


def find_release_date(package: DistributionPackage, old: dict[str, Any] | None, facts: WheelFacts) -> str:
    """Return the upload date from the index, else from the table, else the build date."""
    if package.upload_time is not None:
        return str(package.upload_time.date())
    if old is not None:
        return str(old["released"])
    return facts.built or "1970-01-01"


def make_row(
    files: ReleaseFiles,
    facts: WheelFacts,
    windows: WheelFacts | None,
    authored: Authored,
    old: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return one row, with its lists not yet shared.

    old: the present row, or None. If the objects were not read, their columns are empty (see `inherit`).
    """
    version = Version(files.version)
    minor = f"{version.major}.{version.minor}"
    gpu = is_cuda_build(facts, files.project)
    defines = parse_defines(facts.cuda_config) if gpu else {}
    requires, extras = parse_requirements(facts.metadata)
    pins = extras.get("and-cuda", [])
    documented = authored.documented.get(minor, {})
    cudnn, cudnn_evidence, cudnn_sources = authored.find_cudnn(files.version, pins)
    sources = ["METADATA, build_info.py and cuda_config.h of the wheel"]
    index_columns = make_index_columns(files)
    row: dict[str, Any] = {
        "package": files.project,
        "version": files.version,
        "released": find_release_date(files.chosen, old, facts),
        "yanked": index_columns["yanked"],
        "gpu": gpu,
        "windows_gpu": None if windows is None else is_cuda_build(windows, files.project),
        "linkage": "none" if not gpu else "needed" if version < Version("1.14") else "dlopen",
        "linux_pythons": index_columns["linux_pythons"],
        "windows_pythons": index_columns["windows_pythons"],
        "platform_tag": files.chosen.filename.removesuffix(".whl").rsplit("-", 1)[1],
        "wheel": files.chosen.filename,
        "size": facts.size,
        "unpacked": facts.unpacked,
        "sha256": files.chosen.digests["sha256"],
        "cuda": (defines.get("CUDA") or documented.get("cuda")) if gpu else None,
        "cudnn": cudnn if gpu else None,
        "cudnn_evidence": cudnn_evidence if gpu else None,
        "defines": defines,
        "required_libraries": [],
        "optional_libraries": [],
        "driver_libraries": [],
        "libraries_from": files.version,
        "runpath": {},
        "runpath_misses": [],
        "cubin": [],
        "ptx": [],
        "ptx_arch_specific": [],
        "registration_floor": None,
        "registration_floor_evidence": None,
        "glibc": None,
        "glibcxx": None,
        "cxxabi": None,
        "cpu_instructions": authored.find_instructions(files.version),
        "pip_extra": "and-cuda" if pins else None,
        "extra_pins": pins,
        "requires": requires,
        "evidence": "measured",
        "inferred_from": None,
        "sources": sources,
    }
    if facts.inside:
        sources.append("dynamic sections, symbol versions and fat binaries of its shared objects")
        if facts.read_instead:
            sources.append(f"read from {facts.read_instead}, whose shared objects have the same CRC-32")
        row.update(make_object_columns(facts.inside, version, gpu=gpu))
    if not gpu:
        return row
    run = authored.find_run(files.version)
    if row["linkage"] == "dlopen" and run is not None:
        row["required_libraries"] = run["required"]
        row["optional_libraries"] = run.get("optional", [])
        row["driver_libraries"] = run["driver"]
        row["libraries_from"] = run["version"]
        sources.append(f"run against a stand-in driver: TensorFlow {run['version']}")
        row["runpath_misses"] = find_runpath_misses(row, authored.folders)
    sources.extend(cudnn_sources)
    row.update(make_floor_columns(version, authored, row["cubin"] or parse_capabilities(facts.cuda_config)))
    return row


def make_index_columns(files: ReleaseFiles) -> dict[str, Any]:
    """Return the columns that the index alone decides, which may change after the release."""
    return {
        "yanked": any(package.is_yanked for package in files.linux.values()),
        "linux_pythons": list_pythons(files.linux),
        "windows_pythons": list_pythons(files.windows),
    }


def is_measured(files: ReleaseFiles, row: dict[str, Any] | None) -> bool:
    """Return whether the row is of the wheel that would be read, and no new system has wheels."""
    return (
        row is not None
        and row["sha256"] == files.chosen.digests.get("sha256")
        and (row["windows_gpu"] is None) == (not files.windows)
    )


def make_floor_columns(version: Version, authored: Authored, capabilities: list[str]) -> dict[str, Any]:
    """Return the compute capability below which a GPU is ignored, measured or inferred.

    Up to 2.2 it is inferred as the lowest one built for, as in every run; since 2.3 every run found 3.5. None if it
    is not known.
    """
    floor, evidence = authored.floors.get(str(version)), "measured"
    if floor is None:
        evidence = "inferred"
        if version < Version("2.3"):
            floor = min(capabilities, key=Version, default=None)
        elif version <= max(map(Version, authored.floors)):
            floor = "3.5"
    return {"registration_floor": floor, "registration_floor_evidence": evidence if floor else None}


def make_object_columns(objects: dict[str, ObjectFacts], version: Version, *, gpu: bool) -> dict[str, Any]:
    """Return the columns that the shared objects fill."""
    symbols: dict[str, str] = {}
    cubin: set[str] = set()
    targets: set[str] = set()
    runpath = {}
    for name, facts in objects.items():
        for family, number in facts.symbols.items():
            symbols[family] = max(symbols.get(family, "0"), number, key=Version)
        if MAIN.search(f"/{name}"):
            cubin |= {*facts.cubin}
            targets |= {*facts.ptx}
        folders = sorted(
            {match[1] for part in facts.path.split(":") if (match := NVIDIA_FOLDER.search(part))}
        )
        if folders and MAIN.search(f"/{name}"):
            runpath[strip_root(name)] = folders
    columns: dict[str, Any] = {
        "glibc": symbols.get("GLIBC"),
        "glibcxx": symbols.get("GLIBCXX"),
        "cxxabi": symbols.get("CXXABI"),
    }
    if not gpu:
        return columns
    columns |= {
        "cubin": sort_architectures(cubin),
        "ptx": sort_architectures({arch for arch in targets if arch.isdigit()}),
        "ptx_arch_specific": sort_architectures({arch for arch in targets if not arch.isdigit()}),
        "runpath": runpath,
    }
    if version < Version("1.14"):
        linked = list_linked_libraries(objects)
        columns["required_libraries"] = [name for name in linked if not name.startswith("libcuda.")]
        # 1.0 opens the driver instead of linking it; without it there is no GPU either way.
        columns["driver_libraries"] = ["libcuda.so.1"]
    return columns


def find_runpath_misses(row: dict[str, Any], folders: dict[str, str]) -> list[str]:
    """Return the required sonames whose NVIDIA folder is not on the path of the object that opens them.

    That is libtensorflow_framework for all releases that have an extra with NVIDIA's wheels. Empty for the others.
    """
    if not row["extra_pins"] or row["glibc"] is None:
        return []
    searched = next(
        (names for path, names in row["runpath"].items() if "libtensorflow_framework.so" in path), ()
    )
    return [
        soname for soname in row["required_libraries"] if folders[soname[3:].split(".")[0]] not in searched
    ]


def list_pythons(wheels: dict[str, DistributionPackage]) -> list[str]:
    """Return the tags of the wheels as Python versions, oldest first."""
    return [f"{tag[2]}.{tag[3:]}" for tag in sorted(wheels, key=python_number)]


INHERITED = ("cubin", "ptx", "ptx_arch_specific", "glibc", "glibcxx", "cxxabi", "runpath", "runpath_misses")


def inherit(
    rows: list[dict[str, Any]], unread: set[tuple[str, str]], known: Iterable[dict[str, Any]]
) -> None:
    """Fill the columns of rows whose shared objects were not read.

    The values come from the nearest patch with the same header, of these rows or of those of the table.
    """
    read = {(row["package"], row["version"]): row for row in (*known, *rows)}
    for row in rows:
        if (row["package"], row["version"]) not in unread:
            continue
        candidates = [
            other
            for key, other in read.items()
            if key not in unread
            and Version(other["version"]).release[:2] == Version(row["version"]).release[:2]
            and (other["gpu"], other["defines"]) == (row["gpu"], row["defines"])
        ]
        if not candidates:
            continue
        nearest = min(
            candidates, key=lambda other: abs(Version(other["version"]).micro - Version(row["version"]).micro)
        )
        for key in INHERITED:
            row[key] = nearest[key]
        if row["linkage"] == "needed":
            row["required_libraries"], row["driver_libraries"] = (
                nearest["required_libraries"],
                nearest["driver_libraries"],
            )
            row["libraries_from"] = nearest["version"]
        row["evidence"], row["inferred_from"] = "inferred", nearest["version"]


# --- the table ----------------------------------------------------------------------------------------------


def render(rows: list[dict[str, Any]], as_of: str) -> str:
    """Return the text of the file: one row per line, repeated values once in `shared`, in order of first use."""
    shared: list[Any] = []
    index: dict[str, int] = {}

    def share(value: Any) -> int:
        key = json.dumps(value, sort_keys=True)
        if key not in index:
            index[key] = len(shared)
            shared.append(value)
        return index[key]

    columns = SHARED_KEYS
    lines = [
        _dump_line({key: share(value) if key in columns else value for key, value in row.items()})
        for row in rows
    ]
    parts = [
        f'{{"schema_version":1,"as_of":"{as_of}",',
        '"shared":[',
        ",\n".join(_dump_line(value) for value in shared),
        '],\n"releases":[',
        ",\n".join(lines),
        "]}\n",
    ]
    return "\n".join(parts)


def reapply(row: dict[str, Any], authored: Authored) -> dict[str, Any]:
    """Return a row with the authored data replaced, in the column order of `make_row`."""
    version = Version(row["version"])
    new: dict[str, Any] = {}
    for key, value in row.items():
        if key == "pip_extra":
            new["cpu_instructions"] = authored.find_instructions(row["version"])
        if key not in {"cpu_instructions", "cudnn_evidence"}:
            new[key] = value
        if key == "cudnn":
            new["cudnn_evidence"] = None
    if row["gpu"]:
        new["cudnn"], new["cudnn_evidence"], cudnn_sources = authored.find_cudnn(
            row["version"], row["extra_pins"]
        )
        sources = [text for text in row["sources"] if not text.startswith(CUDNN_SOURCE_PREFIX)]
        new["sources"] = [*sources, *cudnn_sources]
        new.update(make_floor_columns(version, authored, row["cubin"]))
        run = authored.find_run(row["version"])
        if row["linkage"] == "dlopen" and run is not None:
            new["required_libraries"] = run["required"]
            new["optional_libraries"] = run.get("optional", [])
            new["driver_libraries"] = run["driver"]
            new["libraries_from"] = run["version"]
            new["runpath_misses"] = find_runpath_misses(new, authored.folders)
            sources = [text for text in sources if not text.startswith("run against")]
            new["sources"] = [
                *sources,
                f"run against a stand-in driver: TensorFlow {run['version']}",
                *cudnn_sources,
            ]
    return new


def _dump_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def load_table(path: Path) -> tuple[str, list[dict[str, Any]]]:
    """Return the date and the rows of the table, with shared lists put back in place."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "", []
    shared, columns = raw["shared"], SHARED_KEYS
    rows = [
        {key: shared[value] if key in columns else value for key, value in row.items()}
        for row in raw["releases"]
    ]
    return raw["as_of"], rows


# --- updating -----------------------------------------------------------------------------------------------


class Updater:
    """Measures wheels through the cache."""

    def __init__(self, cache: Path, *, binaries: bool, fresh: bool = False) -> None:
        self.cache = cache
        self.binaries = binaries
        self.fresh = fresh
        self.web = Web()
        self.by_objects: dict[tuple[tuple[str, int], ...], WheelFacts] = {}
        cache.mkdir(parents=True, exist_ok=True)

    def measure_wheel(self, package: DistributionPackage, *, objects: bool) -> WheelFacts:
        """Return the facts of a wheel; with `objects`, also those of its shared objects."""
        path = make_cache_path(self.cache, package)
        facts = None if self.fresh else load_cached(path)
        members: list[Member] = []
        total = 0
        if facts is None:
            facts, members, total = measure_small(self.web, package)
        if objects and not facts.inside:
            same_objects = self.by_objects.get(self.key(facts))
            if same_objects is not None and facts.objects:
                facts.inside, facts.read_instead = same_objects.inside, same_objects.filename
            else:
                if not members:
                    members, total = load_central_directory(self.web, package.url)
                facts.inside = measure_objects(self.web, package, members, total)
        if not self.fresh:
            save_cached(path, facts)
        if facts.inside and not facts.read_instead:
            self.by_objects.setdefault(self.key(facts), facts)
        return facts

    @staticmethod
    def key(facts: WheelFacts) -> tuple[tuple[str, int], ...]:
        return tuple((strip_root(name), crc) for name, crc in sorted(facts.objects.items()))


def measure(
    releases: list[ReleaseFiles],
    updater: Updater,
    authored: Authored,
    old: dict[tuple[str, str], dict[str, Any]],
) -> list[dict[str, Any]]:
    """Return a row for each release, in order."""
    rows = []
    unread = set()
    for number, files in enumerate(releases, 1):
        started = time.monotonic()
        before = updater.web.bytes
        facts = updater.measure_wheel(files.chosen, objects=updater.binaries)
        windows = None
        if files.windows:
            newest = max(files.windows, key=python_number)
            windows = updater.measure_wheel(files.windows[newest], objects=False)
        rows.append(make_row(files, facts, windows, authored, old.get((files.project, files.version))))
        if not facts.inside:
            unread.add((files.project, files.version))
        megabytes = (updater.web.bytes - before) / 1e6
        print(
            f"[{number}/{len(releases)}] {files.project} {files.version}: {megabytes:.1f} MB,"
            f" {time.monotonic() - started:.1f} s",
            file=sys.stderr,
            flush=True,
        )
    inherit(rows, unread, old.values())
    return rows


def differences(old: dict[str, Any], new: dict[str, Any], ignore: Iterable[str] = ()) -> list[str]:
    """Return one line for each column in which two rows of a release differ, except for the sources."""
    return [
        f"{old['package']} {old['version']}: {key}: {old.get(key)!r} in the table, {new.get(key)!r} measured"
        for key in new
        if key != "sources" and key not in ignore and old.get(key) != new.get(key)
    ]


def preview(updater: Updater, authored: Authored, table: list[dict[str, Any]]) -> int:
    """Print how the newest tf-nightly differs from the newest release of the table, and return 0."""
    [row] = measure([find_newest_nightly()], updater, authored, {})
    newest = max((row for row in table if row["gpu"]), key=lambda row: Version(row["version"]))
    print(f"{row['package']} {row['version']}, against {newest['package']} {newest['version']}:")
    print("\n".join(differences(newest, row, NOT_COMPARED)) or "no differences")
    return 0


NOT_COMPARED = {
    *("package", "version", "released", "wheel", "size", "unpacked", "sha256"),
    *("required_libraries", "optional_libraries", "driver_libraries", "libraries_from", "runpath_misses"),
    *("registration_floor", "registration_floor_evidence", "cudnn_evidence", "cpu_instructions"),
}
"""Columns that every build has differently, and those that are authored."""
FROM_OBJECTS = (
    *INHERITED,
    "required_libraries",
    "driver_libraries",
    "libraries_from",
    "evidence",
    "inferred_from",
)
"""Columns that can be compared only if the shared objects were read."""


def choose(
    releases: list[ReleaseFiles],
    old: dict[tuple[str, str], dict[str, Any]],
    *,
    only: str | None = None,
    everything: bool = False,
) -> tuple[list[ReleaseFiles], dict[tuple[str, str], dict[str, Any]]]:
    """Return the releases to measure, and the rows that stay.

    Without `only` and `everything`: what is new or has another wheel is measured, what the index no longer has goes,
    and of the other rows the columns are set that the index alone decides.
    """
    if everything:
        return releases, {}
    if only:
        matches = make_filter(only)
        return [files for files in releases if matches(files.version)], dict(old)
    rows = {(files.project, files.version): files for files in releases}
    kept = {key: {**old[key], **make_index_columns(files)} for key, files in rows.items() if key in old}
    return [files for key, files in rows.items() if not is_measured(files, old.get(key))], kept


def main() -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="SPEC", help="measure these releases alone; other rows stay")
    parser.add_argument("--all", action="store_true", help="measure every release, also those in the table")
    parser.add_argument(
        "--preview", action="store_true", help="how the newest tf-nightly differs from the newest release"
    )
    parser.add_argument("--no-binaries", action="store_true", help="do not stream the shared objects")
    parser.add_argument(
        "--check", type=int, metavar="N", help="measure a sample again and compare; write nothing"
    )
    parser.add_argument(
        "--authored", action="store_true", help="apply compat/registration.toml to the table; no network"
    )
    parser.add_argument(
        "--dry", action="store_true", help="with --authored: change nothing; exit 1 where the table is stale"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--as-of", default=time.strftime("%Y-%m-%d", time.gmtime()), help="date of the table")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "tfdoctor" / "update",
    )
    options = parser.parse_args()
    authored = Authored(AUTHORED)
    as_of, table = load_table(TABLE)
    old = {(row["package"], row["version"]): row for row in table}
    if options.authored:
        text = render([reapply(row, authored) for row in table], as_of)
        if not options.dry:
            write_file(TABLE, text)
        elif text != TABLE.read_text(encoding="utf-8"):
            print("the table is stale: run scripts/update_tensorflow.py --authored", file=sys.stderr)
            return 1
        return 0
    if options.preview:
        return preview(Updater(options.cache, binaries=not options.no_binaries), authored, table)
    releases = load_index()
    if len(releases) < MINIMUM_ROWS:
        print(f"only {len(releases)} releases found, {MINIMUM_ROWS} were: not written", file=sys.stderr)
        return 1
    if options.check is not None:
        existing = [files for files in releases if (files.project, files.version) in old]
        sample = random.Random(options.seed).sample(existing, min(options.check, len(existing)))  # noqa: S311
        missing = [f"{f.project} {f.version}: not in the table" for f in releases if f not in existing]
        updater = Updater(options.cache, binaries=not options.no_binaries, fresh=True)
        lines = missing
        for row in measure(sample, updater, authored, old):
            ignore = FROM_OBJECTS if options.no_binaries else ()
            lines += differences(old[row["package"], row["version"]], row, ignore)
        print("\n".join(lines) or f"{len(sample)} releases agree with the table")
        return 1 if lines else 0
    updater = Updater(options.cache, binaries=not options.no_binaries)
    chosen, kept = choose(releases, old, only=options.only, everything=options.all)
    rows = {(row["package"], row["version"]): row for row in measure(chosen, updater, authored, old)}
    merged = {**kept, **rows}
    order = sorted(merged, key=lambda key: (Version(key[1]), key[0]))
    text = render([merged[key] for key in order], options.as_of)
    write_file(TABLE, text)
    for key in sorted({*merged, *old}, key=lambda key: (Version(key[1]), key[0])):
        if key not in merged:
            print(f"{key[0]} {key[1]}: no longer on the index")
        elif key not in old:
            print(f"{key[0]} {key[1]}: new")
        else:
            for line in differences(old[key], merged[key]):
                print(line)
    print(
        f"{len(order)} rows, {updater.web.requests} requests, {updater.web.bytes / 1e6:.0f} MB"
        f" (the table was of {as_of})",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(report_errors(main))
