"""Why a Python does not start, the origins of variables, and the loader's cache, on recorded machines."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from tfdoctor.core.facts import MODULE_PATH
from tfdoctor.core.facts.loading import Origin
from tfdoctor.probes import environment, ldcache
from tfdoctor.probes import interpreter_startup as startup
from tfdoctor.probes.ldcache import parse_ldcache
from tfdoctor.system import CommandResult, Failure, RecordedSystem

PYTHON = "/env/bin/python"


def make_system(**host: Any) -> RecordedSystem:
    """Return a recorded machine with these tables of host.json."""
    return RecordedSystem({"host.json": json.dumps({"schema_version": 1, **host}).encode()})


BARE = {"stdout": startup.BARE_MARKER}
TIMEOUT = {"failure": Failure.TIMEOUT.value}
SLOW = {**TIMEOUT, "seconds": 1.0}
ANSWERED = CommandResult((), 0, stdout="rubbish")


@pytest.mark.parametrize(
    ("first", "commands", "env", "kind"),
    [
        (ANSWERED, {}, {}, "rubbish"),
        (CommandResult((), 1, stderr="e"), {}, {}, "exited"),
        (CommandResult((), -11), {}, {}, "killed"),
        (CommandResult((), 1), {"python:bare": BARE, "python:traced": {"returncode": 1}}, {}, "site"),
        (CommandResult((), 1), {"python:bare": BARE, "python:traced": {}}, {}, "exited"),
        (CommandResult((), 1), {"python:traced": {"returncode": 1}}, {}, "exited"),
        (CommandResult((), 1), {"python:without-home": BARE}, {"PYTHONHOME": "/x"}, "home"),
        (CommandResult((), 1), {"python:without-home": {"stdout": "x"}}, {"PYTHONHOME": "/x"}, "exited"),
        (CommandResult((), 1), {"python:without-home": BARE}, {}, "exited"),
        (
            CommandResult((), None, failure=Failure.TIMEOUT),
            {"python:bare": BARE, "python:traced": SLOW},
            {},
            "site",
        ),
        (
            CommandResult((), None, failure=Failure.TIMEOUT),
            {"python:bare": BARE, "python:traced": {}},
            {},
            None,
        ),
        (
            CommandResult((), None, failure=Failure.TIMEOUT),
            {"python:bare": SLOW, "python:traced": SLOW},
            {},
            "silent",
        ),
        (CommandResult((), None, failure=Failure.TIMEOUT), {"python:bare": SLOW}, {}, None),
        (CommandResult((), None, failure=Failure.PERMISSION), {}, {}, "denied"),
        (CommandResult((), None, failure=Failure.NOT_FOUND), {}, {}, "not-started"),
        (CommandResult((), None, failure=Failure.OS_ERROR), {}, {}, "not-started"),
    ],
)
def test_kind_of_a_failed_start(
    first: CommandResult, commands: dict[str, Any], env: dict[str, str], kind: str | None
) -> None:
    failure, description = startup.diagnose_startup(
        make_system(commands=commands, env=env), PYTHON, first, timeout=3
    )
    assert (failure.kind if failure else None) == kind
    assert description
    if failure is not None:
        assert failure.path == PYTHON
        assert failure.ended is (first.failure is not Failure.TIMEOUT)


@pytest.mark.parametrize(
    ("content", "failure", "detail"),
    [
        (None, Failure.NOT_FOUND, "No such file or directory"),
        ("", Failure.NOT_FOUND, "the file is empty"),
        ("#!/usr/bin/gone -x\n", Failure.NOT_FOUND, "its interpreter /usr/bin/gone is not there"),
        ("#!/usr/bin/there\n", Failure.NOT_FOUND, ""),
        ("#!relative\n", Failure.NOT_FOUND, ""),
        ("#!\n", Failure.NOT_FOUND, ""),
        ("text", Failure.OS_ERROR, "the file is no program"),
        ("\x7fELF /l/ld-gone.so.2\0", Failure.NOT_FOUND, "the dynamic loader that it names, /l/ld-gone.so.2 is not there"),
        ("\x7fELF /lib64/ld-there.so.2\0", Failure.NOT_FOUND, ""),
        ("\x7fELF", Failure.OS_ERROR, "python is a program for another processor"),
        ("#!/usr/bin/there\n", Failure.OS_ERROR, ""),
    ],
)  # fmt: skip
def test_program_that_the_kernel_does_not_start(content: str | None, failure: Failure, detail: str) -> None:
    files = {"/usr/bin/there": "", "/lib64/ld-there.so.2": ""}
    if content is not None:
        files[PYTHON] = content
    result = CommandResult((), None, failure=failure)
    assert startup._explain_not_started(make_system(files=files), PYTHON, result).detail == detail


@pytest.mark.parametrize(
    ("output", "files"),
    [
        ("", ()),
        ("Processing .pth file: '/s/a.pth'\nProcessing .pth file: '/s/b.pth'\n", ("/s/b.pth",)),
        ("# code object from '/s/sitecustomize.py'\nProcessing .pth file: '/s/b.pth'\n", ("/s/b.pth",)),
        (
            "Processing .pth file: '/s/b.pth'\n# matches /s/usercustomize/__init__.py\n",
            ("/s/usercustomize/__init__.py",),
        ),
    ],
)
def test_last_file_of_the_startup(output: str, files: tuple[str, ...]) -> None:
    assert startup._find_last_startup_file(output) == files


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (CommandResult((), 1, stdout="out", stderr=" "), "out"),
        (CommandResult((), 1, stdout="out", stderr="a\n\nb\nc\n"), "b | c"),
        (
            CommandResult(
                (), 1, stderr="No encodings\n\nCurrent thread 0x7f (most recent call first):\n  <no frame>"
            ),
            "No encodings",
        ),
        (CommandResult((), 1, stdout="x" * 17 + "\ufffd" * 3), "something that is no text"),
        (CommandResult((), 1, stdout="x" * 18 + "\ufffd" * 2), "x" * 18 + "\ufffd" * 2),
    ],
)
def test_output_of_a_failed_start(result: CommandResult, text: str) -> None:
    assert startup._get_output(result) == text


# ---------------------------------------------------------------- variables


@pytest.mark.parametrize(
    ("which", "host", "works"),
    [
        ({}, {}, False),
        ({"docker": "/usr/bin/docker"}, {}, True),
        ({"docker": "/p/shims/docker"}, {}, True),
        (
            {"docker": "/p/shims/docker"},
            {"files": {"/p/versions/3.9/bin/docker": "", "/p/version": "3.8:3.9\n"}},
            True,
        ),
        (
            {"docker": "/p/shims/docker"},
            {"files": {"/p/versions/3.9/bin/docker": "", "/p/version": "3.8\n"}},
            False,
        ),
        ({"docker": "/p/shims/docker"}, {"files": {"/p/versions/3.9/bin/docker": ""}}, False),
        (
            {"docker": "/p/shims/docker"},
            {
                "files": {
                    "/p/versions/3.9/bin/docker": "",
                    "/srv/.python-version": "3.9",
                    "/p/version": "3.8",
                },
                "cwd": "/srv/",
            },
            True,
        ),
        (
            {"docker": "/p/shims/docker"},
            {
                "files": {"/p/versions/3.9/bin/docker": "", "/p/version": "3.8"},
                "env": {"PYENV_VERSION": "3.9"},
            },
            True,
        ),
    ],
)
def test_shim_works_if_the_selected_version_has_the_program(
    which: dict[str, str], host: dict[str, Any], works: bool
) -> None:
    assert environment._is_working_program(make_system(which=which, **host), "docker") is works


@pytest.mark.parametrize(
    ("name", "value", "entries"),
    [
        ("LD_LIBRARY_PATH", "/a:/b;/a::/c", ("/a", "/b", "/c")),
        ("LD_PRELOAD", "/a /b:/c", ("/a", "/b", "/c")),
        ("PYTHONPATH", "/a:/b;c", ("/a", "/b;c")),
        ("CUDA_VISIBLE_DEVICES", "0:1", ()),
    ],
)
def test_entries_of_a_list_variable(name: str, value: str, entries: tuple[str, ...]) -> None:
    assert environment._split_entries(name, value) == entries


@pytest.mark.parametrize(
    ("name", "text", "entry", "value", "can_set"),
    [
        ("A_PATH", "export A_PATH=/x/lib:$A_PATH", "/x/lib", None, True),
        ("A_PATH", "export A_PATH=/x/lib/", "/x/lib", None, True),
        ("A_PATH", "export A_PATH=/x/library", "/x/lib", None, False),
        ("A_PATH", "export A_PATH=/other/x/lib", "/x/lib", None, False),
        ("A_PATH", "export A_PATH=$HOME/lib", "/h/lib", None, True),
        ("A_PATH", "export A_PATH=${HOME}/lib", "/h/lib", None, True),
        ("A_PATH", "export MY_A_PATH=/x/lib", "/x/lib", None, False),
        ("A_PATH", '"A_PATH": "/x/lib"', "/x/lib", None, True),
        ("A", "A=1", None, "1", True),
        ("A", "A='1'; B=2", None, "1", True),
        ("A", 'A="1"', None, "2", False),
        ("A", "A=$(date)", None, "1", True),
        ("A", "A=2", None, None, True),
        ("A", "A=", None, "", True),
        ("A", "unset A", None, "1", False),
    ],
)
def test_line_that_can_set_a_variable(
    name: str, text: str, entry: str | None, value: str | None, can_set: bool
) -> None:
    assert environment._can_set(name, text, {"HOME": "/h", "A_PATH": "/x/lib"}, entry, value) is can_set


def make_line(name: str, kind: str, text: str, line: Any = 1, **fields: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "path": f"/{kind}", "line": line, "text": text, **fields}


LINES = (
    make_line("A", "start", "A = 1", 1),
    make_line("A", "start", "os.environ['A'] = '1'", 2),
    make_line("A", "start", "os.putenv('A', '1')", 3),
    make_line("A", "activation", "A=1", 4),
    make_line("A", "activation", "A=1", "5"),
    make_line("A", "machine", "A=2", 6),
    make_line("B", "start", "B", 7),
)


@pytest.mark.parametrize(
    ("name", "kind", "value", "line"),
    [
        ("A", "start", None, 2),
        ("B", "start", None, 7),
        ("A", "activation", "1", None),
        ("A", "machine", "2", 6),
        ("A", "machine", "1", 0),
        ("C", "start", None, 0),
    ],
)
def test_line_of_an_origin(name: str, kind: str, value: str | None, line: int | None) -> None:
    origin = environment._find_origin(name, kind, LINES, {}, value=value)
    if line == 0:
        assert origin is None
    else:
        assert origin is not None
        assert (origin.by, origin.path, origin.line) == (kind, f"/{kind}", line)


def test_origin_of_each_variable() -> None:
    variables = {"A": "1", "W": "w", "S": "s", "LD_LIBRARY_PATH": "/new:/old"}
    at_start = {"A": "1", "W": "w", "LD_LIBRARY_PATH": "/new:/old"}
    before = {"A": "1", "LD_LIBRARY_PATH": "/old"}
    origins = environment._find_origins({}, variables, at_start, before, LINES)
    assert [(origin.name, origin.by, origin.entry) for origin in origins] == [
        ("A", "activation", None),
        ("W", "wrapper", None),
        ("S", "start", None),
        ("LD_LIBRARY_PATH", "wrapper", "/new"),
        ("LD_LIBRARY_PATH", "shell", "/old"),
    ]


def test_origin_of_folders_on_the_path() -> None:
    locations = [make_line(MODULE_PATH, "start", "sys.path.append('/a')", 3, entry="/a")]
    origins = list(environment._iter_path_origins(["/a", "/b", 5, "/c\x1b[1m"], locations))
    assert [(origin.entry, origin.line) for origin in origins] == [("/a", 3), ("/b", None)]
    assert list(environment._iter_path_origins("/a", locations)) == []
    assert origins[1] == Origin(MODULE_PATH, "start", "/b")


def test_lines_of_a_kernel() -> None:
    text = json.dumps({"argv": ["python"], "env": {"CUDA_VISIBLE_DEVICES": "0", "OTHER": "x"}}, indent=1)
    lines = environment._list_kernel_lines(make_system(files={"/k/kernel.json": text}), "/k/kernel.json")
    assert [(line["name"], line["line"], line["kind"]) for line in lines] == [
        ("CUDA_VISIBLE_DEVICES", 6, "kernel")
    ]
    assert environment._list_kernel_lines(make_system(), "/k/kernel.json") == []


# ---------------------------------------------------------------- the loader's cache


def make_cache(
    *entries: tuple[int, str, str, int], extension: bytes = b"", count: int | None = None
) -> bytes:
    """Return an ld.so.cache of (flags, soname, path, hwcap)."""
    size = 48 + 24 * len(entries)
    strings, packed = b"", b""
    for flags, soname, path, hwcap in entries:
        at = size + len(strings)
        strings += soname.encode() + b"\0" + path.encode() + b"\0"
        packed += struct.pack("<iIIIQ", flags, at, at + len(soname) + 1, 0, hwcap)
    offset = size + len(strings) if extension else 0
    number = len(entries) if count is None else count
    header = struct.pack("<20sIIB3xI12x", b"glibc-ld.so.cache1.1", number, len(strings), 2, offset)
    return header + packed + strings + extension


X86, ARM = ldcache.FLAGS_BY_MACHINE[62], ldcache.FLAGS_BY_MACHINE[183]
HWCAP = 1 << 62


def test_entries_of_the_machine() -> None:
    content = make_cache(
        (X86, "a", "/a", 0), (ARM, "b", "/b", 0), (X86, "c", "/c", 4), (X86, "d", "/d", HWCAP)
    )
    assert [(entry.soname, entry.hwcap) for entry in parse_ldcache(content)] == [
        ("a", None),
        ("c", "legacy"),
        ("d", "unknown"),
    ]
    assert [entry.soname for entry in parse_ldcache(content, 183)] == ["b"]
    assert [entry.soname for entry in parse_ldcache(content, 99)] == ["a", "c", "d"]
    assert parse_ldcache(b"no cache") == parse_ldcache(content[:47]) == ()
    assert len(parse_ldcache(content[:96])) == 1
    assert len(parse_ldcache(make_cache((X86, "a", "/a", 0), count=9))) == 1


def test_names_that_repeat_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    content = make_cache((X86, "a" * 20, "/" + "a" * 19, 0))
    for factor, count in ((1, 1), (0, 0)):
        monkeypatch.setattr(ldcache, "MAX_NAME_CHARS_FACTOR", factor)
        assert len(parse_ldcache(content)) == count
    monkeypatch.setattr(ldcache, "MAX_NAME_CHARS_FACTOR", 1)
    monkeypatch.setattr(ldcache, "MAX_ENTRIES", 0)
    assert parse_ldcache(content) == ()


@pytest.mark.parametrize(
    ("magic", "tag", "cut", "hwcap"),
    [
        (ldcache.EXTENSION_MAGIC, ldcache.TAG_GLIBC_HWCAPS, 0, "v3"),
        (ldcache.EXTENSION_MAGIC + 1, ldcache.TAG_GLIBC_HWCAPS, 0, "unknown"),
        (ldcache.EXTENSION_MAGIC, ldcache.TAG_GLIBC_HWCAPS + 5, 0, "unknown"),
        (ldcache.EXTENSION_MAGIC, ldcache.TAG_GLIBC_HWCAPS, 8, "unknown"),
        (ldcache.EXTENSION_MAGIC, ldcache.TAG_GLIBC_HWCAPS, 30, "unknown"),
    ],
)
def test_names_of_hardware_folders(magic: int, tag: int, cut: int, hwcap: str) -> None:
    entry = (X86, "a", "/a", HWCAP)
    at = len(make_cache(entry))
    extension = struct.pack("<IIIIII", magic, 1, tag, 0, at + 24, 4) + struct.pack("<I", at + 28) + b"v3\0\0"
    content = make_cache(entry, extension=extension)
    assert parse_ldcache(content[: len(content) - cut])[0].hwcap == hwcap
