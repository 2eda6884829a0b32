"""The script that measures wheels: remote zip files, fat binaries and table entries, without the network."""

from __future__ import annotations

import io
import struct
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
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
    from update_support import files, remote_zip, shared_objects, wheel_facts
finally:
    sys.path.remove(str(SCRIPTS))


# --- zip files behind HTTP ---


class LocalWeb(remote_zip.Web):
    """`Web` over bytes in memory, with counts of requests and of streamed bytes."""

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
        for offset in range(start, start + length, 1000):
            yield self.data[offset : min(offset + 1000, start + length)]


def make_zip(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as zipped:
        for name, data in files.items():
            zipped.writestr(name, data)
    return buffer.getvalue()


FILES = {
    "tensorflow/big.so": bytes(range(256)) * 4000,
    "tensorflow/empty.so": b"",
    "tensorflow/include/third_party/gpus/cuda/cuda_config.h": b'#define TF_CUDA_VERSION "12.3"\n',
    "tensorflow/python/platform/build_info.py": b"build_info = {}",
    "tensorflow-1.dist-info/METADATA": b"Name: tensorflow\n",
}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_extracted_unchanged(method: int) -> None:
    web = LocalWeb(make_zip(FILES, method))
    members, total = remote_zip.load_central_directory(web, "u")
    assert [member.name for member in members] == [*FILES]
    extracted: dict[str, bytes] = {}
    for gap in (0, 1 << 30):
        extracted.clear()
        for run in remote_zip.group_members(members, gap):
            remote_zip.extract(
                web, "u", run, total, lambda member, pieces: extracted.update({member.name: b"".join(pieces)})
            )
        assert extracted == FILES


def test_only_selected_members_are_requested() -> None:
    web = LocalWeb(make_zip(FILES, zipfile.ZIP_STORED))
    members, total = remote_zip.load_central_directory(web, "u")
    selected = [member for member in members if wheel_facts.SMALL.search(member.name)]
    assert len(selected) == 3
    runs = [*remote_zip.group_members(selected, 1 << 16)]
    assert len(runs) == 1
    remote_zip.extract(web, "u", runs[0], total, lambda _, pieces: [*pieces])
    assert web.requests == 2
    assert web.bytes < 10_000


def test_damaged_member_raises_an_error() -> None:
    data = bytearray(make_zip(FILES, zipfile.ZIP_STORED))
    data[5000] ^= 1
    web = LocalWeb(bytes(data))
    members, total = remote_zip.load_central_directory(web, "u")
    with pytest.raises(ValueError, match=r"big\.so: wrong CRC-32"):
        remote_zip.extract(web, "u", members[:1], total, lambda _, pieces: [*pieces])


def test_other_file_is_no_zip_file() -> None:
    with pytest.raises(ValueError, match="end-of-central-directory"):
        remote_zip.load_central_directory(LocalWeb(b"x" * 1000), "u")


# --- fat binaries ---


def make_entry(kind: int, arch: int, payload: bytes, flags: int = 0x11) -> bytes:
    padded = payload + bytes(-len(payload) % 8)
    header = struct.pack(
        "<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(padded), len(payload), 0, 0, 8, arch, 0, 0, flags, 0, 0
    )
    return header + padded


def make_fat_binary(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def make_ptx(target: str) -> bytes:
    return f"//\n.version 8.3\n.target {target}\n.address_size 64\n".encode()


def encode_lz4_literals(data: bytes) -> bytes:
    """Encode `data` as an LZ4 block of literals only."""
    block, remaining = bytearray(), len(data)
    block.append(min(remaining, 15) << 4)
    remaining -= 15
    while remaining >= 0:
        block.append(min(remaining, 255))
        remaining -= 255
    return bytes(block) + data


def test_entries_are_counted_by_kind_and_target() -> None:
    data = b"junk" * 5 + make_fat_binary(
        make_entry(2, 70, b"\x7fELF" + bytes(50)),
        make_entry(2, 90, b"\x7fELF" + bytes(80)),
        make_entry(1, 90, make_ptx("sm_90a")),
    )
    data += (
        bytes(7)
        + make_fat_binary(make_entry(1, 80, encode_lz4_literals(make_ptx("sm_80")), 0x2011))
        + make_fat_binary(make_entry(2, 70, b"x"))
    )
    cubin, targets = fatbins.count_fat_binaries(data)
    assert cubin == {"70": 2, "90": 1}
    assert targets == {"90a": 1, "80": 1}


def test_entry_header_decides_the_ptx_target() -> None:
    """Releases 2.5 to 2.8 have PTX for sm_75 in entries marked 80: the driver uses it for 8.0 and newer."""
    _, targets = fatbins.count_fat_binaries(
        make_fat_binary(make_entry(1, 80, make_ptx("sm_75")), make_entry(1, 90, b"no text"))
    )
    assert targets == {"80": 1, "90": 1}


def test_lookalikes_of_fat_binaries_are_ignored() -> None:
    magic = struct.pack("<I", 0xBA55ED50)
    for data in (
        magic,
        magic + bytes(100),
        make_fat_binary(b"\x07" * 80),
        make_fat_binary(make_entry(2, 70, b"x"))[:-20],
    ):
        assert fatbins.count_fat_binaries(data) == ({}, {})


@given(
    st.lists(
        st.one_of(st.just(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 80)), st.binary(max_size=120)), max_size=8
    )
)
def test_any_bytes_are_parsed_without_an_error(parts: list[bytes]) -> None:
    fatbins.count_fat_binaries(b"".join(parts))


@given(st.binary(max_size=300), st.integers(0, 400))
def test_any_lz4_block_is_decoded_without_an_error(block: bytes, want: int) -> None:
    assert len(fatbins.decompress_prefix(block, want)) <= want


@given(st.binary(max_size=600))
def test_lz4_literals_are_decoded(data: bytes) -> None:
    assert fatbins.decompress_prefix(encode_lz4_literals(data), len(data)) == data


def test_lz4_overlapping_copies_are_decoded() -> None:
    block = bytes([0x14]) + b"a" + struct.pack("<H", 1) + bytes([0x30]) + b"end"
    assert fatbins.decompress_prefix(block, 100) == b"a" + b"a" * 8 + b"end"


# --- table entries ---

OLD_HEADER = """
#define TF_CUDA_CAPABILITIES CudaVersion("3.5"), CudaVersion("3.7"), CudaVersion("5.2")
#define TF_CUDA_VERSION "10.0"
#define TF_CUDA_LIB_VERSION "10.0"
#define TF_CUDNN_VERSION "7"
#define TF_CUDA_TOOLKIT_PATH "/usr/local/cuda-10.0"
"""


def test_cuda_config_header() -> None:
    assert wheel_facts.parse_defines(OLD_HEADER) == {"CUDA": "10.0", "CUDA_LIB": "10.0", "CUDNN": "7"}
    assert wheel_facts.parse_capabilities(OLD_HEADER) == ["3.5", "3.7", "5.2"]
    assert wheel_facts.parse_defines('#define TF_CUDA_VERSION ""') == {}
    assert wheel_facts.parse_capabilities("") == []


def test_requirements_of_metadata() -> None:
    metadata = (
        "Metadata-Version: 2.1\nName: x\n"
        "Requires-Dist: numpy (<2.0,>=1.16.0)\n"
        'Requires-Dist: h5py>=3.10.0; python_version >= "3.9"\n'
        "Requires-Dist: absl-py>=1\n"
        "Requires-Dist: not a requirement (((\n"
        'Requires-Dist: nvidia-cudnn-cu12==8.9.7.29; extra == "and-cuda"\n'
        "\nRequires-Dist: protobuf\n"
    )
    plain, extras = wheel_facts.parse_requirements(metadata)
    assert plain == ['h5py>=3.10.0; python_version >= "3.9"', "numpy<2.0,>=1.16.0"]
    assert extras == {"and-cuda": ["nvidia-cudnn-cu12==8.9.7.29"]}


@pytest.mark.parametrize(
    ("arch", "text"), [("35", "3.5"), ("90a", "9.0a"), ("120", "12.0"), ("100f", "10.0f")]
)
def test_format_architecture(arch: str, text: str) -> None:
    assert wheel_facts.format_architecture(arch) == text


def test_linked_libraries_are_in_load_order() -> None:
    facts = shared_objects.ObjectFacts
    objects = {
        "tensorflow/libtensorflow_framework.so": facts(
            needed=["libcuda.so.1", "libcudnn.so.7", "libcudart.so.10.0"]
        ),
        "tensorflow/python/_pywrap_tensorflow_internal.so": facts(
            needed=["libtensorflow_framework.so", "libcublas.so.10.0", "libcudart.so.10.0", "libm.so.6"]
        ),
        "tensorflow/contrib/other.so": facts(needed=["libnvinfer.so.4"]),
    }
    assert script.list_linked_libraries(objects) == [
        "libcublas.so.10.0",
        "libcudart.so.10.0",
        "libcuda.so.1",
        "libcudnn.so.7",
    ]
    assert script.list_linked_libraries({}) == []


def test_unread_releases_inherit_from_their_neighbour() -> None:
    def make_release(version: str, cubin: list[str]) -> dict[str, Any]:
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

    releases = [
        make_release("2.4.0", ["3.5"]),
        make_release("2.4.3", []),
        make_release("2.4.4", ["5.0"]),
        make_release("2.5.0", []),
    ]
    script.inherit(releases, {("tensorflow", "2.4.3"), ("tensorflow", "2.5.0")}, [])
    assert [release["cubin"] for release in releases] == [["3.5"], ["5.0"], ["5.0"], []]
    assert [release["inferred_from"] for release in releases] == [None, "2.4.4", None, None]
    patch = make_release("2.5.1", [])
    script.inherit([patch], {("tensorflow", "2.5.1")}, [make_release("2.5.0", ["8.6"])])
    assert (patch["cubin"], patch["inferred_from"]) == (["8.6"], "2.5.0")


def test_table_is_as_the_script_writes_it() -> None:
    """The same releases give the same bytes: nobody edits the table by hand."""
    as_of, releases = script.load_table(script.TABLE)
    assert len(releases) >= script.MINIMUM_ROWS
    assert script.render(releases, as_of) == script.TABLE.read_text(encoding="utf-8")


def test_release_filter() -> None:
    assert script.make_filter("2.4")("2.4.1")
    assert not script.make_filter("2.4")("2.40.0")
    assert script.make_filter("2.22.0rc0")("2.22.0rc0")
    assert script.make_filter(">=2.10,<2.12")("2.11.1")


def test_authored_runs_agree_with_the_derivation() -> None:
    from tfdoctor.compat import Compat

    compat = Compat.load()
    authored = script.Authored(script.AUTHORED)
    assert len(authored.runs) >= 26
    for run in authored.runs:
        release = compat.find_release(run["version"])
        assert release is not None
        assert compat.find_required_libraries(release.defines, release) == tuple(run["required"])
        assert compat.list_driver_libraries(run["version"]) == tuple(run["driver"])
        for soname in run["required"]:
            assert soname[3:].split(".")[0] in authored.folders
    nearest = authored.find_run("2.4.1")
    assert nearest is not None
    assert nearest["version"] == "2.4.4"
    assert authored.find_run("3.1.0") is None


# --- what is measured, and what a failure leaves ---


def make_files(version: str, digest: str, pythons: tuple[str, ...] = ("cp310",)) -> wheel_facts.ReleaseFiles:
    package: Any = SimpleNamespace(
        filename=f"tensorflow-{version}-cp310-cp310-manylinux_2_27_x86_64.whl",
        url="u",
        digests={"sha256": digest},
        is_yanked=False,
        upload_time=None,
    )
    return wheel_facts.ReleaseFiles("tensorflow", version, dict.fromkeys(pythons, package))


def load_old() -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["package"], row["version"]): row for row in script.load_table(script.TABLE)[1]}


