"""TensorFlow releases: by version, by specification, by Python, and the GPU code that they contain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdoctor.compat import Compat, UnknownReleaseError
from tfdoctor.core import versions

COMPAT = Compat.load()


@pytest.mark.parametrize(
    ("version", "package", "expected"),
    [
        ("1.15.0", None, "tensorflow"),
        ("1.14.0", None, "tensorflow-gpu"),
        ("2.0.4", None, "tensorflow-gpu"),
        ("2.0.4", "tensorflow", "tensorflow"),
        ("2.10.1", None, "tensorflow"),
        ("2.10.1", "tensorflow_gpu", "tensorflow-gpu"),
        ("2.22.0-rc0", "tf-nightly", "tensorflow"),
    ],
)
def test_release_by_version(version: str, package: str | None, expected: str) -> None:
    release = COMPAT.find_release(version, package)
    assert release is not None
    assert release.package == expected


@pytest.mark.parametrize(
    ("version", "package"),
    [
        ("3.0", None),
        ("banana", None),
        ("1.13.0", None),
        ("2.12.0", "tensorflow-gpu"),
        ("2.15.1", "tensorflow-cpu"),
    ],
)
def test_unknown_release(version: str, package: str | None) -> None:
    assert COMPAT.find_release(version, package) is None


@pytest.mark.parametrize(
    ("version", "package", "row", "extrapolated"),
    [
        ("99.0.0", None, COMPAT.releases[-1].version, True),
        ("2.22.0.dev20260901", "tf-nightly", "2.22.0rc0", False),
        ("2.15.2", None, "2.15.1", False),
        ("2.16.0rc0", None, "2.16.1", False),
        ("2.9.0rc2", None, "2.9.0", False),
        ("1.15.5+nv23.03", "nvidia-tensorflow", "1.15.5", False),
        ("0.12.1", None, "1.0.0", False),
        ("1.13.0", "tensorflow-gpu", "1.13.1", False),
    ],
)
def test_nearest_release(version: str, package: str | None, row: str, *, extrapolated: bool) -> None:
    nearest = COMPAT.find_nearest(version, package)
    assert nearest.release.version == row
    assert nearest.release.gpu
    assert not nearest.is_exact
    assert nearest.is_extrapolated is extrapolated
    assert version in nearest.reason


def test_nearest_of_a_known_release_is_itself() -> None:
    for release in COMPAT.releases:
        nearest = COMPAT.find_nearest(release.version, release.package)
        assert nearest.is_exact
        assert nearest.release is release


@given(st.integers(0, 4), st.integers(0, 40), st.integers(0, 9), st.sampled_from(["", "rc0", ".dev1", "+x"]))
def test_every_version_has_a_nearest_release(major: int, minor: int, patch: int, suffix: str) -> None:
    text = f"{major}.{minor}.{patch}{suffix}"
    nearest = COMPAT.find_nearest(text)
    assert nearest.is_exact == (nearest.release.version == text)
    assert nearest.is_exact or nearest.reason


def test_select_by_specification() -> None:
    assert [release.version for release in COMPAT.select("2.4", "tensorflow-gpu")] == [
        "2.4.4",
        "2.4.3",
        "2.4.2",
        "2.4.1",
        "2.4.0",
    ]
    assert [release.version for release in COMPAT.select(">=2.10,<2.12", "tensorflow")] == [
        "2.11.1",
        "2.11.0",
        "2.10.1",
        "2.10.0",
    ]
    with pytest.raises(UnknownReleaseError, match=r"there is no TensorFlow 3\.0; the nearest known: 2\."):
        COMPAT.select("3.0")
    with pytest.raises(UnknownReleaseError) as caught:
        COMPAT.select("1.13.0")
    assert "1.13.1" in caught.value.nearest
    with pytest.raises(versions.VersionSyntaxError, match="`banana` is not a version"):
        COMPAT.select("banana")


def test_releases_for_python() -> None:
    releases = COMPAT.list_releases_for_python("3.8.18")
    assert releases[0].version == "2.13.1"
    assert releases[-1].version == "2.2.0"
    assert all(release.gpu for release in releases)
    assert COMPAT.list_releases_for_python("3.10", "windows")[0].version == "2.10.1"
    assert COMPAT.list_releases_for_python("3.99") == ()
    assert {release.package for release in COMPAT.list_releases_for_python("2.7", gpu=False)} == {
        "tensorflow"
    }


@pytest.mark.parametrize(
    ("version", "capability", "expected"),
    [
        ("2.21.0", "8.6", "native"),
        ("2.21.0", "12.0", "jit"),
        ("2.20.0", "12.0", "arch-specific"),
        ("2.21.0", "5.2", "none"),
        ("2.3.4", "5.0", "none"),
        ("2.3.4", "5.3", "native"),
        ("2.3.4", "7.5", "native"),
        ("2.3.4", "8.0", "jit"),
        ("1.12.3", "6.1", "jit"),
        ("1.12.3", "3.5", "none"),
        ("2.0.4", "3.0", "none"),
    ],
)
def test_code_for_a_capability(version: str, capability: str, expected: str) -> None:
    release = COMPAT.find_release(version)
    assert release is not None
    assert COMPAT.find_code(release, capability) == expected
