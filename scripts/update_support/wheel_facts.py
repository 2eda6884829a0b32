"""Facts about a TensorFlow wheel, read over HTTP in pieces; and the wheels on the index."""

from __future__ import annotations

import email
import hashlib
import json
import re
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from update_support.files import write_file
from update_support.remote_zip import Member, Web, extract, group_members, load_central_directory
from update_support.shared_objects import ObjectFacts, load_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pypi_simple import DistributionPackage

PROJECTS = ("tensorflow", "tensorflow-gpu")
NIGHTLY = "tf-nightly"
FORMAT = 3
"""Format version of the cache; raise it when a measurement changes."""
OBJECT = re.compile(r"\.so(?:\.[0-9.]+)?$")
SMALL = re.compile(r"(?:\.dist-info/METADATA|platform/build_info\.py|/cuda/cuda_config\.h)$")
BEST_PYTHON = 310
"""Newest Python whose wheel is read (310 for 3.10); the wheels of other Pythons give the same columns."""


# --- one wheel ----------------------------------------------------------------------------------------------


@dataclass
class WheelFacts:
    """The facts about one wheel, as its cache entry."""

    format: int
    filename: str
    size: int
    unpacked: int
    built: str
    """Date of the newest file inside, if the index has no upload time."""
    metadata: str
    build_info: str
    cuda_config: str
    objects: dict[str, int]
    """CRC-32 of each shared object of 5 MB or more."""
    inside: dict[str, ObjectFacts]
    """Facts about each shared object; empty if only the small members were read."""
    read_instead: str = ""
    """The wheel with the same shared objects that was read for this one."""


def make_cache_path(folder: Path, package: DistributionPackage) -> Path:
    return (
        folder / f"{package.digests.get('sha256') or hashlib.sha256(package.url.encode()).hexdigest()}.json"
    )


def load_cached(path: Path) -> WheelFacts | None:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if raw.get("format") != FORMAT:
        return None
    raw["inside"] = {name: ObjectFacts(**facts) for name, facts in raw["inside"].items()}
    return WheelFacts(**raw)


def save_cached(path: Path, facts: WheelFacts) -> None:
    write_file(path, json.dumps(asdict(facts), sort_keys=True))


def measure_small(web: Web, package: DistributionPackage) -> tuple[WheelFacts, list[Member], int]:
    """Return the facts from the small members of a wheel, its directory and the size of the file."""
    members, total = load_central_directory(web, package.url)
    texts = {}

    def keep(member: Member, pieces: Iterator[bytes]) -> None:
        texts[member.name] = b"".join(pieces).decode("utf-8", "replace")

    small_members = [member for member in members if SMALL.search(member.name)]
    for run in group_members(small_members, 1 << 16):
        extract(web, package.url, run, total, keep)

    def text(pattern: str) -> str:
        return next((texts[name] for name in sorted(texts) if re.search(pattern, name)), "")

    objects = {
        entry.name: entry.crc for entry in members if OBJECT.search(entry.name) and entry.size >= 5_000_000
    }
    facts = WheelFacts(
        format=FORMAT,
        filename=package.filename,
        size=total,
        unpacked=sum(member.size for member in members),
        built="",
        metadata=text("METADATA$"),
        build_info=text(r"build_info\.py$"),
        cuda_config=text(r"cuda_config\.h$"),
        objects=dict(sorted(objects.items())),
        inside={},
    )
    return facts, members, total


def measure_objects(
    web: Web, package: DistributionPackage, members: list[Member], total: int
) -> dict[str, ObjectFacts]:
    """Return the facts about every shared object of a wheel, streamed through a temporary file."""
    result: dict[str, ObjectFacts] = {}
    object_members = [member for member in members if OBJECT.search(member.name)]
    with tempfile.TemporaryDirectory(prefix="tfdoctor-") as folder:
        path = Path(folder) / "object"

        def load_member(member: Member, pieces: Iterator[bytes]) -> None:
            with path.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
            result[member.name] = load_object(path)

        for run in group_members(object_members, 1 << 22):
            extract(web, package.url, run, total, load_member)
    return dict(sorted(result.items()))


def parse_defines(text: str) -> dict[str, str]:
    """Return `{"CUDART": "11.0"}` for `TF_CUDART_VERSION "11.0"`."""
    return dict(re.findall(r'#define TF_(\w+)_VERSION "([0-9][0-9.]*)"', text))


