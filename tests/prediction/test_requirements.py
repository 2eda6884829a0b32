"""The parser of Requires-Dist lines, compared with `packaging`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from tfdoctor.compat import Compat
from tfdoctor.prediction import requirements
from tfdoctor.prediction.requirements import format_requirement, is_requirement_met, parse_requirement_line

PYTHON = {
    "python_version": "3.11",
    "python_full_version": "3.11.7",
    "implementation_name": "cpython",
    "implementation_version": "3.11.7",
    "platform_python_implementation": "CPython",
    "platform_machine": "x86_64",
    "platform_system": "Linux",
    "sys_platform": "linux",
    "os_name": "posix",
    "platform_release": "",
    "platform_version": "",
    "extra": "",
}
VERSIONS = [
    "1.0",
    "1.26.4",
    "2",
    "2.0.0",
    "2.0.0rc1",
    "2.0.1.dev3",
    "2.1.post1",
    "2.0+local",
    "1!2.0",
    "2.21.0",
]
LINES = [
    "numpy",
    "numpy<2,>=1.23.5",
    "numpy (>=1.23.5,<2)",
    "numpy ( >=1.23.5 )",
    "numpy>=1.23.5 ; python_version <= '3.11'",
    'tensorboard~=2.0.0; python_version>="3.10" and sys_platform != "darwin"',
    "a~=2",
    "a~=2.0rc1",
    "a==2.*",
    "a!=2.0.*,<3",
    "a===2.0",
    "a>=2,",
    "a,",
    "a>=x",
    "a[b]>=1",
    "a @ https://example.com/a.whl",
    'b; extra == "c"',
    "b>=1; extra=='and-cuda' and platform_system == 'Linux'",
    "b; python_version < '3.8' or extra == 'c'",
    "b; (python_version < '3.8') and extra == 'c'",
    "b; '3.8' > python_version",
    "b; platform_machine == 'arm64'",
    "b; platform_machine == 'x86_64' and python_full_version >= '3.11.7'",
    "b; python_version in '3.10 3.11'",
    "b; (python_version < '3' or 'linux' in sys_platform)",
    "b; (python_version >= '3' and 'linux' in sys_platform)",
    "b; platform_python_implementation != 'PyPy'",
    "b; sys_platform == 'win32",
    "b; extra == 'c' and",
    "b; nonsense == 'c'",
    "b; sys_platform == 'linux' and  os_name == 'posix'",
    "Some_Name.x>1",
    "a<2.0.0dev",
    "a<2.0.1.dev4,>=1",
    "a>2.0rc1",
    "a==2.0rc1.*",
    "a>=2.dev",
    "a[b]>=1; extra == 'c'",
    "a; (python_version < '3.15') and extra == 'c'",
    "a; (python_version < '3.15' and sys_platform == 'linux')",
    "a; (sys_platform == 'linux' or sys_platform == 'darwin') and extra == 'c'",
    "a; (sys_platform == 'win32' or sys_platform == 'darwin') and python_version < '3.15'",
    "a (==2.0) ; platform_system == 'Linux' and (platform_machine == 'arm64' or platform_machine == 'x86_64')",
    "a; (sys_platform == 'linux' or (sys_platform == 'darwin')) and extra == 'c'",
    "a; sys_platform == 'linux' or (sys_platform == 'darwin') and extra == 'c'",
    "a; extra == 'c' and sys_platform == 'darwin' or sys_platform == 'linux'",
    "a; extra == 'c' and sys_platform == 'darwin'or sys_platform == 'linux'",
    "a; (extra == 'c' and sys_platform == 'darwin')or(sys_platform == 'linux')",
    "a; extra == 'c'or sys_platform == 'linux' and extra == 'c'",
    "a; extra == 'c' and sys_platform == '(' or sys_platform == 'linux'",
    "a; (sys_platform == 'linux') or sys_platform == ')' and extra == 'c'",
    "a; extra == 'c' and sys_platform == ')' or sys_platform == 'linux'",
    "a; sys_platform == ' or ' and extra == 'c'",
    "a @ https://example.com/;b ; sys_platform == 'linux'",
    "a @ https://example.com/a ; extra == 'c'",
    "a @ https://example.com/a; extra == 'c'",
    "a<2; extra == 'c' and (sys_platform == 'linux'",
    "-a",
    "a-",
    "",
    " a",
    "a>=1 ",
    "numpy (>=1.8)x",
    "a>=1;python_version>='3'",
]


def parse_by_packaging(line: str) -> Requirement | None:
    """Return the requirement; None if it is invalid or does not apply to PYTHON."""
    try:
        requirement = Requirement(line)
        applies = requirement.marker is None or requirement.marker.evaluate(dict(PYTHON))
    except (InvalidRequirement, UndefinedEnvironmentName):
        return None
    return requirement if applies else None


def assert_same_as_packaging(line: str) -> None:
    """Assert that this parser and `packaging` agree on a line."""
    actual, expected = parse_requirement_line(line, PYTHON), parse_by_packaging(line)
    assert (actual is None) == (expected is None), line
    if actual is None or expected is None:
        return
    assert actual.package == canonicalize_name(expected.name)
    assert format_requirement(actual) == f"{expected.name}{expected.specifier}"
    for version in VERSIONS:
        assert is_requirement_met(actual, version) == expected.specifier.contains(
            version, prereleases=True
        ), (
            line,
            version,
        )


@pytest.mark.parametrize("line", LINES)
def test_line_is_parsed_as_by_packaging(line):
    assert_same_as_packaging(line)


def test_requirements_of_every_release():
    lines = {line for release in Compat.load().releases for line in release.requirements}
    assert len(lines) > 40
    for line in lines:
        assert_same_as_packaging(line)
    assert sum(requirements._parse_plain_line(line) is None for line in lines) < len(lines) / 10


FRAGMENT = st.sampled_from(
    [*"<>=!~()[];,.' \"-_", "and", "or", "extra", "python_version", "3.8", "2.0", "a", "1", "*"]
)


@given(st.lists(FRAGMENT, max_size=12).map(lambda parts: "a" + "".join(parts)))
def test_random_text(line):
    assert_same_as_packaging(line)


@pytest.mark.parametrize("line", ["numpy<2.1.0,>=1.23.5", "tensorboard~=2.20.0", 'x; extra == "and-cuda"'])
def test_plain_requirement_needs_no_packaging(line):
    assert requirements._parse_plain_line(line) is not None


CONDITION = st.sampled_from(
    [
        "extra == 'c'",
        "sys_platform == 'linux'",
        "os_name == 'nt'",
        "python_version < '3.8'",
        "'a' == 'b'",
        "x",
    ]
)
MARKER = st.recursive(
    CONDITION,
    lambda inner: st.one_of(
        st.builds("{}{}{}".format, inner, st.sampled_from([" and ", " or ", "and ", " or"]), inner),
        st.builds("({})".format, inner),
    ),
    max_leaves=6,
)


@given(MARKER)
def test_random_marker(marker):
    assert_same_as_packaging(f"a>=1; {marker}")
