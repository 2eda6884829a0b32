"""The kernels in fat binaries that a GPU can run."""

from __future__ import annotations

import json
import struct
import sys
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest

from rules.make_facts import healthy
from tfdoctor.compat import Compat
from tfdoctor.compat.fat_binaries import KernelCoverage, compute_coverage
from tfdoctor.core.facts import value_of
from tfdoctor.payload import fatbins
from tfdoctor.system import CommandResult, Failure, LiveSystem
from tfdoctor.verification.simulate.kernels import read_gpu_code

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.system import System

COUNTS_220 = {"60,70,80,89|90a:8.5": 1149, "60,70,80,89,90|90:8.3": 319, "60,70,80,89,90|": 1, "|90:8.3": 128}
"""The kernels of tensorflow 2.20.0, as measured."""
COUNTS_2101 = {"35,50,60,70,75|80": 1883, "35,50,60,70,75,80|80": 620, "35,50,60,70,75,80|": 1}
"""The kernels of tensorflow 2.10.1: for 8.x most of them are PTX, although other kernels have cubins for 8.0."""


@pytest.mark.parametrize(
    ("counts", "capability", "kernels"),
    [
        (COUNTS_220, "8.9", KernelCoverage.NATIVE),
        (COUNTS_220, "8.6", KernelCoverage.NATIVE),
        (COUNTS_220, "7.5", KernelCoverage.NATIVE),
        (COUNTS_220, "9.0", KernelCoverage.PTX),
        (COUNTS_220, "12.0", KernelCoverage.TOO_NEW),
        (COUNTS_220, "5.2", KernelCoverage.TOO_OLD),
        (COUNTS_2101, "7.5", KernelCoverage.NATIVE),
        (COUNTS_2101, "8.6", KernelCoverage.PTX),
        (COUNTS_2101, "8.9", KernelCoverage.PTX),
        (COUNTS_2101, "9.0", KernelCoverage.PTX),
        (COUNTS_2101, "3.0", KernelCoverage.TOO_OLD),
        ({"80|": 3}, "9.0", KernelCoverage.TOO_NEW),
        ({"|100f": 3}, "10.3", KernelCoverage.PTX),
        ({"|100f": 3}, "12.0", KernelCoverage.TOO_NEW),
        ({"|90a": 3}, "9.0", KernelCoverage.PTX),
        ({"86|": 3}, "8.0", KernelCoverage.TOO_OLD),
    ],
)
def test_kernels_that_a_gpu_can_run(counts: dict[str, int], capability: str, kernels: KernelCoverage) -> None:
    result = compute_coverage(counts, capability)
    assert result.kernel_coverage is kernels
    assert capability in result.description
    nccl_functions = counts.get("|90:8.3", 0)  # functions of NCCL, which are linked into the other kernels
    assert (
        result.native_count + result.compiled_count + result.newer_count + result.lacking_count
        == sum(counts.values()) - nccl_functions
    )


def test_few_missing_kernels_do_not_exclude_a_gpu() -> None:
    result = compute_coverage(COUNTS_2101, "12.0")
    assert (result.lacking_count, result.kernel_coverage) == (1, KernelCoverage.PTX)
    assert "1 without any for it" in result.description
    assert compute_coverage({"80|": 2, "80|80": 98}, "9.0").kernel_coverage is KernelCoverage.TOO_NEW


def test_kernels_for_newer_gpus_are_not_counted_as_missing() -> None:
    result = compute_coverage(COUNTS_220, "8.9")
    assert (result.native_count, result.compiled_count, result.newer_count, result.lacking_count) == (
        1469,
        0,
        0,
        0,
    )


class _Child:
    """A system whose child process ends with this output."""

    env: ClassVar[dict[str, str]] = {}

    def __init__(self, stdout: str, **ending: Any) -> None:
        self._stdout, self._ending = stdout, ending

    def listdir(self, path: str) -> list[str]:
        raise FileNotFoundError(path)

    def run(self, argv: list[str], **_: Any) -> CommandResult:
        return CommandResult(
            tuple(argv),
            self._ending.get("returncode", 0),
            stdout=self._stdout,
            **{key: value for key, value in self._ending.items() if key != "returncode"},
        )


