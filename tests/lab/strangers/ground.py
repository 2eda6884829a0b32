"""What there is to break: the bases, what lies in them, and the versions that the package index has."""

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
STARTS: Mapping[str, Base] = {
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
"""The releases that strangers break: one of every era."""

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
"""Bases for which no wheel brings CUDA: the libraries that stand in a toolkit's folder beside them."""
ON_PATH = frozenset({"2.13", "2.10", "2.8"})
"""Bases whose TensorFlow does not look into NVIDIA's wheels by itself."""
LINKED = frozenset({"2.21"})
"""Bases that need the link to cuSOLVER before they register a GPU."""
CAPABILITY: Mapping[str, str] = {"1.15": "7.0"}
"""Of the card that goes with a release; 8.0 with all others."""

_NOT_COMPANIONS = re.compile(r"(nvidia|tensorflow|tf)[-_]|pip$|wheel$|uv$|tensorflow$|libclang$")
_FOLLOWED = (".so", ".pyd")
_MOST_FILES = 4000


class Undrawn(Exception):  # noqa: N818 - it is not an error
    """What was drawn cannot be had; the seed is drawn again, or left out."""


@dataclass(slots=True)
class Index:
    """The versions that the package index has wheels of, kept in a file: a seed stays what it was."""

    path: Path
    known: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """{"3.11": {"numpy": ["2.4.0", ...]}}, newest first."""

    def __post_init__(self) -> None:
        """Read what was asked before."""
        if self.path.exists():
            self.known = json.loads(self.path.read_text(encoding="utf-8"))

    def versions(self, name: str, python: str) -> list[str]:
        """Newest first; empty where there is no wheel for this Python. Raises Undrawn."""
        kept = self.known.setdefault(python, {})
        if name not in kept:
            kept[name] = _ask(name, python)
            self.path.write_text(json.dumps(self.known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return kept[name]


def _ask(name: str, python: str) -> list[str]:
    # Asked for a version that nobody has, pip lists those that it could have taken: of wheels for this Python
    # alone. Its `index versions` lists sources, too.
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
        except subprocess.TimeoutExpired as late:
            message = f"the index did not answer about {name}"
            raise Undrawn(message) from late
    listed = re.search(r"\(from versions: ([^)]*)\)", done.stderr)
    if listed is None:
        message = f"the index did not answer about {name}: {done.stderr[-200:]}"
        raise Undrawn(message)
    found = [one for one in listed[1].split(", ") if re.fullmatch(r"[0-9.]+(\.?post[0-9]+)?", one)]
    return sorted(found, key=Version, reverse=True)


@dataclass(frozen=True, slots=True)
class Ground:
    """One base as a grammar sees it: names alone, in a fixed order."""

    base: str
    python: str
    """"3.11"."""
    companions: Mapping[str, str]
    """Distributions that are neither TensorFlow nor NVIDIA's: normalised name → version."""
    nvidia: Mapping[str, str]
    """NVIDIA's: normalised name → version."""
    libraries: Sequence[str]
    """CUDA's shared objects, relative to site-packages (or names in the toolkit's folder)."""
    native: Sequence[str]
    """TensorFlow's shared objects that lie at its top, relative to site-packages."""
    extensions: Sequence[str]
    """Extension modules and libraries of companions, relative to site-packages."""
    modules: Sequence[str]
    """Python files of companions and of TensorFlow's first folders, relative to site-packages."""
    index: Index

    @property
    def release(self) -> tuple[int, int]:
        """(2, 20)."""
        major, minor = self.base.split(".")[:2]
        return int(major), int(minor)

    @property
    def toolkit(self) -> bool:
        """Whether its CUDA lies in a folder beside it, made of stand-ins."""
        return self.base in TOOLKITS

    def versions(self, name: str) -> list[str]:
        """What the index has for this Python; Raises Undrawn where that is nothing."""
        found = self.index.versions(name, self.python)
        if not found:
            message = f"no wheel of {name} for Python {self.python}"
            raise Undrawn(message)
        return found


def normalised(name: str) -> str:
    """As the index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def survey(base: str, root: Path, index: Index) -> Ground:
    """Look at a base that is whole."""
    site = next(iter(sorted(root.glob("lib/python*/site-packages"))))
    named = {}
    for path in sorted(site.glob("*.dist-info")):
        name, _, version = path.name.removesuffix(".dist-info").rpartition("-")
        named[normalised(name)] = version
    nvidia = {name: version for name, version in named.items() if name.startswith("nvidia-")}
    companions = {name: version for name, version in named.items() if not _NOT_COMPANIONS.match(name)}
    libraries: Sequence[str] = TOOLKITS.get(base) or _below(site, "nvidia/*/lib/lib*.so*")
    tensorflow = "tensorflow_core" if (site / "tensorflow_core" / "python").is_dir() else "tensorflow"
    native = _below(site, f"{tensorflow}/lib*.so*", f"{tensorflow}/python/*.so")
    extensions = [
        path
        for path in _below(site, "*/**/*.so", "*.libs/*.so*")
        if not path.startswith(("nvidia/", "tensorflow", "pip/", "clang/"))
    ]
    modules = [
        path
        for path in _below(site, "*.py", "*/__init__.py", "*/core/*.py", "*/_*.py", "google/protobuf/*.py")
        if not path.startswith(("nvidia/", "pip/", "_distutils_hack/", "distutils-"))
    ]
    python = site.parent.name.removeprefix("python")
    return Ground(base, python, companions, nvidia, libraries, native, extensions, modules, index)


def _below(site: Path, *patterns: str) -> list[str]:
    found = {
        path.relative_to(site).as_posix()
        for pattern in patterns
        for path in site.glob(pattern)
        if path.is_file() and not path.is_symlink() and path.stat().st_size
    }
    return sorted(found)[:_MOST_FILES]
