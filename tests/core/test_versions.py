"""The comparisons and parsers of tfdoctor.core.versions."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tfdoctor.core import versions


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("535.104.05", "535.86.10", 1),
        ("535.104.05", "535.104.5", 0),
        ("12.5", "12.5.0", 0),
        ("2.4", "2.17", -1),
        ("450.80.02", "450.51.06", 1),
        ("12.10", "12.9.1", 1),
    ],
)
def test_dotted_versions_compare_as_numbers(left: str, right: str, expected: int) -> None:
    assert versions.compare(left, right) == expected
    assert versions.compare(right, left) == -expected


@given(
    st.lists(st.integers(0, 999), min_size=1, max_size=4),
    st.lists(st.integers(0, 999), min_size=1, max_size=4),
)
def test_compare_agrees_with_packaging(left: list[int], right: list[int]) -> None:
    a, b = ".".join(map(str, left)), ".".join(map(str, right))
    expected = (Version(a) > Version(b)) - (Version(a) < Version(b))
    assert versions.compare(a, b) == expected


@pytest.mark.parametrize(
    ("value", "text"), [(12080, "12.8"), (11020, "11.2"), (10010, "10.1"), (13000, "13.0")]
)
def test_cuda_integer_is_formatted(value: int, text: str) -> None:
    assert versions.cuda_from_int(value) == text


@pytest.mark.parametrize("value", [0, 12, 999, -1])
def test_invalid_cuda_integer_is_refused(value: int) -> None:
    with pytest.raises(versions.VersionSyntaxError):
        versions.cuda_from_int(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8.6", (8, 6)),
        ("86", (8, 6)),
        ("sm_86", (8, 6)),
        ("compute_90a", (9, 0)),
        ("120", (12, 0)),
        ("sm_103", (10, 3)),
        ("7", (7, 0)),
        ("12.1", (12, 1)),
    ],
)
def test_compute_capability_is_parsed(text: str, expected: tuple[int, int]) -> None:
    assert versions.parse_capability(text) == expected


@pytest.mark.parametrize("text", ["", "x", "8.", "sm_", "8.6.1", "-8.6"])
def test_invalid_compute_capability_is_refused(text: str) -> None:
    with pytest.raises(versions.VersionSyntaxError, match="compute capability"):
        versions.parse_capability(text)


@given(st.integers(1, 30), st.integers(0, 9))
def test_compute_capability_round_trip(major: int, minor: int) -> None:
    text = versions.format_capability((major, minor))
    assert versions.parse_capability(text) == (major, minor)
    assert versions.parse_capability(f"sm_{major}{minor}") == (major, minor)


def test_python_tags_round_trip() -> None:
    for tag in ("cp27", "cp39", "cp310", "cp314"):
        assert versions.format_python_tag(versions.parse_python_tag(tag)) == tag
    assert versions.format_python_tag("3.10.13") == "cp310"


KNOWN = [
    "1.14.0",
    "1.15.5",
    "2.4.0",
    "2.4.4",
    "2.10.1",
    "2.11.0",
    "2.12.1",
    "2.15.0",
    "2.15.0.post1",
    "2.22.0rc0",
]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("2.4", ["2.4.4"]),
        ("1.14", ["1.14.0"]),
        ("1", ["1.15.5"]),
        ("2", ["2.15.0.post1"]),
        ("2.22", ["2.22.0rc0"]),
        ("2.15.0", ["2.15.0"]),
        (">=2.10,<2.13", ["2.12.1", "2.11.0", "2.10.1"]),
        ("==2.4.*", ["2.4.4", "2.4.0"]),
        ("~=2.4.1", ["2.4.4"]),
        ("latest", ["2.15.0.post1"]),
        (">=2.22.0rc0", ["2.22.0rc0"]),
        ("3.0", []),
        ("2.40", []),
    ],
)
def test_specification_selects_releases(spec: str, expected: list[str]) -> None:
    assert versions.VersionSpec(spec).select(KNOWN) == expected
    assert versions.VersionSpec(spec).select_newest(KNOWN) == (expected[0] if expected else None)


@pytest.mark.parametrize("text", ["banana", "", ">=", "2.x", "==two", ">=2.10 <2.13,"])
def test_invalid_specification_is_refused(text: str) -> None:
    with pytest.raises(versions.VersionSyntaxError):
        versions.VersionSpec(text)


_NUMBER = st.builds(
    "{}.{}.{}{}".format,
    st.integers(1, 2),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from(["", "", "", "rc1", ".dev3", ".post1", "+nv1"]),
)
_CLAUSE = st.one_of(
    st.builds(
        "{}{}.{}".format,
        st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
        st.integers(1, 2),
        st.integers(0, 3),
    ),
    st.builds(
        "{}{}.{}.{}".format,
        st.sampled_from(["<", "<=", ">", ">=", "=="]),
        st.integers(1, 2),
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    st.builds("{}{}.{}.*".format, st.sampled_from(["==", "!="]), st.integers(1, 2), st.integers(0, 3)),
    st.builds("<={}.{}.0rc1".format, st.integers(1, 2), st.integers(0, 3)),
    st.builds(">={}.{}.dev0".format, st.integers(1, 2), st.integers(0, 3)),
    st.builds("~={}.{}.1".format, st.integers(1, 2), st.integers(0, 3)),
)


@given(_NUMBER, st.lists(_CLAUSE, min_size=1, max_size=3))
def test_satisfies_agrees_with_packaging(version: str, clauses: list[str]) -> None:
    text = ",".join(clauses)
    assert versions.satisfies(version, text) is SpecifierSet(text).contains(version, prereleases=True)


@given(st.text())
def test_only_version_syntax_errors_are_raised(text: str) -> None:
    for read in (versions.parse, versions.parse_numbers, versions.parse_capability, versions.VersionSpec):
        with contextlib.suppress(versions.VersionSyntaxError):
            read(text)
    versions.make_sort_key(text)
    assert versions.is_version(text) in {True, False}


@pytest.mark.parametrize(
    ("text", "project", "limit"),
    [
        ("nvidia_cudnn.cu12<10.0,>=9.3", "nvidia-cudnn-cu12", "10.0"),
        ("numpy (>=1.20,<2) ; python_version < '3.12'", "numpy", "2"),
        ("tensorflow[and-cuda]==2.21.0", "tensorflow", None),
        ("numpy<2,<1.24", "numpy", "1.24"),
        ("h5py", "h5py", None),
        ("numpy (>=1.8)x", "numpy", None),
        ("", "", None),
    ],
)
def test_requirement_is_split(text: str, project: str, limit: str | None) -> None:
    assert versions.parse_project_name(text) == project
    assert versions.find_upper_limit(text) == limit
