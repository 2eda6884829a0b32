"""What pip installs, to the version and the hash: the files of compat/locks, read strictly, and asked.

Three kinds: TensorFlow with everything it requires (`tensorflow-2.10.1-cp39.txt`), the tools that install
it (`tools-cp39.txt`), and NVIDIA's wheels (`cuda/<set>.txt`; the sets are in compat/cuda_wheels.toml). All
are for CPython on Linux x86-64, and for `pip install --no-deps --require-hashes`.
"""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path

from tfdoctor import versions
from tfdoctor.compat.decode import DataError, read
from tfdoctor.records import dataclass
from tfdoctor.text import lazy_pattern

__all__ = [
    "Lock",
    "LockedPackage",
    "Locks",
    "Trial",
    "choose_locked_package",
    "lock_name",
    "read_lock",
    "tools_name",
]

_PIN = lazy_pattern(
    r"([a-z0-9]+(?:-[a-z0-9]+)*)==([0-9][0-9a-z.!+]*)((?: --hash=sha256:[0-9a-f]{64})+)(  # sdist)?"
)
_GLIBC = lazy_pattern(r"# [^\n]{1,100}, Linux x86-64, glibc (2\.[0-9]{1,2})\n")


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """One line of a lock."""

    name: str
    """Normalised: `"absl-py"`."""
    version: str
    hashes: tuple[str, ...]
    """SHA-256 of every file that may be installed, sorted."""
    built: bool
    """There is no wheel: pip builds it from source, with the tools of `tools_lock`."""


@dataclass(frozen=True, slots=True)
class Lock:
    """One file of compat/locks."""

    name: str
    """The file's name: `"tensorflow-2.10.1-cp39.txt"`."""
    text: str
    """The whole file, as pip reads it."""
    packages: tuple[LockedPackage, ...]
    """By name."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Normalised name → version."""
        return {package.name: package.version for package in self.packages}

    @property
    def digest(self) -> str:
        """SHA-256 of the lines that pip reads: comments may change."""
        import hashlib  # slow to load, and seldom asked for

        lines = [row for row in self.text.split("\n") if row and not row.startswith("#")]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @property
    def glibc(self) -> str | None:
        """The glibc that the wheels' names ask for: `"2.17"`. None: the file does not say. For TensorFlow 1.x
        the truth is in compat/tensorflow.json."""
        match = _GLIBC.match(self.text)
        return None if match is None else match[1]

    @property
    def built(self) -> tuple[LockedPackage, ...]:
        """Those that are built from source."""
        return tuple(package for package in self.packages if package.built)


@dataclass(frozen=True, slots=True)
class Trial:
    """A lock that was installed and whose TensorFlow was imported and made to compute (tried.json)."""

    date: str
    python: str
    """`"3.9.18"`."""
    lock: str
    """`Lock.digest` of what was tried."""
    ok: bool


@dataclass(frozen=True, slots=True)
class _Tried:
    as_of: str
    locks: Mapping[str, Trial]


def choose_locked_package(version: str) -> str:
    """Return the package that has GPU code and is locked: `tensorflow-gpu` below 2.1, `tensorflow` from there on."""
    return "tensorflow-gpu" if versions.satisfies(version, "<2.1.dev0") else "tensorflow"


def lock_name(package: str, version: str, python: str) -> str:
    """Return `"tensorflow-2.10.1-cp39.txt"`; `python` is `"3.9"`, or with a patch release."""
    return f"{package}-{version}-{_tag(python)}.txt"


def tools_name(python: str) -> str:
    """Return `"tools-cp39.txt"`."""
    return f"tools-{_tag(python)}.txt"


def _tag(python: str) -> str:
    return f"cp{versions.major_minor(python).replace('.', '')}"


class Locks:
    """The files of compat/locks. Every answer raises DataError where a file is not as it must be."""

    def __init__(self, folder: Path) -> None:
        """`folder`: compat/ itself."""
        self.folder = folder / "locks"

    def path(self, package: str, version: str, python: str) -> Path:
        """Return where the lock of a release would be, whether it is there or not."""
        return self.folder / lock_name(package, version, python)

    def tools_path(self, python: str) -> Path:
        """Return where the lock of pip, setuptools and wheel would be."""
        return self.folder / tools_name(python)

    def cuda_path(self, name: str) -> Path:
        """Return where the lock of a set of compat/cuda_wheels.toml would be."""
        return self.folder / "cuda" / f"{name}.txt"

    def get_lock(self, package: str, version: str, python: str) -> Lock | None:
        """Return the lock of a release for a Python, or None if there is none."""
        return _lock(self.path(package, version, python))

    def tools(self, python: str) -> Lock | None:
        """Return the lock of pip, setuptools and wheel for a Python, or None."""
        return _lock(self.tools_path(python))

    def cuda(self, name: str) -> Lock | None:
        """Return the lock of a set of NVIDIA's wheels, or None."""
        return _lock(self.cuda_path(name))

    @cached_property
    def tried(self) -> Mapping[str, Trial]:
        """compat/locks/tried.json: a lock's file name → its last trial."""
        return read(_Tried, self.folder / "tried.json", within="locks/").locks


@lru_cache(maxsize=64)
def _lock(path: Path) -> Lock | None:
    return read_lock(path) if path.is_file() else None


def read_lock(path: Path) -> Lock:
    """Return one file, read strictly. Raises DataError."""
    try:
        text = path.read_text(encoding="ascii")
    except UnicodeDecodeError as error:
        msg = f"{path.name}: not ASCII: {error}"
        raise DataError(msg) from error
    packages: list[LockedPackage] = []
    for number, row in enumerate(text.split("\n"), 1):
        if not row or row.startswith("#"):
            continue
        match = _PIN.fullmatch(row)
        if match is None:
            msg = f"{path.name}:{number}: not `name==version --hash=sha256:…`: {row[:80]}"
            raise DataError(msg)
        hashes = tuple(part.rpartition(":")[2] for part in match[3].split())
        packages.append(LockedPackage(match[1], match[2], hashes, match[4] is not None))
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
