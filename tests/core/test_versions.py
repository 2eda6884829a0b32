"""The comparisons and parsers of tfdoctor.core.versions."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import InvalidSpecifier, SpecifierSet
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
        ("2.4", ["2.4.4", "2.4.0"]),
        ("1.14", ["1.14.0"]),
        ("1", ["1.15.5", "1.14.0"]),
        ("2", ["2.15.0.post1", "2.15.0", "2.12.1", "2.11.0", "2.10.1", "2.4.4", "2.4.0"]),
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


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (versions.parse_numbers, (" 8.6.0.163-1+cuda11.8",), (8, 6, 0, 163)),
        (versions.parse_numbers, ("0.0",), (0,)),
        (versions.parse_numbers, ("1.0.0",), (1,)),
        (versions.is_at_least, ("12.5", "12.5.0"), True),
        (versions.is_at_least, ("12.4.9", "12.5"), False),
        (versions.is_driver_at_least, ("450", "450.80.02"), True),
        (versions.is_driver_at_least, ("450.51", "450.80.02"), False),
        (versions.is_driver_at_least, ("440", "450.80.02"), False),
        (versions.is_minor_in_range, ((2, 16), None, None), True),
        (versions.is_minor_in_range, ((2, 16), "2.16", "2.16"), True),
        (versions.is_minor_in_range, ((2, 16), "2.17", None), False),
        (versions.is_minor_in_range, ((2, 16), None, "2.15"), False),
        (versions.is_minor_in_range, ((2, 16, 1), "2.16", "2.16"), True),
        (versions.is_minor_in_range, ((2,), "2", "2"), True),
        (versions.is_minor_in_range, ((), "0", None), False),
        (versions.is_minor_in_range, ((), None, "2.1"), True),
        (versions.major, ("12.5.1",), 12),
        (versions.major_minor, ("12",), "12.0"),
        (versions.has_prefix, ("2.4.1", "2.4"), True),
        (versions.has_prefix, ("2.40", "2.4"), False),
        (versions.has_prefix, ("2", "2.0"), True),
        (versions.has_prefix, ("2", "2.0.1"), False),
        (versions.can_run_cubin, ((8, 6), (8, 0)), True),
        (versions.can_run_cubin, ((8, 6), (8, 6)), True),
        (versions.can_run_cubin, ((8, 0), (8, 6)), False),
        (versions.can_run_cubin, ((9, 0), (8, 0)), False),
        (versions.cuda_from_int, (1000,), "1.0"),
        (versions.cuda_from_int, (12099,), "12.9"),
        (versions.is_major_or_minor, (" 2.17 ",), True),
        (versions.is_major_or_minor, ("2.17.0",), False),
        (versions.is_version, ("v2.17.0",), True),
        (versions.is_version, ("1" * 400,), True),
        (versions.is_version, ("1" * 401,), False),
        (versions.parse_project_name, ("A" * 200,), "a" * 200),
    ],
)
def test_version_function(function: Any, arguments: tuple[Any, ...], expected: Any) -> None:
    assert function(*arguments) == expected


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (versions.parse_numbers, "x1"),
        (versions.parse_numbers, "1" * 401),
        (versions.parse_capability, "1" * 401),
        (versions.parse_python_tag, "py310"),
        (versions.parse_python_tag, "cp3"),
        (versions.VersionSpec, "1" * 401),
        (lambda text: versions.satisfies("2.0", text), ">=1," * 101),
        (lambda text: versions.satisfies("2.0", text), "banana"),
        (lambda text: versions.has_prefix("2.0", text), "2.x"),
        (lambda text: versions.has_prefix("2.0", text), "2" * 401),
    ],
)
def test_invalid_text_is_refused(function: Any, text: str) -> None:
    with pytest.raises(versions.VersionSyntaxError):
        function(text)


def test_other_text_is_sorted_first() -> None:
    assert sorted(["1.0", "text", "0.1"], key=versions.make_sort_key) == ["text", "0.1", "1.0"]


@pytest.mark.parametrize(
    "clause", ["===2.0", ">2.0rc1", "~=2", "==2.0rc1.*", "<2.0.*", ">=2.0+local", ">=2.0rc1"]
)
@pytest.mark.parametrize(
    "version", ["2.0", "2.0rc1", "2.0rc2", "2.1", "2.0.post1", "1!2.0", "2.0+local", "1.9"]
)
def test_unusual_condition_is_evaluated_as_by_packaging(clause: str, version: str) -> None:
    try:
        expected = SpecifierSet(clause).contains(version, prereleases=True)
    except InvalidSpecifier:
        with pytest.raises(versions.VersionSyntaxError):
            versions.satisfies(version, clause)
    else:
        assert versions.satisfies(version, clause) is expected


def test_plain_conditions() -> None:
    for clause in ("==2.4.*", ">=2,<3", "~=2.4.1", "!=2.0", "<2.21", ">2"):
        assert versions.is_plain_specification(clause), clause
    for clause in ("===2.0", ">2.0rc1", "~=2", "<2.0.*", ""):
        assert not versions.is_plain_specification(clause), clause


@pytest.mark.parametrize(("python", "full"), [("3.11", "3.11.99"), ("3.11.7", "3.11.7")])
def test_marker_environment(python: str, full: str) -> None:
    environment = versions.make_marker_environment(python)
    names = ("python_version", "python_full_version", "implementation_version", "extra", "sys_platform")
    assert [environment[name] for name in names] == ["3.11", full, full, "", "linux"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("LATEST", ["2.15.0.post1"]),
        (" 2.4 ", ["2.4.4", "2.4.0"]),
        ("2.4.4", ["2.4.4"]),
        ("2.4.9", []),
        (">2.15.0", ["2.22.0rc0"]),
    ],
)
def test_spelling_of_a_specification(spec: str, expected: list[str]) -> None:
    assert versions.VersionSpec(spec).select([*KNOWN, *KNOWN]) == expected
    assert repr(versions.VersionSpec(spec)) == f"VersionSpec({spec.strip()!r})"
