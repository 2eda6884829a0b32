"""The measuring script: remote zip files, fat binaries, rows; without the network."""

from __future__ import annotations

import io
import struct
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdoctor.payload import fatbins

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
try:
    import update_tensorflow as script
    from update_support import remote_zip, shared_objects, wheel_facts
finally:
    sys.path.remove(str(SCRIPTS))


# --- zip files behind HTTP ---


class LocalWeb(remote_zip.Web):
    """The same interface over bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.requests = 0
        self.bytes = 0

    def read(self, _url: str, start: int, length: int) -> bytes:
        self.requests += 1
        return self.data[start : start + length]

    def tail(self, _url: str, length: int) -> tuple[bytes, int]:
        self.requests += 1
        return self.data[-length:], len(self.data)

    def stream(self, _url: str, start: int, length: int) -> Iterator[bytes]:
        self.requests += 1
        self.bytes += length
        for at in range(start, start + length, 1000):
            yield self.data[at : min(at + 1000, start + length)]


def archive(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as zipped:
        for name, data in files.items():
            zipped.writestr(name, data)
    return out.getvalue()


FILES = {
    "tensorflow/big.so": bytes(range(256)) * 4000,
    "tensorflow/empty.so": b"",
    "tensorflow/include/third_party/gpus/cuda/cuda_config.h": b'#define TF_CUDA_VERSION "12.3"\n',
    "tensorflow/python/platform/build_info.py": b"build_info = {}",
    "tensorflow-1.dist-info/METADATA": b"Name: tensorflow\n",
}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_come_out_as_they_went_in(method: int) -> None:
    web = LocalWeb(archive(FILES, method))
    members, total = remote_zip.central_directory(web, "u")
    assert [member.name for member in members] == [*FILES]
    got: dict[str, bytes] = {}
    for gap in (0, 1 << 30):
        got.clear()
        for run in remote_zip.spans(members, gap):
            remote_zip.extract(
                web, "u", run, total, lambda member, pieces: got.update({member.name: b"".join(pieces)})
            )
        assert got == FILES


def test_only_what_is_wanted_is_asked_for() -> None:
    web = LocalWeb(archive(FILES, zipfile.ZIP_STORED))
    members, total = remote_zip.central_directory(web, "u")
    wanted = [member for member in members if wheel_facts.SMALL.search(member.name)]
    assert len(wanted) == 3
    runs = [*remote_zip.spans(wanted, 1 << 16)]
    assert len(runs) == 1
    remote_zip.extract(web, "u", runs[0], total, lambda _, pieces: [*pieces])
    assert web.requests == 2
    assert web.bytes < 10_000


def test_a_damaged_member_is_noticed() -> None:
    data = bytearray(archive(FILES, zipfile.ZIP_STORED))
    data[5000] ^= 1
    web = LocalWeb(bytes(data))
    members, total = remote_zip.central_directory(web, "u")
    with pytest.raises(ValueError, match=r"big\.so: wrong CRC-32"):
        remote_zip.extract(web, "u", members[:1], total, lambda _, pieces: [*pieces])


def test_not_a_zip_file() -> None:
    with pytest.raises(ValueError, match="end-of-central-directory"):
        remote_zip.central_directory(LocalWeb(b"x" * 1000), "u")


# --- fat binaries ---


def entry(kind: int, arch: int, payload: bytes, flags: int = 0x11) -> bytes:
    padded = payload + bytes(-len(payload) % 8)
    head = struct.pack(
        "<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(padded), len(payload), 0, 0, 8, arch, 0, 0, flags, 0, 0
    )
    return head + padded


def fat(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def ptx(target: str) -> bytes:
    return f"//\n.version 8.3\n.target {target}\n.address_size 64\n".encode()


def lz4_literals(data: bytes) -> bytes:
    """`data` as an LZ4 block of literals alone."""
    out, left = bytearray(), len(data)
    out.append(min(left, 15) << 4)
    left -= 15
    while left >= 0:
        out.append(min(left, 255))
        left -= 255
    return bytes(out) + data


def test_entries_are_counted_by_kind_and_target() -> None:
    data = b"junk" * 5 + fat(
        entry(2, 70, b"\x7fELF" + bytes(50)),
        entry(2, 90, b"\x7fELF" + bytes(80)),
        entry(1, 90, ptx("sm_90a")),
    )
    data += bytes(7) + fat(entry(1, 80, lz4_literals(ptx("sm_80")), 0x2011)) + fat(entry(2, 70, b"x"))
    cubin, targets = fatbins.fat_binaries(data)
    assert cubin == {"70": 2, "90": 1}
    assert targets == {"90a": 1, "80": 1}


def test_the_header_says_who_may_take_the_ptx() -> None:
    """2.5 to 2.8 have PTX for sm_75 in entries marked 80: the driver gives them to 8.0 and newer."""
    _, targets = fatbins.fat_binaries(fat(entry(1, 80, ptx("sm_75")), entry(1, 90, b"no text")))
    assert targets == {"80": 1, "90": 1}


def test_what_only_looks_like_one_is_left_out() -> None:
    magic = struct.pack("<I", 0xBA55ED50)
    for data in (magic, magic + bytes(100), fat(b"\x07" * 80), fat(entry(2, 70, b"x"))[:-20]):
        assert fatbins.fat_binaries(data) == ({}, {})


@given(
    st.lists(
        st.one_of(st.just(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 80)), st.binary(max_size=120)), max_size=8
    )
)
def test_any_bytes_are_survived(parts: list[bytes]) -> None:
    fatbins.fat_binaries(b"".join(parts))


@given(st.binary(max_size=300), st.integers(0, 400))
def test_lz4_survives_any_bytes(block: bytes, want: int) -> None:
    assert len(fatbins.lz4_prefix(block, want)) <= want


@given(st.binary(max_size=600))
def test_lz4_literals_come_back(data: bytes) -> None:
    assert fatbins.lz4_prefix(lz4_literals(data), len(data)) == data


def test_lz4_copies_overlap() -> None:
    block = bytes([0x14]) + b"a" + struct.pack("<H", 1) + bytes([0x30]) + b"end"
    assert fatbins.lz4_prefix(block, 100) == b"a" + b"a" * 8 + b"end"


# --- rows ---

OLD_HEADER = """
#define TF_CUDA_CAPABILITIES CudaVersion("3.5"), CudaVersion("3.7"), CudaVersion("5.2")
#define TF_CUDA_VERSION "10.0"
#define TF_CUDA_LIB_VERSION "10.0"
#define TF_CUDNN_VERSION "7"
#define TF_CUDA_TOOLKIT_PATH "/usr/local/cuda-10.0"
"""


def test_header() -> None:
    assert wheel_facts.header_defines(OLD_HEADER) == {"CUDA": "10.0", "CUDA_LIB": "10.0", "CUDNN": "7"}
    assert wheel_facts.header_capabilities(OLD_HEADER) == ["3.5", "3.7", "5.2"]
    assert wheel_facts.header_defines('#define TF_CUDA_VERSION ""') == {}
    assert wheel_facts.header_capabilities("") == []


def test_requirements() -> None:
    metadata = (
        "Metadata-Version: 2.1\nName: x\n"
        "Requires-Dist: numpy (<2.0,>=1.16.0)\n"
        'Requires-Dist: h5py>=3.10.0; python_version >= "3.9"\n'
        "Requires-Dist: absl-py>=1\n"
        "Requires-Dist: not a requirement (((\n"
        'Requires-Dist: nvidia-cudnn-cu12==8.9.7.29; extra == "and-cuda"\n'
        "\nRequires-Dist: protobuf\n"
    )
    plain, extras = wheel_facts.requirements(metadata)
    assert plain == ['h5py>=3.10.0; python_version >= "3.9"', "numpy<2.0,>=1.16.0"]
    assert extras == {"and-cuda": ["nvidia-cudnn-cu12==8.9.7.29"]}


@pytest.mark.parametrize(
    ("arch", "text"), [("35", "3.5"), ("90a", "9.0a"), ("120", "12.0"), ("100f", "10.0f")]
)
def test_dotted(arch: str, text: str) -> None:
    assert wheel_facts.format_architecture(arch) == text


def test_linked_libraries_are_in_the_loaders_order() -> None:
    facts = shared_objects.ObjectFacts
    inside = {
        "tensorflow/libtensorflow_framework.so": facts(
            needed=["libcuda.so.1", "libcudnn.so.7", "libcudart.so.10.0"]
        ),
        "tensorflow/python/_pywrap_tensorflow_internal.so": facts(
            needed=["libtensorflow_framework.so", "libcublas.so.10.0", "libcudart.so.10.0", "libm.so.6"]
        ),
        "tensorflow/contrib/other.so": facts(needed=["libnvinfer.so.4"]),
    }
    assert script.list_linked_libraries(inside) == [
        "libcublas.so.10.0",
        "libcudart.so.10.0",
        "libcuda.so.1",
        "libcudnn.so.7",
    ]
    assert script.list_linked_libraries({}) == []


def test_rows_not_read_inherit_from_their_neighbour() -> None:
    def row(version: str, cubin: list[str]) -> dict[str, Any]:
        return {
            **dict.fromkeys(script.INHERITED),
            "package": "tensorflow",
            "version": version,
            "gpu": True,
            "defines": {},
            "linkage": "dlopen",
            "cubin": cubin,
            "evidence": "measured",
            "inferred_from": None,
        }

    rows = [row("2.4.0", ["3.5"]), row("2.4.3", []), row("2.4.4", ["5.0"]), row("2.5.0", [])]
    script.inherit(rows, {("tensorflow", "2.4.3"), ("tensorflow", "2.5.0")})
    assert [r["cubin"] for r in rows] == [["3.5"], ["5.0"], ["5.0"], []]
    assert [r["inferred_from"] for r in rows] == [None, "2.4.4", None, None]


def test_the_table_is_what_the_script_writes() -> None:
    """The same rows give the same bytes: nobody edits the table by hand."""
    as_of, rows = script.read_table(script.TABLE)
    assert len(rows) >= script.MINIMUM_ROWS
    assert script.render(rows, as_of) == script.TABLE.read_text(encoding="utf-8")


def test_only() -> None:
    assert script.make_filter("2.4")("2.4.1")
    assert not script.make_filter("2.4")("2.40.0")
    assert script.make_filter("2.22.0rc0")("2.22.0rc0")
    assert script.make_filter(">=2.10,<2.12")("2.11.1")


def test_the_authored_runs_agree_with_the_derivation() -> None:
    from tfdoctor.compat import Compat

    compat = Compat.load()
    authored = script.Authored(script.AUTHORED)
    assert len(authored.runs) >= 26
    for run in authored.runs:
        row = compat.release(run["version"])
        assert row is not None
        assert compat.required_libraries_for(row.defines, row) == tuple(run["required"])
        assert compat.driver_libraries_for(run["version"]) == tuple(run["driver"])
        for soname in run["required"]:
            assert soname[3:].split(".")[0] in authored.folders
    nearest = authored.run_for("2.4.1")
    assert nearest is not None
    assert nearest["version"] == "2.4.4"
    assert authored.run_for("3.1.0") is None
