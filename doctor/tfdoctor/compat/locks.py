"""The exact versions and hashes that pip installs: the files of compat/locks.

There are three kinds: TensorFlow with all its requirements (`tensorflow-2.10.1-cp39.txt`), the tools that install it
(`tools-cp39.txt`), and NVIDIA's wheels (`cuda/<set>.txt`; the sets are in compat/cuda_wheels.toml). All are for
CPython on Linux x86-64 and `pip install --no-deps --require-hashes`.
"""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property, lru_cache
from pathlib import Path

from tfdoctor.compat.decode import DataError, read_table
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass
from tfdoctor.core.text import make_lazy_pattern

__all__ = [
    "Lock",
    "LockedPackage",
    "Locks",
    "Trial",
    "choose_locked_package",
    "format_lock_name",
    "format_tools_lock_name",
    "read_lock",
]

_PIN = make_lazy_pattern(
    r"([a-z0-9]+(?:-[a-z0-9]+)*)==([0-9][0-9a-z.!+]*)((?: --hash=sha256:[0-9a-f]{64})+)(  # sdist)?"
)
"""A line for a package: name, version, hashes, and `# sdist` if pip builds it from source."""
_GLIBC = make_lazy_pattern(r"# [^\n]{1,100}, Linux x86-64, glibc (2\.[0-9]{1,2})\n")


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """A package in a lock."""

    name: str
    """Normalized name, such as `"absl-py"`."""
    version: str
    hashes: tuple[str, ...]
    """The SHA-256 of each file that may be installed, sorted."""
    is_built_from_source: bool
    """Whether pip builds it from source, because there is no wheel."""


@dataclass(frozen=True, slots=True)
class Lock:
    """A file of compat/locks."""

    name: str
    """Name of the file, such as `"tensorflow-2.10.1-cp39.txt"`."""
    text: str
    """Complete text of the file, as pip reads it."""
    packages: tuple[LockedPackage, ...]
    """Sorted by name."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Version of each package by normalized name."""
        return {package.name: package.version for package in self.packages}

    @property
    def digest(self) -> str:
        """SHA-256 of the lines without comments."""
        import hashlib  # slow to import and rarely needed

        lines = [line for line in self.text.split("\n") if line and not line.startswith("#")]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @property
    def glibc(self) -> str | None:
        """Minimum glibc according to the names of the wheels, such as `"2.17"`; None if not stated.

        The names of TensorFlow 1.x wheels are wrong; compat/tensorflow.json has the real minimum.
        """
        match = _GLIBC.match(self.text)
        return None if match is None else match[1]

    @property
    def packages_built_from_source(self) -> tuple[LockedPackage, ...]:
        """Packages that are built from source."""
        return tuple(package for package in self.packages if package.is_built_from_source)


@dataclass(frozen=True, slots=True)
class Trial:
    """A test of a lock (tried.json): it was installed, and TensorFlow was imported and computed something."""

    date: str
    python: str
    """Version of Python, such as `"3.9.18"`."""
    lock: str
    """`Lock.digest` of the tested lock."""
    has_passed: bool = field(metadata={"key": "ok"})
    """Whether the test succeeded."""


@dataclass(frozen=True, slots=True)
class _TrialTable:
    as_of: str
    trial_by_lock_name: Mapping[str, Trial] = field(metadata={"key": "locks"})


def choose_locked_package(version: str) -> str:
    """Return the locked distribution with GPU code: `tensorflow-gpu` before 2.1, else `tensorflow`."""
    return "tensorflow-gpu" if versions.satisfies(version, "<2.1.dev0") else "tensorflow"


def format_lock_name(package: str, version: str, python: str) -> str:
    """Return the file name of a lock: `"tensorflow-2.10.1-cp39.txt"`. `python` may have a patch release."""
    return f"{package}-{version}-{_format_tag(python)}.txt"


def format_tools_lock_name(python: str) -> str:
    """Return the file name of the tools' lock: `"tools-cp39.txt"`."""
    return f"tools-{_format_tag(python)}.txt"


def _format_tag(python: str) -> str:
    return f"cp{versions.major_minor(python).replace('.', '')}"


class Locks:
    """The lock files of compat/locks. Methods that read a file raise DataError if it is invalid."""

    def __init__(self, folder: Path) -> None:
        """Use the locks in `folder`/locks, where `folder` is compat/."""
        self.folder = folder / "locks"

    def get_path(self, package: str, version: str, python: str) -> Path:
        """Return the path of the lock of a release, which may not exist."""
        return self.folder / format_lock_name(package, version, python)

    def get_tools_path(self, python: str) -> Path:
        """Return the path of the lock of pip, setuptools and wheel, which may not exist."""
        return self.folder / format_tools_lock_name(python)

    def get_cuda_path(self, name: str) -> Path:
        """Return the path of the lock of a set in compat/cuda_wheels.toml, which may not exist."""
        return self.folder / "cuda" / f"{name}.txt"

    def get_lock(self, package: str, version: str, python: str) -> Lock | None:
        """Return the lock of a release for a Python version; None if there is none."""
        return _load_cached(self.get_path(package, version, python))

    def get_tools_lock(self, python: str) -> Lock | None:
        """Return the lock of pip, setuptools and wheel for a Python version; None if there is none."""
        return _load_cached(self.get_tools_path(python))

    def get_cuda_lock(self, name: str) -> Lock | None:
        """Return the lock of a set of NVIDIA's wheels; None if there is none."""
        return _load_cached(self.get_cuda_path(name))

    @cached_property
    def trial_by_lock_name(self) -> Mapping[str, Trial]:
        """The last test of each lock, by file name (compat/locks/tried.json)."""
        return read_table(_TrialTable, self.folder / "tried.json", within="locks/").trial_by_lock_name


@lru_cache(maxsize=64)
def _load_cached(path: Path) -> Lock | None:
    return read_lock(path) if path.is_file() else None


def read_lock(path: Path) -> Lock:
    """Parse one lock file strictly. Raise DataError if it is invalid."""
    try:
        text = path.read_text(encoding="ascii")
    except UnicodeDecodeError as error:
        msg = f"{path.name}: not ASCII: {error}"
        raise DataError(msg) from error
    packages: list[LockedPackage] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line.startswith("#"):
            continue
        match = _PIN.fullmatch(line)
        if match is None:
            msg = f"{path.name}:{number}: not `name==version --hash=sha256:…`: {line[:80]}"
            raise DataError(msg)
        hashes = tuple(part.rpartition(":")[2] for part in match[3].split())
        packages.append(
            LockedPackage(
                name=match[1], version=match[2], hashes=hashes, is_built_from_source=match[4] is not None
            )
        )
        if list(hashes) != sorted({*hashes}) or not versions.is_version(match[2]):
            msg = f"{path.name}:{number}: hashes out of order, or no version"
            raise DataError(msg)
        if len(packages) > 1 and packages[-2].name >= packages[-1].name:
            msg = f"{path.name}:{number}: `{match[1]}` is out of order, or there twice"
            raise DataError(msg)
    if not packages:
        msg = f"{path.name}: nothing is locked"
        raise DataError(msg)
    return Lock(path.name, text, tuple(packages))
