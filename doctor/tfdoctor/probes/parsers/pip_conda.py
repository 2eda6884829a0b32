"""Parse ``pip freeze``, ``pip list``, ``conda list`` and ``conda list --export``."""

from __future__ import annotations

import re
from collections import Counter

from tfdoctor.core.records import dataclass
from tfdoctor.probes.parsers._text import Parsed, clean_lines, is_fence

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_FREEZE_LINE = re.compile(
    rf"({_NAME})(?:\[[^\]\s]{{0,200}}\])?[ \t]*===?[ \t]*([^\s=;,#\\]+)[ \t]*(?:[;#\\].*)?"
)
_FREEZE_URL_LINE = re.compile(rf"({_NAME})(?:\[[^\]\s]{{0,200}}\])? @ (\S+).*")
_CONDA_EXPORT_LINE = re.compile(rf"(?:- )?({_NAME})=([^\s=]+)(?:=([^\s=]+))?")
_LEGACY_PIP_LIST_LINE = re.compile(rf"({_NAME}) \(([^\s(),]+)(?:, [^()]*)?\)")
_VERSION = re.compile(r"[0-9A-Za-z][^\s=,;()]*")
_HAS_DIGIT = re.compile(r"[0-9]")
_COLUMN_LAYOUTS = ("pip_list", "word", "build")
_WHOLE_NAME = re.compile(_NAME)
# Beginnings of relevant names: TensorFlow, CUDA libraries, and packages that compete for the GPU.
_RELEVANT_NAME = re.compile(
    r"(?:tensorflow|tensorboard|tf[-_]|tf-nightly|_tflow|intel[-_]tensorflow|keras|torch|pytorch|jax|nvidia|cuda|cudnn"
    r"|cupy|nccl)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Package(Parsed):
    """A package. ``version`` is None if it was installed from a URL or folder."""

    name: str
    version: str | None


@dataclass(frozen=True, slots=True)
class PackageListing(Parsed):
    """The parsed listing.

    ``format`` is ``freeze``, ``pip_list``, ``conda_list`` or ``conda_export``, or None if there are no packages.
    ``packages`` are all packages, and ``relevant`` those that matter for TensorFlow and GPUs.
    """

    format: str | None
    n_packages: int
    relevant: tuple[Package, ...]
    packages: tuple[Package, ...] = ()
    notes: tuple[str, ...] = ()


def parse_pip_conda(text: str) -> PackageListing:
    """Parse a package listing in the format of most of its lines. Other lines are ignored."""
    lines = [line for line in clean_lines(text) if line.strip() and not is_fence(line)]
    entries = [entry for line in lines if (entry := _parse_row(line)) is not None]
    counts = Counter(layout for layout, _ in entries)
    if counts["build"] or any(map(_is_conda_header, lines)):
        # In a conda listing the third word is a build, and a line without a build is a pip package.
        entries = [
            ("conda_list" if layout in _COLUMN_LAYOUTS else layout, package) for layout, package in entries
        ]
    else:
        entries = [(layout, package) for layout, package in entries if layout != "word"]
    counts = Counter(layout for layout, _ in entries)
    if not counts:
        return PackageListing(format=None, n_packages=0, relevant=(), notes=("no package lines",))
    layout = max(counts, key=counts.__getitem__)
    packages = tuple(package for entry_layout, package in entries if entry_layout == layout)
    return PackageListing(
        format=layout,
        n_packages=len(packages),
        relevant=tuple(package for package in packages if _RELEVANT_NAME.match(package.name)),
        packages=packages,
    )


def _parse_row(line: str) -> tuple[str, Package] | None:
    """Return the layout and the package of a line, or None if it is not a package line."""
    stripped_line = line.strip(" \t`>│|")
    if match := _FREEZE_LINE.fullmatch(stripped_line):
        return "freeze", Package(match[1], match[2])
    if match := _FREEZE_URL_LINE.fullmatch(stripped_line):
        return "freeze", Package(match[1], None)
    if match := _CONDA_EXPORT_LINE.fullmatch(stripped_line):
        return "conda_export", Package(match[1], match[2])
    if match := _LEGACY_PIP_LIST_LINE.fullmatch(stripped_line):
        return "pip_list", Package(match[1], match[2])
    return _parse_columns(stripped_line)


def _parse_columns(stripped_line: str) -> tuple[str, Package] | None:
    """Return the layout and the package of a line in columns, or None if it is not a package line.

    The layout is "pip_list" for ``name version [location]``. For ``name version build [channel]`` it is "build", or
    "word" if the build has no digit and may be an ordinary word.
    """
    tokens = stripped_line.split(None, 4)
    if not 2 <= len(tokens) <= 4:
        return None
    name, version, *others = tokens
    if not _WHOLE_NAME.fullmatch(name) or not _VERSION.fullmatch(version) or not _HAS_DIGIT.search(version):
        return None
    package = Package(name, version)
    third_word = others[0] if others else ""
    if not others or third_word.startswith(("/", "~")) or ":\\" in third_word:  # the location of the package
        return "pip_list", package
    # old conda releases print "<pip>" as the build of a pip package
    return "build" if _HAS_DIGIT.search(third_word) or third_word.startswith("<pip") else "word", package


def _is_conda_header(line: str) -> bool:
    return line.startswith("# packages in environment") or line.split()[-2:] == ["Build", "Channel"]