def test_only_new_and_replaced_wheels_are_measured() -> None:
    old = load_old()
    known = old["tensorflow", "2.20.0"]
    unchanged = make_files("2.20.0", known["sha256"], ("cp310", "cp314"))
    unchanged.windows = unchanged.linux
    replaced, new = make_files("2.19.0", "0" * 64), make_files("9.9.0", "1" * 64)
    chosen, kept = script.choose([replaced, unchanged, new], old)
    assert chosen == [replaced, new]
    assert set(kept) == {("tensorflow", "2.20.0"), ("tensorflow", "2.19.0")}  # the index lacks all others
    assert kept["tensorflow", "2.20.0"] == {
        **known,
        "linux_pythons": ["3.10", "3.14"],
        "windows_pythons": ["3.10", "3.14"],
    }
    assert script.choose([unchanged, new], old, only="9.9.0") == ([new], old)
    assert script.choose([unchanged, new], old, everything=True) == ([unchanged, new], {})


def test_folders_that_are_not_searched_follow_from_the_row() -> None:
    folders = script.Authored(script.AUTHORED).folders
    misses = {
        version: row["runpath_misses"] for (_, version), row in load_old().items() if row["runpath_misses"]
    }
    assert misses["2.21.0"] == ["libcusolver.so.11"]
    for (_, version), row in load_old().items():
        if row["gpu"] and row["evidence"] == "measured":
            assert script.find_runpath_misses(row, folders) == misses.get(version, [])


