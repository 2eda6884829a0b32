"""compat/source_lines.json and the script that reads it from machine code."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import pytest

from tfdoctor.compat import Compat, DataError
from tfdoctor.compat.source_lines import load_source_lines

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
try:
    import update_source_lines as script
    from update_support import by_release
    from update_support.log_lines import Logged, list_messages
finally:
    sys.path.remove(str(SCRIPTS))

COMPAT = Compat.load()
TABLE = COMPAT.source_lines
GPU_DEVICE = "tensorflow/core/common_runtime/gpu/gpu_device.cc"


# --- the table ---


def test_every_release_with_gpu_code_is_measured() -> None:
    raw = json.loads(script.TABLE.read_text(encoding="utf-8"))
    assert script.find_problems(raw) == []
    assert [*TABLE.releases] == sorted(TABLE.releases, key=script.Version)


def test_every_entry_is_readable() -> None:
    for path, entry in TABLE.files.items():
        lines = [int(field.partition(":")[0]) for field in entry.lines.split()]
        assert lines == sorted(set(lines))
        assert all(TABLE.find_releases(path, line) for line in lines)


@pytest.mark.parametrize(
    "path",
    [
        GPU_DEVICE,
        "gpu_device.cc",
        "gpu/gpu_device.cc",
        f"external/org_tensorflow/{GPU_DEVICE}",
        f"W{GPU_DEVICE}",
        r"T:\src\github\tensorflow\tensorflow\core\common_runtime\gpu\gpu_device.cc",
    ],
)
def test_every_spelling_of_a_path_is_recognized(path: str) -> None:
    assert TABLE.find_releases(path, 1663, " Cannot dlopen some GPU libraries.") == {"1.14.0", "2.0.0b1"}


def test_unknown_line_differs_from_unknown_file() -> None:
    assert TABLE.find_releases(GPU_DEVICE, 1) == frozenset()
    assert TABLE.find_releases("horovod/common/gloo/gloo_context.cc", 123) is None
    assert TABLE.find_releases("not_gpu_device.cc", 1663) is None


def write_table(tmp_path: Path, files: dict[str, object]) -> Path:
    raw = {"schema_version": 1, "as_of": "2026-11-22", "sources": ["here"], "releases": ["1.0", "1.1", "1.2"]}
    (tmp_path / "source_lines.json").write_text(json.dumps({**raw, "files": files}), encoding="utf-8")
    return tmp_path


def test_text_distinguishes_releases_with_the_same_line(tmp_path: Path) -> None:
    entry = {"lines": "5:0=0,1=1,2", "texts": ["Found device", "Ignoring"]}
    table = load_source_lines(write_table(tmp_path, {"a/b.cc": entry}))
    assert table.find_releases("b.cc", 5) == {"1.0", "1.1", "1.2"}
    assert table.find_releases("b.cc", 5, " Found device 0") == {
        "1.0",
        "1.2",
    }  # the text of release 1.2 is unknown
    assert table.find_releases("b.cc", 5, " Something else") == {"1.0", "1.1", "1.2"}


def test_release_with_the_text_on_another_line_is_excluded(tmp_path: Path) -> None:
    entry = {"lines": "5:0=0,1=1 9:0-1=2", "texts": ["Found device", "Ignoring", "Not built"]}
    table = load_source_lines(write_table(tmp_path, {"a/b.cc": entry}))
    assert table.find_releases("b.cc", 5, " Not built with kernels") == frozenset()
    assert table.find_releases("b.cc", 5, " INTERNAL: Not built") == {
        "1.0",
        "1.1",
    }  # a status message that is passed on, not a text of this line
    assert table.find_releases("b.cc", 9, " Not built with kernels") == {"1.0", "1.1"}


@pytest.mark.parametrize("lines", ["5:x", "x:1", "5:0=3", "5:0=x"])
def test_message_names_the_damaged_entry(tmp_path: Path, lines: str) -> None:
    table = load_source_lines(write_table(tmp_path, {"a/b.cc": {"lines": lines}}))
    with pytest.raises(DataError, match=r"source_lines\.json: a/b\.cc"):
        table.find_releases("b.cc", 5)


# --- the script ---


def make_elf(code: bytes, rodata: bytes) -> bytes:
    """Return a shared object for x86-64 with these two sections, at 0x1000 and 0x2000."""
    names = b"\0.text\0.rodata\0.shstrtab\0"
    body = bytes(64) + code + rodata + names
    offsets = (64, 64 + len(code), 64 + len(code) + len(rodata))
    sections = [
        (0, 0, 0, 0, 0, 0),
        (1, 1, 6, 0x1000, offsets[0], len(code)),
        (7, 1, 2, 0x2000, offsets[1], len(rodata)),
        (15, 3, 0, 0, offsets[2], len(names)),
    ]
    table = b"".join(struct.pack("<IIQQQQIIQQ", *section, 0, 0, 0, 0) for section in sections)
    header = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, len(body), 0, 64, 0, 0, 64, 4, 3)
    )
    return header + body[64:] + table


RODATA = b"8tensorflow/core/a.cc\0Found device \0"
FILE, TEXT = 0x2001, 0x2016


def encode_lea(at: int, target: int) -> bytes:
    """Encode `lea rsi, [target]` at an offset in .text."""
    return b"\x48\x8d\x35" + struct.pack("<i", target - (0x1000 + at + 7))


def make_code(*parts: bytes | int) -> bytes:
    """Return code in which a number stands for `lea rsi, [number]`."""
    code = b""
    for part in parts:
        code += encode_lea(len(code), part) if isinstance(part, int) else part
    return code + bytes(64)


LINE = b"\xba\x7f\x06\x00\x00"  # mov edx, 1663
CALL = b"\xe8\x00\x01\x00\x00"


@pytest.mark.parametrize(
    ("code", "severity"),
    [
        (make_code(FILE, b"\x31\xc9", LINE, b"\x4c\x89\xef", CALL, TEXT), "I"),
        (make_code(FILE, b"\xb9\x01\x00\x00\x00", LINE, b"\x48\x8d\x7c\x24\x20", CALL, TEXT), "W"),
        (make_code(b"\xb9\x02\x00\x00\x00", FILE, LINE, CALL, TEXT), "E"),
        (make_code(LINE, b"\x48\x89\xdf", FILE, CALL, TEXT), ""),
        (make_code(FILE, b"\x74\x05", b"\x48\x89\xcf", LINE, CALL, TEXT), ""),
    ],
)
def test_message_is_read_from_machine_code(code: bytes, severity: str) -> None:
    assert list_messages(make_elf(code, RODATA)) == [
        Logged("tensorflow/core/a.cc", 1663, severity, "Found device ")
    ]


@pytest.mark.parametrize(
    "code",
    [
        make_code(FILE, b"\xbe\x02\x00\x00\x00", CALL, LINE, CALL),  # another call stands between the two
        make_code(FILE, b"\x48\x89\xdf", CALL),
        make_code(TEXT, LINE, CALL),
        bytes(80),
    ],
)
def test_code_without_a_message(code: bytes) -> None:
    assert list_messages(make_elf(code, RODATA)) == []


def test_file_that_is_not_elf_is_rejected() -> None:
    with pytest.raises(ValueError, match="x86-64"):
        list_messages(b"MZ" + bytes(100))


def test_same_measurements_give_the_same_table() -> None:
    def make_logged(text: str, line: int = 7) -> Logged:
        return Logged(GPU_DEVICE, line, "I", text)

    measured = {
        "1.0": [
            make_logged("Found device "),
            make_logged("Adding visible", 9),
            Logged("tensorflow/lite/x.cc", 1, "I", "a"),
        ],
        "1.1": [make_logged("Found device "), make_logged("Check failed: x", 8)],
        "1.2": [make_logged("XLA service %p initialized for platform %s")],
    }
    assert script.rows(measured) == {
        GPU_DEVICE: {
            "lines": "7:0-1=2,2=0 9:0=1",
            "texts": [" initialized for platfor", "Adding visible", "Found device "],
        }
    }
    assert script.render(measured, [], "2026-11-22") == script.render(measured, [], "2026-11-22")
    assert json.loads(script.render(measured, [], "2026-11-22"))["releases"] == ["1.0", "1.1", "1.2"]


@pytest.mark.few(0)
def test_entries_that_are_not_measured_again_are_unchanged() -> None:
    raw = json.loads(script.TABLE.read_text(encoding="utf-8"))
    measured = script.load_known(raw)
    assert [*measured] == raw["releases"]
    rendered = json.loads(script.render(measured, raw["builds"], raw["as_of"]))
    assert rendered["files"][GPU_DEVICE] == raw["files"][GPU_DEVICE]
    assert {file: len(entry["lines"].split()) for file, entry in rendered["files"].items()} == {
        file: len(entry["lines"].split()) for file, entry in raw["files"].items()
    }


def test_indices_are_written_as_spans() -> None:
    assert by_release.format_spans([9, 3, 4, 5]) == "3-5,9"
    assert [*by_release.expand_spans([*"abcdefghij"], "3-5,9")] == [*"defj"]


def test_incomplete_table_is_stale() -> None:
    raw = json.loads(script.TABLE.read_text(encoding="utf-8"))
    assert any(
        "1.14.0" in line
        for line in script.find_problems({**raw, "releases": [r for r in raw["releases"] if r != "1.14.0"]})
    )
    assert any("only" in line for line in script.find_problems({**raw, "files": {}}))


def test_newest_patch_of_each_minor_comes_first() -> None:
    releases = [{"version": version} for version in ("1.0.0", "1.0.1", "1.0.2", "1.1.0")]
    assert [release["version"] for release in script.sort_patches(releases)] == [
        "1.0.2",
        "1.1.0",
        "1.0.0",
        "1.0.1",
    ]