def parse_capabilities(text: str) -> list[str]:
    """Return the capabilities in a header, from which TensorFlow up to 2.2 derives its minimum.

    `["3.5", …]` for `TF_CUDA_CAPABILITIES CudaVersion("3.5"), …`.
    """
    match = re.search(r"#define TF_CUDA_CAPABILITIES (.*)", text)
    return re.findall(r'"([0-9.]+)"', match[1]) if match else []


def parse_requirements(metadata: str) -> tuple[list[str], dict[str, list[str]]]:
    """Return the requirements on packages that often break imports, and those of each extra.

    Both are normalized and sorted.
    """
    plain: list[str] = []
    extras: dict[str, list[str]] = {}
    for line in email.message_from_string(metadata).get_all("Requires-Dist") or []:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        marker = str(requirement.marker or "")
        extra = re.search(r'extra == "([^"]+)"', marker)
        text = f"{requirement.name}{requirement.specifier}"
        if extra:
            extras.setdefault(extra[1], []).append(text)
        elif requirement.name.lower() in {"numpy", "protobuf", "h5py", "keras", "keras-nightly"}:
            plain.append(f"{text}; {marker}" if marker else text)
    return sorted(plain), {name: sorted(pins) for name, pins in extras.items()}


def format_architecture(arch: str) -> str:
    """Return "9.0a" for "90a"."""
    suffix = arch[-1] if arch[-1].isalpha() else ""
    digits = arch.removesuffix(suffix)
    return f"{digits[:-1]}.{digits[-1]}{suffix}"


def sort_architectures(archs: Iterable[str]) -> list[str]:
    """Return the architectures as compute capabilities, lowest first."""
    return [format_architecture(arch) for arch in sorted(archs, key=lambda arch: int(arch.rstrip("af")))]


def strip_root(name: str) -> str:
    """Return the installed path of a member."""
    return re.sub(r"^[^/]+\.data/(?:purelib|platlib)/", "", name)


# --- the index ----------------------------------------------------------------------------------------------


@dataclass
class ReleaseFiles:
    """The wheels of one release."""

    project: str
    version: str
    linux: dict[str, DistributionPackage] = field(default_factory=dict)
    windows: dict[str, DistributionPackage] = field(default_factory=dict)

    @property
    def chosen(self) -> DistributionPackage:
        """The Linux wheel that is read."""
        tags = sorted(self.linux, key=lambda tag: int(tag[2:]) if len(tag) > 3 and tag[2] == "3" else 0)
        tags.sort(key=python_number)
        fitting = [tag for tag in tags if python_number(tag) <= BEST_PYTHON] or tags[:1]
        return self.linux[fitting[-1]]


def python_number(tag: str) -> int:
    """Return 310 for "cp310" and 207 for "cp27"."""
    return int(tag[2]) * 100 + int(tag[3:])


def load_index() -> list[ReleaseFiles]:
    """Return every final release from 1.0 on with a Linux x86-64 wheel, and the newest candidate.

    They are sorted by version and project.
    """
    with_linux = [files for project in PROJECTS for files in list_wheels(project)]
    finals = [files for files in with_linux if not Version(files.version).is_prerelease]
    newest = max(Version(files.version) for files in finals)
    candidates = [
        files
        for files in with_linux
        if Version(files.version).is_prerelease
        and not Version(files.version).is_devrelease
        and Version(files.version) > newest
    ]
    if candidates:
        finals.append(max(candidates, key=lambda files: Version(files.version)))
    return sorted(finals, key=lambda files: (Version(files.version), files.project))


def find_newest_nightly() -> ReleaseFiles:
    """Return the newest nightly build with a Linux x86-64 wheel."""
    return max(list_wheels(NIGHTLY), key=lambda files: Version(files.version))


def list_wheels(project: str) -> list[ReleaseFiles]:
    """Return the versions of a project from 1.0 on with a Linux x86-64 wheel."""
    from pypi_simple import PyPISimple  # imported here so that tests of the pure parts do not need it

    releases: dict[str, ReleaseFiles] = {}
    with PyPISimple() as client:
        packages = client.get_project_page(project).packages
    for package in packages:
        match = re.fullmatch(r"[^-]+-([^-]+)(?:-\d[^-]*)?-(cp\d+)-[^-]+-(.+)\.whl", package.filename)
        if match is None or package.version is None:
            continue
        try:
            version = Version(match[1])
        except InvalidVersion:
            continue
        if version < Version("1.0.0"):
            continue
        files = releases.setdefault(match[1], ReleaseFiles(project, match[1]))
        if re.search(r"(?:manylinux|linux).*x86_64", match[3]):
            files.linux[match[2]] = package
        elif match[3] == "win_amd64":
            files.windows[match[2]] = package
    return [files for files in releases.values() if files.linux]