@pytest.mark.parametrize(
    ("said", "ended", "why"),
    [
        ("", {"returncode": None, "failure": Failure.TIMEOUT}, "could not be read"),
        ('tfdoctor-payload:{"binaries": {}, "files": 3, "failed": []}', {}, "no GPU code"),
        ('tfdoctor-payload:{"binaries": {"80|": "x", "a": 3, "b|": true}, "failed": []}', {}, "no GPU code"),
        ('tfdoctor-payload:{"binaries": [], "failed": ["/x: \\u001b[31mPermission denied"]}', {}, "denied"),
        ("nonsense", {"returncode": 1}, "could not be read"),
    ],
)
def test_unreadable_output_is_explained(said: str, ended: dict[str, Any], why: str) -> None:
    facts = healthy()
    python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    assert python is not None
    assert tensorflow is not None
    result = read_gpu_code(cast("System", _Child(said, **ended)), python, tensorflow)
    assert (dict(result.binary_counts), why in result.failure_reason) == ({}, True)
    assert "\x1b" not in result.failure_reason


def make_entry(kind: int, arch: int, payload: bytes) -> bytes:
    padded = payload + bytes(-len(payload) % 8)
    return struct.pack("<HHIQIIHHIQQQQ", kind, 1, 64, len(padded), 0, 0, 0, 0, arch, 0, 0, 0, 0)[:64] + padded


def test_payload_reads_a_folder(tmp_path: Path) -> None:
    empty_ptx = b".version 8.1\n.target sm_80\n.address_size 64\n"
    code = make_entry(2, 80, b"\x7fELF" + bytes(60)) + make_entry(1, 80, empty_ptx)
    code += make_entry(1, 90, b".version 8.3\n.target sm_90a\n.address_size 64\n.visible .entry f()\n")
    binary = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(code)) + code
    # Without kernels in the PTX, the cubin has none either.
    empty_entries = make_entry(2, 80, b"\x7fELF" + bytes(60)) + make_entry(1, 80, empty_ptx)
    empty_binary = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(empty_entries)) + empty_entries
    (tmp_path / "libx.so.1").write_bytes(bytes(fatbins.MIN_OBJECT_BYTES) + binary + empty_binary + binary)
    (tmp_path / "small.so").write_bytes(binary)
    (tmp_path / "link.so").symlink_to(tmp_path / "libx.so.1")
    script = fatbins.__file__
    process = LiveSystem().run([sys.executable, "-S", str(script), str(tmp_path)], timeout=60)
    assert process.ok, process.stderr
    answer = json.loads(process.stdout.removeprefix("tfdoctor-payload:"))
    assert answer == {"binaries": {"80|90a:8.3": 2}, "files": 1, "failed": []}


@pytest.mark.parametrize(
    ("capability", "cuda", "share"),
    [("9.0", "12.5", "most"), ("8.9", None, "all"), ("12.0", "12.3", "all"), ("7.5", None, "all")],
)
def test_ptx_that_the_driver_compiles(capability: str, cuda: str | None, share: str) -> None:
    result = compute_coverage(COUNTS_220, capability)
    compat = Compat.load()
    assert (compat.find_cuda_for_ptx(result.newest_isa) if result.newest_isa else None) == cuda
    if cuda is not None:
        assert result.compiled_share == share


def test_ptx_older_than_the_cuda_of_the_wheel() -> None:
    """clang writes the newest PTX version that it knows, whatever the toolkit: 2.15 is built with CUDA 12.2."""
    release = Compat.load().find_release("2.15.0")
    assert release is not None
    assert Compat.load().find_ptx_requirement(release, "8.6") == ("11.1", "most")
    assert Compat.load().find_ptx_requirement(release, "9.0") == ("12.1", "all")
    assert Compat.load().find_ptx_requirement(release, "7.5") is None


def test_newest_of_two_ptx_versions_counts() -> None:
    assert compute_coverage({"70|80,80:8.5": 3}, "8.0").newest_isa == "8.5"
    assert compute_coverage({"70|80:8.9,80:8.10": 3}, "8.0").newest_isa == "8.10"
    assert compute_coverage({"70|80": 3}, "8.0").newest_isa is None


@pytest.mark.parametrize("kinds", ["70|80", "70|80:99.9"])
def test_unknown_ptx_version_is_that_of_the_wheels_cuda(monkeypatch: pytest.MonkeyPatch, kinds: str) -> None:
    monkeypatch.setattr(
        Compat,
        "get_coverage",
        lambda _, __, capability: compute_coverage({kinds: 3, "70,80|": 1}, capability),
    )
    release = Compat.load().find_release("2.20.0")
    assert release is not None
    assert Compat.load().find_ptx_requirement(release, "8.0") == (release.cuda, "most")
    assert Compat.load().find_ptx_requirement(release, "7.0") is None
