"""compat/locks: each lock pins what TensorFlow requires, and nothing that breaks it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tfdoctor import versions
from tfdoctor.compat import Compat
from tfdoctor.compat.decode import DataError
from tfdoctor.compat.folder import data_dir
from tfdoctor.compat.locks import Lock, choose_locked_package, lock_name, read_lock

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.compat.models import Release

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

by_release = pytest.mark.parametrize("release", RELEASES, ids=lambda row: f"{row.package}-{row.version}")


def locks_of(release: Release) -> dict[str, Lock]:
    found = {}
    for python in release.linux_pythons:
        if python not in NO_IMAGE:
            made = COMPAT.locks.get_lock(release.package, release.version, python)
            assert made is not None, f"{release.version}, Python {python}"
            found[python] = made
    return found


def environment(python: str) -> dict[str, str]:
    return {
        **default_environment(),
        "python_version": python,
        "python_full_version": f"{python}.9",
        "extra": "",
    }


@by_release
def test_every_python_has_a_lock_of_this_very_release(release: Release) -> None:
    for python, made in locks_of(release).items():
        assert made.versions[release.package] == release.version
        assert f"{release.package} {release.version} for CPython {python}," in made.text
        assert not [name for name in made.versions if name.startswith("nvidia-") or name == "tensorrt"]
        assert 8 <= len(made.packages) <= 70
        assert made.glibc is not None
        assert versions.is_at_least("2.31", made.glibc)
        if release.parsed >= versions.parse("2.9"):  # before, the wheel's name says too little
            assert release.glibc is not None
            assert versions.is_at_least(made.glibc, release.glibc)


@by_release
def test_what_tensorflow_requires_is_pinned_in_a_version_that_it_allows(release: Release) -> None:
    for python, made in locks_of(release).items():
        for text in release.requires:
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate(environment(python)):
                have = made.versions[canonicalize_name(wanted.name)]
                assert wanted.specifier.contains(have, prereleases=True), f"{made.name}: {text}"


@by_release
def test_nothing_that_breaks_it_stands_beside_it(release: Release) -> None:
    for made in locks_of(release).values():
        assert not COMPAT.find_breaking(release.version, made.versions, {}), made.name


@by_release
def test_the_hash_of_the_measured_wheel_is_among_those_of_its_python(release: Release) -> None:
    tag = re.search(r"-cp(\d)(\d+)-", release.wheel)
    assert tag is not None
    made = locks_of(release)[f"{tag[1]}.{tag[2]}"]
    own = next(package for package in made.packages if package.name == release.package)
    assert own.hashes == (release.sha256,)
    others = [pinned for python, pinned in locks_of(release).items() if python != f"{tag[1]}.{tag[2]}"]
    for other in others:
        assert release.sha256 not in next(p for p in other.packages if p.name == release.package).hashes


def test_nothing_else_lies_there() -> None:
    wanted = {
        lock_name(release.package, release.version, python)
        for release in RELEASES
        for python in release.linux_pythons
        if python not in NO_IMAGE
    }
    assert len(wanted) >= 320
    tools = {COMPAT.locks.tools_path(python).name for python in PYTHONS}
    assert {path.name for path in LOCKS.iterdir()} == wanted | tools | {"cuda", "tried.json"}


def test_all_of_it_is_small() -> None:
    assert sum(path.stat().st_size for path in LOCKS.rglob("*.*")) < 3_000_000


@pytest.mark.parametrize("python", PYTHONS)
def test_tools_are_wheels_of_their_own(python: str) -> None:
    made = COMPAT.locks.tools(python)
    assert made is not None
    assert set(made.versions) == {"pip", "setuptools", "wheel"}
    assert not made.built
    assert versions.satisfies(made.versions["setuptools"], "<81")


@by_release
def test_a_lock_that_builds_has_the_tools_of_its_python(release: Release) -> None:
    limited = {"setuptools": "39.1.0"} if versions.satisfies(release.version, ">=1.9,<1.12") else {}
    for python, made in locks_of(release).items():
        tools = COMPAT.locks.tools(python)
        assert tools is not None
        for name, version in {**tools.versions, **limited}.items():
            assert made.versions.get(name, version) == version
        if made.built:
            assert {"setuptools", "wheel"} <= set(made.versions)


# ---------------------------------------------------------------- tried


def test_no_lock_failed_when_it_was_tried() -> None:
    tried = COMPAT.locks.tried
    assert len(tried) >= 100
    assert not [name for name, trial in tried.items() if not trial.ok]


def test_what_was_tried_is_what_is_there() -> None:
    for name, trial in COMPAT.locks.tried.items():
        made = read_lock(LOCKS / name)
        assert trial.lock == made.digest, f"{name} changed: scripts/update_locks.py --try"
        assert name.endswith(f"-cp{versions.major_minor(trial.python).replace('.', '')}.txt")


def test_the_last_patch_of_every_minor_was_tried_on_every_python() -> None:
    last = {release.minor: release for release in RELEASES}
    wanted = {name.name for release in last.values() for name in locks_of(release).values()}
    untried = {name for name in wanted - set(COMPAT.locks.tried) if "-cp35." not in name}
    assert not untried, "scripts/update_locks.py --try --last --missing"
    assert len(wanted) > 100


# ---------------------------------------------------------------- asking and strictness


def test_asking() -> None:
    assert choose_locked_package("2.0.4") == "tensorflow-gpu"
    assert choose_locked_package("2.1.0") == "tensorflow"
    assert COMPAT.locks.path("tensorflow", "2.10.1", "3.9.18").name == "tensorflow-2.10.1-cp39.txt"
    assert COMPAT.locks.get_lock("tensorflow", "2.10.1", "3.11") is None
    assert COMPAT.locks.cuda("no-such-set") is None
    found = COMPAT.locks.get_lock("tensorflow", "2.6.5", "3.9.18")
    assert found is not None
    assert {package.name for package in found.built} == {"clang", "termcolor", "wrapt"}


GOOD = f"absl-py==1.0 --hash=sha256:{'a' * 64}\nsix==1.2 --hash=sha256:{'b' * 64}  # sdist\n"


def test_a_good_lock(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text(f"# comment\n{GOOD}", encoding="ascii")
    made = read_lock(path)
    assert [(p.name, p.version, p.built) for p in made.packages] == [
        ("absl-py", "1.0", False),
        ("six", "1.2", True),
    ]
    assert made.glibc is None
    other = tmp_path / "y.txt"
    other.write_text(f"# another comment\n{GOOD}", encoding="ascii")
    assert read_lock(other).digest == made.digest
    third = tmp_path / "z.txt"
    third.write_text(GOOD.replace("1.2", "1.3"), encoding="ascii")
    assert read_lock(third).digest != made.digest


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
def test_a_wrong_lock_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.txt"
    path.write_text(text, encoding="ascii")
    with pytest.raises(DataError, match=re.escape(message)):
        read_lock(path)


def test_a_lock_is_ascii(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text(f"# é\n{GOOD}", encoding="utf-8")
    with pytest.raises(DataError, match="not ASCII"):
        read_lock(path)
