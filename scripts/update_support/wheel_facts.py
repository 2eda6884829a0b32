"""What a TensorFlow wheel says of itself, read over HTTP in pieces; and which wheels the index has."""

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

from update_support.remote_zip import Member, Web, central_directory, extract, spans
from update_support.shared_objects import ObjectFacts, read_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pypi_simple import DistributionPackage

PROJECTS = ("tensorflow", "tensorflow-gpu")
FORMAT = 3
"""Of the cache; raise it when a measurement changes."""
OBJECT = re.compile(r"\.so(?:\.[0-9.]+)?$")
SMALL = re.compile(r"(?:\.dist-info/METADATA|platform/build_info\.py|/cuda/cuda_config\.h)$")
BEST_PYTHON = 310
"""The wheel that is read is that of the newest Python up to this one; the others differ in no column."""


# --- one wheel ----------------------------------------------------------------------------------------------


@dataclass
class WheelFacts:
    """What one wheel says; its cache entry."""

    format: int
    filename: str
    size: int
    unpacked: int
    built: str
    """Date of the newest file inside, where the index has no upload time."""
    metadata: str
    build_info: str
    cuda_config: str
    objects: dict[str, int]
    """Shared object → CRC-32, those of 5 MB and more."""
    inside: dict[str, ObjectFacts]
    """Shared object → what it says; empty where only the small members were read."""
    read_instead: str = ""
    """The wheel with the same shared objects that was read for this one."""


def cache_file(folder: Path, package: DistributionPackage) -> Path:
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


def save(path: Path, facts: WheelFacts) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(asdict(facts), sort_keys=True), encoding="utf-8")
    part.replace(path)


def measure_small(web: Web, package: DistributionPackage) -> tuple[WheelFacts, list[Member], int]:
    """The small members of a wheel, its directory and where its data ends."""
    members, total = central_directory(web, package.url)
    texts = {}

    def keep(member: Member, pieces: Iterator[bytes]) -> None:
        texts[member.name] = b"".join(pieces).decode("utf-8", "replace")

    wanted = [member for member in members if SMALL.search(member.name)]
    for run in spans(wanted, 1 << 16):
        extract(web, package.url, run, total, keep)

    def text(pattern: str) -> str:
        return next((texts[name] for name in sorted(texts) if re.search(pattern, name)), "")

    objects = {m.name: m.crc for m in members if OBJECT.search(m.name) and m.size >= 5_000_000}
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
    """Every shared object of a wheel, streamed through a temporary file."""
    result: dict[str, ObjectFacts] = {}
    wanted = [member for member in members if OBJECT.search(member.name)]
    with tempfile.TemporaryDirectory(prefix="tfdoctor-") as folder:
        path = Path(folder) / "object"

        def look(member: Member, pieces: Iterator[bytes]) -> None:
            with path.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
            result[member.name] = read_object(path)

        for run in spans(wanted, 1 << 22):
            extract(web, package.url, run, total, look)
    return dict(sorted(result.items()))


def header_defines(text: str) -> dict[str, str]:
    """`TF_CUDART_VERSION "11.0"` → `{"CUDART": "11.0"}`."""
    return dict(re.findall(r'#define TF_(\w+)_VERSION "([0-9][0-9.]*)"', text))


def header_capabilities(text: str) -> list[str]:
    """`TF_CUDA_CAPABILITIES CudaVersion("3.5"), …` → `["3.5", …]`; what TF up to 2.2 takes its floor from."""
    match = re.search(r"#define TF_CUDA_CAPABILITIES (.*)", text)
    return re.findall(r'"([0-9.]+)"', match[1]) if match else []


def requirements(metadata: str) -> tuple[list[str], dict[str, list[str]]]:
    """Requirements on what breaks imports, and the requirements of each extra; normalised, sorted."""
    plain: list[str] = []
    extras: dict[str, list[str]] = {}
    for line in email.message_from_string(metadata).get_all("Requires-Dist") or []:
        try:
            wanted = Requirement(line)
        except InvalidRequirement:
            continue
        marker = str(wanted.marker or "")
        extra = re.search(r'extra == "([^"]+)"', marker)
        text = f"{wanted.name}{wanted.specifier}"
        if extra:
            extras.setdefault(extra[1], []).append(text)
        elif wanted.name.lower() in {"numpy", "protobuf", "h5py", "keras", "keras-nightly"}:
            plain.append(f"{text}; {marker}" if marker else text)
    return sorted(plain), {name: sorted(pins) for name, pins in extras.items()}


def format_architecture(arch: str) -> str:
    """`"90a"` → `"9.0a"`."""
    suffix = arch[-1] if arch[-1].isalpha() else ""
    digits = arch.removesuffix(suffix)
    return f"{digits[:-1]}.{digits[-1]}{suffix}"


def sort_architectures(archs: Iterable[str]) -> list[str]:
    """Architectures as compute capabilities, lowest first."""
    return [format_architecture(arch) for arch in sorted(archs, key=lambda arch: int(arch.rstrip("af")))]


def strip_root(name: str) -> str:
    """A member's path as installed."""
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
    """`"cp310"` → 310, `"cp27"` → 207."""
    return int(tag[2]) * 100 + int(tag[3:])


def read_index() -> list[ReleaseFiles]:
    """Every final release with a Linux x86-64 wheel from 1.0 on, and the newest candidate; by version,
    project."""
    found: dict[tuple[str, str], ReleaseFiles] = {}
    from pypi_simple import PyPISimple  # here, so that the pure parts can be tested without it

    with PyPISimple() as client:
        for project in PROJECTS:
            for package in client.get_project_page(project).packages:
                match = re.fullmatch(r"[^-]+-([^-]+)(?:-\d[^-]*)?-(cp\d+)-[^-]+-(.+)\.whl", package.filename)
                if match is None or package.version is None:
                    continue
                try:
                    version = Version(match[1])
                except InvalidVersion:
                    continue
                if version < Version("1.0.0"):
                    continue
                files = found.setdefault((project, match[1]), ReleaseFiles(project, match[1]))
                if re.search(r"(?:manylinux|linux).*x86_64", match[3]):
                    files.linux[match[2]] = package
                elif match[3] == "win_amd64":
                    files.windows[match[2]] = package
    rows = [files for files in found.values() if files.linux]
    finals = [files for files in rows if not Version(files.version).is_prerelease]
    newest = max(Version(files.version) for files in finals)
    candidates = [
        files
        for files in rows
        if Version(files.version).is_prerelease
        and not Version(files.version).is_devrelease
        and Version(files.version) > newest
    ]
    if candidates:
        finals.append(max(candidates, key=lambda files: Version(files.version)))
    return sorted(finals, key=lambda files: (Version(files.version), files.project))