@pytest.mark.parametrize("cut", [30, 5_000, -1])
def test_half_a_download_leaves_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cut: int
) -> None:
    """A wheel that ends early, loses its directory or has a damaged member."""
    wheel = bytearray(
        make_zip({"tensorflow/huge.so": bytes(range(256)) * 40_000, **FILES}, zipfile.ZIP_STORED)
    )
    if cut > 0:
        del wheel[-cut:]
    else:
        wheel[5_000_000] ^= 1
    table = tmp_path / "tensorflow.json"
    table.write_bytes(script.TABLE.read_bytes())
    index = [make_files(version, row["sha256"]) for (_, version), row in load_old().items()]
    monkeypatch.setattr(script, "TABLE", table)
    monkeypatch.setattr(script, "load_index", lambda: [*index, make_files("9.9.0", "1" * 64)])
    monkeypatch.setattr(script, "Web", lambda: LocalWeb(bytes(wheel)))
    monkeypatch.setattr(script, "choose", lambda releases, old, **_: (releases[-1:], old))
    monkeypatch.setattr(sys, "argv", ["update_tensorflow.py", "--cache", str(tmp_path / "cache")])
    assert files.report_errors(script.main) == 1
    assert capsys.readouterr().err.startswith("failed, and the table is as it was: u: ")
    assert table.read_bytes() == script.AUTHORED.with_name("tensorflow.json").read_bytes()
    assert not [*tmp_path.rglob("*.part")]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    files.write_file(path, "old")
    with pytest.raises(UnicodeEncodeError):
        files.write_file(path, "x" * 100_000 + "\udc80")
    assert path.read_text(encoding="utf-8") == "old"
    assert [*tmp_path.iterdir()] == [path]
