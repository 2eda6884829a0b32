"""compat/locks: each lock pins what TensorFlow requires and no version that breaks it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from compat.every_row import for_each
from tfdoctor.compat import Compat
from tfdoctor.compat.decode import DataError
from tfdoctor.compat.folder import data_dir
from tfdoctor.compat.locks import Lock, choose_locked_package, format_lock_name, read_lock
from tfdoctor.core import versions

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.compat.releases import Release

COMPAT = Compat.load()
LOCKS = data_dir("compat") / "locks"
RELEASES = [
    row
    for row in COMPAT.releases
    if row.gpu
    and not row.is_prerelease
    and not row.yanked
    and versions.satisfies(row.version, ">=1.4")
    and row.package == choose_locked_package(row.version)
]
PYTHONS = ("2.7", "3.5", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
NO_IMAGE = ("3.3", "3.4")

by_release = for_each(RELEASES, lambda row: f"{row.package}-{row.version}")


def read_locks(release: Release) -> dict[str, Lock]:
    """Return the lock of each Python of the release, except those that have no image."""
    locks = {}
    for python in release.linux_pythons:
        if python not in NO_IMAGE:
            lock = COMPAT.locks.get_lock(release.package, release.version, python)
            assert lock is not None, f"{release.version}, Python {python}"
            locks[python] = lock
    return locks


def marker_environment(python: str) -> dict[str, str]:
    return {
        **default_environment(),
        "python_version": python,
        "python_full_version": f"{python}.9",
        "extra": "",
    }


@by_release
def test_every_python_has_a_lock_of_the_release(release: Release) -> None:
    for python, lock in read_locks(release).items():
        assert lock.versions[release.package] == release.version
        assert f"{release.package} {release.version} for CPython {python}," in lock.text
        assert not [name for name in lock.versions if name.startswith("nvidia-") or name == "tensorrt"]
        assert 8 <= len(lock.packages) <= 70
        assert lock.glibc is not None
        assert versions.is_at_least("2.31", lock.glibc)
        if release.parsed >= versions.parse(
            "2.9"
        ):  # for older releases the wheel's name does not state glibc
            assert release.glibc is not None
            assert versions.is_at_least(lock.glibc, release.glibc)


@by_release
def test_requirements_of_tensorflow_are_pinned(release: Release) -> None:
    for python, lock in read_locks(release).items():
        for text in release.requirements:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate(marker_environment(python)):
                pinned = lock.versions[canonicalize_name(requirement.name)]
                assert requirement.specifier.contains(pinned, prereleases=True), f"{lock.name}: {text}"


@by_release
def test_no_pinned_version_breaks_the_release(release: Release) -> None:
    for lock in read_locks(release).values():
        assert not COMPAT.find_incompatible_packages(release.version, lock.versions, {}), lock.name


@by_release
def test_measured_wheel_is_pinned_for_its_python_only(release: Release) -> None:
    tag = re.search(r"-cp(\d)(\d+)-", release.wheel)
    assert tag is not None
    lock = read_locks(release)[f"{tag[1]}.{tag[2]}"]
    measured = next(package for package in lock.packages if package.name == release.package)
    assert measured.hashes == (release.sha256,)
    other_locks = [locked for python, locked in read_locks(release).items() if python != f"{tag[1]}.{tag[2]}"]
    for other in other_locks:
        assert release.sha256 not in next(p for p in other.packages if p.name == release.package).hashes


def test_folder_has_no_other_files() -> None:
    expected = {
        format_lock_name(release.package, release.version, python)
        for release in RELEASES
        for python in release.linux_pythons
        if python not in NO_IMAGE
    }
    assert len(expected) >= 320
    tools = {COMPAT.locks.get_tools_path(python).name for python in PYTHONS}
    assert {path.name for path in LOCKS.iterdir()} == expected | tools | {"cuda", "tried.json"}


def test_locks_are_small() -> None:
    assert sum(path.stat().st_size for path in LOCKS.rglob("*.*")) < 3_000_000


@pytest.mark.parametrize("python", PYTHONS)
def test_tools_have_their_own_locks(python: str) -> None:
    lock = COMPAT.locks.get_tools_lock(python)
    assert lock is not None
    assert set(lock.versions) == {"pip", "setuptools", "wheel"}
    assert not lock.packages_built_from_source
    assert versions.satisfies(lock.versions["setuptools"], "<81")


@by_release
def test_lock_with_source_builds_has_the_tools(release: Release) -> None:
    exceptions = {"setuptools": "39.1.0"} if versions.satisfies(release.version, ">=1.9,<1.12") else {}
    for python, lock in read_locks(release).items():
        tools = COMPAT.locks.get_tools_lock(python)
        assert tools is not None
        for name, version in {**tools.versions, **exceptions}.items():
            assert lock.versions.get(name, version) == version
        if lock.packages_built_from_source:
            assert {"setuptools", "wheel"} <= set(lock.versions)


# ---------------------------------------------------------------- trial installations


def test_no_trial_failed() -> None:
    tried = COMPAT.locks.trial_by_lock_name
    assert len(tried) >= 100
    assert not [name for name, trial in tried.items() if not trial.has_passed]


def test_trials_used_the_current_locks() -> None:
    for name, trial in COMPAT.locks.trial_by_lock_name.items():
        lock = read_lock(LOCKS / name)
        assert trial.lock == lock.digest, f"{name} changed: scripts/update_locks.py --try"
        assert name.endswith(f"-cp{versions.major_minor(trial.python).replace('.', '')}.txt")


def test_last_patch_of_every_minor_was_tried() -> None:
    last_releases = {release.minor: release for release in RELEASES}
    expected = {lock.name for release in last_releases.values() for lock in read_locks(release).values()}
    untried = {lock for lock in expected - set(COMPAT.locks.trial_by_lock_name) if "-cp35." not in lock}
    assert not untried, "scripts/update_locks.py --try --last --missing"
    assert len(expected) > 100


# ---------------------------------------------------------------- queries and strict reading


def test_queries() -> None:
    assert choose_locked_package("2.0.4") == "tensorflow-gpu"
    assert choose_locked_package("2.1.0") == "tensorflow"
    assert COMPAT.locks.get_path("tensorflow", "2.10.1", "3.9.18").name == "tensorflow-2.10.1-cp39.txt"
    assert COMPAT.locks.get_lock("tensorflow", "2.10.1", "3.11") is None
    assert COMPAT.locks.get_cuda_lock("no-such-set") is None
    lock = COMPAT.locks.get_lock("tensorflow", "2.6.5", "3.9.18")
    assert lock is not None
    assert {package.name for package in lock.packages_built_from_source} == {"clang", "termcolor", "wrapt"}


GOOD = f"absl-py==1.0 --hash=sha256:{'a' * 64}\nsix==1.2 --hash=sha256:{'b' * 64}  # sdist\n"


def test_valid_lock_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text(f"# comment\n{GOOD}", encoding="ascii")
    lock = read_lock(path)
    assert [(p.name, p.version, p.is_built_from_source) for p in lock.packages] == [
        ("absl-py", "1.0", False),
        ("six", "1.2", True),
    ]
    assert lock.glibc is None
    other = tmp_path / "y.txt"
    other.write_text(f"# another comment\n{GOOD}", encoding="ascii")
    assert read_lock(other).digest == lock.digest
    third = tmp_path / "z.txt"
    third.write_text(GOOD.replace("1.2", "1.3"), encoding="ascii")
    assert read_lock(third).digest != lock.digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nothing is locked"),
        ("six>=1.2\n", "x.txt:1: not `name==version"),
        ("six==1.2\n", "x.txt:1: not `name==version"),
        (f"six==1.2 --hash=md5:{'a' * 64}\n", "x.txt:1"),
        (f"six==1.2 --hash=sha256:{'a' * 63}\n", "x.txt:1"),
        (f"Six==1.2 --hash=sha256:{'a' * 64}\n", "x.txt:1"),
        (f"six==1..2 --hash=sha256:{'a' * 64}\n", "no version"),
        (f"six==1.2 --hash=sha256:{'b' * 64} --hash=sha256:{'a' * 64}\n", "out of order"),
        ("\n".join(reversed(GOOD.strip().split("\n"))), "x.txt:2: `absl-py` is out of order"),
        (f"--index-url https://example.org\n{GOOD}", "x.txt:1"),
        (f"six @ https://example.org/six.whl --hash=sha256:{'a' * 64}\n", "x.txt:1"),
    ],
)
def test_invalid_lock_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.txt"
    path.write_text(text, encoding="ascii")
    with pytest.raises(DataError, match=re.escape(message)):
        read_lock(path)


def test_lock_that_is_not_ascii_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text(f"# é\n{GOOD}", encoding="utf-8")
    with pytest.raises(DataError, match="not ASCII"):
        read_lock(path)
