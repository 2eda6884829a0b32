"""scripts/real_gpu on a machine without a GPU and without TensorFlow, and the packing for a machine with one."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "real_gpu"
sys.path.insert(0, str(ROOT / "scripts"))
from update_support.thin import CUBIN, ENTRY, HEADER, MAGIC, PTX, thin_file, update_records  # noqa: E402


def read_summary(archive: Path) -> dict[str, object]:
    with tarfile.open(archive) as tar:
        file = tar.extractfile("real-gpu/summary.json")
        assert file is not None
        return dict(json.load(file))


@pytest.mark.parametrize(("budget", "steps"), [("9", True), ("0", False)])
def test_archive_is_always_written(tmp_path: Path, budget: str, steps: bool) -> None:
    out = tmp_path / "out.tar.gz"
    done = subprocess.run(
        [sys.executable, SCRIPT, "--budget", budget, "-o", out],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    summary = read_summary(out)
    assert bool(summary["steps"]) is steps
    assert "b to d: no TensorFlow (--online or --environment)" in summary["left_out"]  # type: ignore[operator]


def fat_binary(*entries: tuple[int, int, bytes]) -> bytes:
    body = b""
    for kind, arch, code in entries:
        header = bytearray(64)
        ENTRY.pack_into(header, 0, kind, 1, 64, len(code))
        struct.pack_into("<I", header, 28, arch)
        body += bytes(header) + code
    return HEADER.pack(struct.unpack("<I", MAGIC)[0], 1, HEADER.size, len(body)) + body


@pytest.mark.parametrize(
    ("entries", "is_kept"),
    [
        ([(CUBIN, 80), (CUBIN, 90), (PTX, 80), (PTX, 90)], [False, True, False, True]),
        ([(CUBIN, 80), (PTX, 80)], [False, True]),
        ([(CUBIN, 90), (PTX, 90)], [True, True]),
    ],
)
def test_code_for_other_gpus_is_overwritten(
    tmp_path: Path, entries: list[tuple[int, int]], is_kept: list[bool]
) -> None:
    codes = [bytes([65 + number]) * 40 for number in range(len(entries))]
    data = (
        b"\x7fELF" * 20_000
        + fat_binary(*((*entry, code) for entry, code in zip(entries, codes, strict=True)))
        + b"end"
    )
    path = tmp_path / "lib.so"
    path.write_bytes(data)
    assert thin_file(path, 90) == 40 * is_kept.count(False)
    after = path.read_bytes()
    assert len(after) == len(data)
    assert [code in after for code in codes] == is_kept
    assert after.endswith(b"end")


def test_records_get_the_new_hashes(tmp_path: Path) -> None:
    (tmp_path / "x.dist-info").mkdir()
    (tmp_path / "x.so").write_bytes(b"new")
    (tmp_path / "x.dist-info/RECORD").write_text("x.so,sha256=old,3\ny.py,sha256=kept,1\n")
    update_records(tmp_path, {"x.so"})
    assert (tmp_path / "x.dist-info/RECORD").read_text() == (
        "x.so,sha256=EVB6Di9eadXfpApiob17buV-a82FxnybhDGzb_8hxDc,3\ny.py,sha256=kept,1\n"
    )


def test_damaged_piece_is_named(tmp_path: Path) -> None:
    (tmp_path / "piece-000").write_bytes(b"x")
    (tmp_path / "SHA256SUMS").write_text("0" * 64 + "  piece-000\n")
    command = [sys.executable, SCRIPT, "unpack", tmp_path, tmp_path / "env"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "piece-000 is damaged" in done.stderr
    assert not (tmp_path / "env").exists()
