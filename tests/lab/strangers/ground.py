"""The bases, their contents, and the versions on the package index."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.version import Version

from lab.broken_env import BASES, Base, _locked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_CU11 = "cuda/cu11.8-cudnn8.6.txt"
_OLD = ("protobuf<3.21", "numpy<1.20", "h5py<3")
BASES_BY_RELEASE: Mapping[str, Base] = {
    **BASES,
    **{
        base.name: base
        for base in (
            Base("2.18", "3.12", ("tensorflow[and-cuda]==2.18.1",)),
            Base("2.16", "3.11", ("tensorflow[and-cuda]==2.16.2",)),
            Base("2.13", "3.10", _locked("tensorflow-2.13.1-cp310.txt", _CU11)),
            Base("2.8", "3.9", _locked("tensorflow-2.8.4-cp39.txt", _CU11)),
            Base("1.15", "3.7", ("tensorflow-gpu==1.15.5", *_OLD)),
        )
    },
}
"""The releases to break, one of every period."""

TOOLKITS: Mapping[str, tuple[str, ...]] = {
    "2.4": (
        *("libcudart.so.11.0", "libcublas.so.11", "libcublasLt.so.11", "libcufft.so.10", "libcurand.so.10"),
        *("libcusolver.so.10", "libcusparse.so.11", "libcudnn.so.8"),
    ),
    "1.15": (
        *("libcudart.so.10.0", "libcublas.so.10.0", "libcufft.so.10.0", "libcurand.so.10.0"),
        *("libcusolver.so.10.0", "libcusparse.so.10.0", "libcudnn.so.7"),
    ),
}
"""Bases without CUDA wheels: the libraries in a toolkit's folder outside the environment."""
ON_PATH = frozenset({"2.13", "2.10", "2.8"})
"""Bases whose TensorFlow does not find NVIDIA's wheels by itself."""
NEEDS_LINK = frozenset({"2.21"})
"""Bases that need a symlink to cuSOLVER before they register a GPU."""
CAPABILITY: Mapping[str, str] = {"1.15": "7.0"}
"""Compute capability of the GPU for a release; 8.0 for all others."""

_NOT_COMPANIONS = re.compile(r"(nvidia|tensorflow|tf)[-_]|pip$|wheel$|uv$|tensorflow$|libclang$")
_FOLLOWED = (".so", ".pyd")
_MAX_FILES = 4000


class Undrawn(Exception):  # noqa: N818 - it is not an error
    """What was drawn is not available; it is drawn again, or the seed is skipped."""


@dataclass(slots=True)
class GroundIndex:
    """The versions of which the package index has wheels.

    They are kept in a file, so that a seed keeps its meaning.
    """

    path: Path
    known: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Versions by Python and package, newest first: {"3.11": {"numpy": ["2.4.0", ...]}}."""

    def __post_init__(self) -> None:
        """Read the versions of earlier queries."""
        if self.path.exists():
            self.known = json.loads(self.path.read_text(encoding="utf-8"))

    def versions(self, name: str, python: str) -> list[str]:
        """Return the versions, newest first; empty if there is no wheel for this Python. Raise Undrawn."""
        known_versions = self.known.setdefault(python, {})
        if name not in known_versions:
            known_versions[name] = _query_index(name, python)
            self.path.write_text(json.dumps(self.known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return known_versions[name]


def _query_index(name: str, python: str) -> list[str]:
    # For a version that does not exist, pip lists those that it could install, only wheels for this Python.
    # `pip index versions` lists source archives, too.
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--dest",
            folder,
            "--no-deps",
            "--only-binary",
            ":all:",
        ]
        command += ["--python-version", python, f"{name}==0.0.0.dev987654"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        except subprocess.TimeoutExpired as error:
            message = f"the index did not answer about {name}"
            raise Undrawn(message) from error
    listed = re.search(r"\(from versions: ([^)]*)\)", done.stderr)
    if listed is None:
        message = f"the index did not answer about {name}: {done.stderr[-200:]}"
        raise Undrawn(message)
    versions = [
        version for version in listed[1].split(", ") if re.fullmatch(r"[0-9.]+(\.?post[0-9]+)?", version)
    ]
    return sorted(versions, key=Version, reverse=True)


@dataclass(frozen=True, slots=True)
class BaseContents:
    """One base as the grammar sees it: names in a fixed order."""

    base: str
    python: str
    """Its Python version, as "3.11"."""
    companions: Mapping[str, str]
    """Distributions that are neither TensorFlow nor NVIDIA's: version by normalized name."""
    nvidia: Mapping[str, str]
    """NVIDIA's distributions: version by normalized name."""
    libraries: Sequence[str]
    """CUDA's shared objects, relative to site-packages (or names in the toolkit's folder)."""
    native: Sequence[str]
    """TensorFlow's top-level shared objects, relative to site-packages."""
    extensions: Sequence[str]
    """Extension modules and libraries of companions, relative to site-packages."""
    modules: Sequence[str]
    """Python files of companions and of TensorFlow's first folders, relative to site-packages."""
    index: GroundIndex

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version, as (2, 20)."""
        major, minor = self.base.split(".")[:2]
        return int(major), int(minor)

    @property
    def toolkit(self) -> bool:
        """Whether its CUDA is in a folder outside the environment, as stand-ins."""
        return self.base in TOOLKITS

    def versions(self, name: str) -> list[str]:
        """Return the versions on the index for this Python. Raise Undrawn if there are none."""
        versions = self.index.versions(name, self.python)
        if not versions:
            message = f"no wheel of {name} for Python {self.python}"
            raise Undrawn(message)
        return versions


def normalize_name(name: str) -> str:
    """Return the name as the index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def inspect_base(base: str, root: Path, index: GroundIndex) -> BaseContents:
    """Inspect an intact base."""
    site = next(iter(sorted(root.glob("lib/python*/site-packages"))))
    versions = {}
    for path in sorted(site.glob("*.dist-info")):
        name, _, version = path.name.removesuffix(".dist-info").rpartition("-")
        versions[normalize_name(name)] = version
    nvidia = {name: version for name, version in versions.items() if name.startswith("nvidia-")}
    companions = {name: version for name, version in versions.items() if not _NOT_COMPANIONS.match(name)}
    libraries: Sequence[str] = TOOLKITS.get(base) or _list_files(site, "nvidia/*/lib/lib*.so*")
    tensorflow = "tensorflow_core" if (site / "tensorflow_core" / "python").is_dir() else "tensorflow"
    native = _list_files(site, f"{tensorflow}/lib*.so*", f"{tensorflow}/python/*.so")
    extensions = [
        path
        for path in _list_files(site, "*/**/*.so", "*.libs/*.so*")
        if not path.startswith(("nvidia/", "tensorflow", "pip/", "clang/"))
    ]
    modules = [
        path
        for path in _list_files(
            site, "*.py", "*/__init__.py", "*/core/*.py", "*/_*.py", "google/protobuf/*.py"
        )
        if not path.startswith(("nvidia/", "pip/", "_distutils_hack/", "distutils-"))
    ]
    python = site.parent.name.removeprefix("python")
    return BaseContents(base, python, companions, nvidia, libraries, native, extensions, modules, index)


def _list_files(site: Path, *patterns: str) -> list[str]:
    paths = {
        path.relative_to(site).as_posix()
        for pattern in patterns
        for path in site.glob(pattern)
        if path.is_file() and not path.is_symlink() and path.stat().st_size
    }
    return sorted(paths)[:_MAX_FILES]
