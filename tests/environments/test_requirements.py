"""A user's requirements: the accepted lines, and a UsageError with the line number for all others."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement

from tfdoctor.core.errors import UsageError
from tfdoctor.environments.requirements import MAX_LINES, parse_packages, parse_requirements

HASH = "a" * 64
HASHED = f"--hash=sha256:{HASH}"


def get_refusal(text: str) -> UsageError:
    with pytest.raises(UsageError) as error:
        parse_requirements(text, "r.txt")
    return error.value


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", ()),
        ("\n# nothing\n   \n", ()),
        ("pandas\n", ("pandas",)),
        ("pandas", ("pandas",)),
        ("\ufeffpandas==2.0\r\nscipy<1.12\r\n", ("pandas==2.0", "scipy<1.12")),
        ("pandas # why\n", ("pandas",)),
        ("  Pillow >= 9 , < 11  \n", ("Pillow<11,>=9",)),
        ('x; python_version < "3.9"\n', ('x; python_version < "3.9"',)),
        ("x[a,b]==1\n", ("x[a,b]==1",)),
        (f"x==1 \\\n    {HASHED} \\\n    {HASHED}\n", (f"x==1 {HASHED} {HASHED}",)),
        ("x \\\n==1\n", ("x==1",)),
        ("x==1 \\", ("x==1",)),
        ("x @ https://files.example/x-1-py3-none-any.whl\n", ("x@ https://files.example/x-1-py3-none-any.whl",)),
        ("x @ git+https://code.example/x.git@v1\n", ("x@ git+https://code.example/x.git@v1",)),
    ],
    ids=range(14),
)  # fmt: skip
def test_accepted_lines(text: str, lines: tuple[str, ...]) -> None:
    parsed = parse_requirements(text, "r.txt")
    assert [line.replace(" @ ", "@ ") for line in parsed] == list(lines)


@pytest.mark.parametrize(
    ("line", "said", "hint"),
    [
        ("-r other.txt", "option of pip", "-r on the command line"),
        ("--requirement=other.txt", "option of pip", "-r on the command line"),
        ("-e .", "option of pip", "Publish"),
        ("--editable=.", "option of pip", "Publish"),
        ("-c limits.txt", "option of pip", "pins"),
        ("--index-url https://i.example/simple", "option of pip", "--index"),
        ("-i https://me:secret@i.example/simple", "option of pip", "--index"),
        ("--extra-index-url=https://i.example", "option of pip", "--index"),
        ("--find-links /wheels", "option of pip", "Remove the line"),
        ("--pre", "option of pip", "Remove the line"),
        ("--trusted-host x", "option of pip", "Remove the line"),
        ("--config-settings=x=y", "option of pip", ""),
        (".", "file of this machine", "Publish"),
        ("./x", "file of this machine", "Publish"),
        ("../x", "file of this machine", ""),
        ("/etc/passwd", "file of this machine", ""),
        ("~/x", "file of this machine", ""),
        ("x-1-py3-none-any.whl", "file of this machine", ""),
        ("x.tar.gz", "file of this machine", ""),
        ("tensorflow==2.4", "--tf", ""),
        ("TensorFlow_GPU", "--tf", ""),
        ("tf.nightly", "--tf", ""),
        ("x @ http://files.example/x.whl", "https", ""),
        ("x @ file:///x.whl", "https", ""),
        ("x @ git+ssh://git@code.example/x", "https", ""),
        ("x @ https://me:secret@files.example/x.whl", "password", ""),
        ("x @ git+https://token@code.example/x.git", "password", ""),
        ("x==", "not a requirement", "NAME"),
        ("x=1", "not a requirement", "NAME"),
        ("x; rm -rf /", "not a requirement", ""),
        ("$(id)", "not a requirement", ""),
        ("`id`", "not a requirement", ""),
        ("x --hash=sha512:abc", "not a requirement", ""),
        ("x --global-option=y", "not a requirement", ""),
        ("x\x1b[31m", "not a requirement", ""),
        ("x\x00y", "not a requirement", ""),
        ("x\u202ey", "not a requirement", ""),
        ("x" * 3000, "not a requirement", ""),
        ("x; " + "(" * 900 + "python_version<'3'" + ")" * 900, "requirement", ""),
    ],
)
def test_refused_line_is_named(line: str, said: str, hint: str) -> None:
    error = get_refusal(f"numpy\n\n{line}\npandas\n")
    assert said in error.message
    assert hint in error.hint
    assert error.message.startswith("r.txt, line 3: ")
    assert error.message.isprintable()
    assert "secret" not in error.hint


def test_continued_line_is_named_by_its_first_line() -> None:
    assert get_refusal("a\nb \\\n\\\n  ==\nc\n").message.startswith("r.txt, line 2: ")


def test_unicode_line_separators_start_a_line() -> None:
    assert parse_requirements("a\u2028b\x0cc", "r.txt") == ("a", "b", "c")
    assert get_refusal("a\u2028-e .").message.startswith("r.txt, line 2: ")


def test_too_many_lines_are_refused() -> None:
    assert len(parse_requirements("x\n" * MAX_LINES, "r.txt")) == MAX_LINES
    assert "more than" in get_refusal("x\n" * (MAX_LINES + 1)).message


@pytest.mark.parametrize(
    "text",
    [
        "x" * 10_000_000,
        "\\\n" * 5_000_000,
        " " * 10_000_000 + "#",
        "#" * 10_000_000,
        "x #" * 3_000_000,
        "x --hash=sha256:" * 600_000,
        "x==1," * 2_000_000,
        "x;" + "(" * 1_900,
        "x[" + "a," * 900,
        "x==" + "1." * 900 + "1",
        "x==" + "9" * 1_990,
    ],
    ids=range(11),
)
@pytest.mark.few(3)
def test_large_files_are_parsed_in_linear_time(text: str) -> None:
    start = time.process_time()
    with contextlib.suppress(UsageError):
        parse_requirements(text, "r.txt")
    assert time.process_time() - start < 8


def test_packages_on_the_command_line() -> None:
    assert parse_packages(["pandas", 'scipy <1.12; python_version<"3.12"', " "]) == (
        "pandas",
        'scipy<1.12; python_version < "3.12"',
    )
    with pytest.raises(UsageError) as error:
        parse_packages(["pandas", "-e ."])
    assert error.value.message.startswith("--package -e .: ")
    with pytest.raises(UsageError):
        parse_packages(["a\nb"])


PIECES = st.sampled_from(
    ["x", "numpy", "==1.0", ">=", "@", "https://h/x", "-r", "--hash=sha256:", HASH, "[", "]", ";", "(", ")", "'",
     '"', "python_version", "<", " ", "\t", "\\\n", "\n", "\r\n", "\r", "#", "\ufeff", "\x1b", "$(", "/", "~", "é"]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=30).map("".join)))
def test_any_text_gives_lines_or_a_usage_error(text: str) -> None:
    try:
        parsed = parse_requirements(text, "r.txt")
    except UsageError:
        return
    for line in parsed:
        assert line.isprintable()
        assert not line.startswith(("-", ".", "/", "~"))
        Requirement(line.split(" --hash=")[0])
    # The lines can be parsed again with the same result, for example in an image.
    assert parse_requirements("\n".join(parsed), "again") == parsed
