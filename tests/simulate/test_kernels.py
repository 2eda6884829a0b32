"""What a card finds in fat binaries."""

from __future__ import annotations

import json
import struct
import sys
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest

from rules.make_facts import healthy
from tfdoctor.compat import Compat
from tfdoctor.compat.fat_binaries import KernelCoverage, coverage
from tfdoctor.facts import value_of
from tfdoctor.payload import fatbins
from tfdoctor.simulate.kernels import read_kernels
from tfdoctor.system import CommandResult, Failure, LiveSystem

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.system import System

OF_220 = {"60,70,80,89|90a:8.5": 1149, "60,70,80,89,90|90:8.3": 319, "60,70,80,89,90|": 1, "|90:8.3": 128}
"""Those of tensorflow 2.20.0, as they were read."""
OF_2101 = {"35,50,60,70,75|80": 1883, "35,50,60,70,75,80|80": 620, "35,50,60,70,75,80|": 1}
"""Those of tensorflow 2.10.1: for 8.x most of its kernels are PTX, whatever the union of all says."""


@pytest.mark.parametrize(
    ("counts", "capability", "kernels"),
    [
        (OF_220, "8.9", KernelCoverage.NATIVE),
        (OF_220, "8.6", KernelCoverage.NATIVE),
        (OF_220, "7.5", KernelCoverage.NATIVE),
        (OF_220, "9.0", KernelCoverage.PTX),
        (OF_220, "12.0", KernelCoverage.TOO_NEW),
        (OF_220, "5.2", KernelCoverage.TOO_OLD),
        (OF_2101, "7.5", KernelCoverage.NATIVE),
        (OF_2101, "8.6", KernelCoverage.PTX),
        (OF_2101, "8.9", KernelCoverage.PTX),
        (OF_2101, "9.0", KernelCoverage.PTX),
        (OF_2101, "3.0", KernelCoverage.TOO_OLD),
        ({"80|": 3}, "9.0", KernelCoverage.TOO_NEW),
        ({"|100f": 3}, "10.3", KernelCoverage.PTX),
        ({"|100f": 3}, "12.0", KernelCoverage.TOO_NEW),
        ({"|90a": 3}, "9.0", KernelCoverage.PTX),
        ({"86|": 3}, "8.0", KernelCoverage.TOO_OLD),
    ],
)
def test_what_a_card_can_run(counts: dict[str, int], capability: str, kernels: KernelCoverage) -> None:
    found = coverage(counts, capability)
    assert found.kernels is kernels
    assert capability in found.sentence
    apart = counts.get("|90:8.3", 0)  # functions of NCCL: linked into the others
    assert found.native + found.compiled + found.newer + found.lacking == sum(counts.values()) - apart


def test_a_kernel_or_two_without_code_are_said_and_make_no_card_useless() -> None:
    found = coverage(OF_2101, "12.0")
    assert (found.lacking, found.kernels) == (1, KernelCoverage.PTX)
    assert "1 without any for it" in found.sentence
    assert coverage({"80|": 2, "80|80": 98}, "9.0").kernels is KernelCoverage.TOO_NEW


def test_kernels_for_newer_cards_alone_are_nobody_elses() -> None:
    found = coverage(OF_220, "8.9")
    assert (found.native, found.compiled, found.newer, found.lacking) == (1469, 0, 0, 0)


class _Child:
    """A system whose child says this."""

    env: ClassVar[dict[str, str]] = {}

    def __init__(self, said: str, **ended: Any) -> None:
        self._said, self._ended = said, ended

    def listdir(self, path: str) -> list[str]:
        raise FileNotFoundError(path)

    def run(self, argv: list[str], **_: Any) -> CommandResult:
        return CommandResult(
            tuple(argv),
            self._ended.get("returncode", 0),
            stdout=self._said,
            **{key: value for key, value in self._ended.items() if key != "returncode"},
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
def test_what_cannot_be_read_is_said(said: str, ended: dict[str, Any], why: str) -> None:
    facts = healthy()
    python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    assert python is not None
    assert tensorflow is not None
    found = read_kernels(cast("System", _Child(said, **ended)), python, tensorflow)
    assert (dict(found.counts), why in found.why) == ({}, True)
    assert "\x1b" not in found.why


def entry(kind: int, arch: int, payload: bytes) -> bytes:
    padded = payload + bytes(-len(payload) % 8)
    return struct.pack("<HHIQIIHHIQQQQ", kind, 1, 64, len(padded), 0, 0, 0, 0, arch, 0, 0, 0, 0)[:64] + padded


def test_the_payload_reads_a_folder(tmp_path: Path) -> None:
    empty = b".version 8.1\n.target sm_80\n.address_size 64\n"
    code = entry(2, 80, b"\x7fELF" + bytes(60)) + entry(1, 80, empty)
    code += entry(1, 90, b".version 8.3\n.target sm_90a\n.address_size 64\n.visible .entry f()\n")
    one = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(code)) + code
    # what has no code as PTX has none as a cubin
    nothing = entry(2, 80, b"\x7fELF" + bytes(60)) + entry(1, 80, empty)
    nobody = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(nothing)) + nothing
    (tmp_path / "libx.so.1").write_bytes(bytes(fatbins.SMALL) + one + nobody + one)
    (tmp_path / "small.so").write_bytes(one)
    (tmp_path / "link.so").symlink_to(tmp_path / "libx.so.1")
    script = fatbins.__file__
    done = LiveSystem().run([sys.executable, "-S", str(script), str(tmp_path)], timeout=60)
    assert done.ok, done.stderr
    answer = json.loads(done.stdout.removeprefix("tfdoctor-payload:"))
    assert answer == {"binaries": {"80|90a:8.3": 2}, "files": 1, "failed": []}


@pytest.mark.parametrize(
    ("capability", "cuda", "share"),
    [("9.0", "12.5", "most"), ("8.9", None, "all"), ("12.0", "12.3", "all"), ("7.5", None, "all")],
)
def test_what_the_driver_has_to_compile(capability: str, cuda: str | None, share: str) -> None:
    found = coverage(OF_220, capability)
    compat = Compat.load()
    assert (compat.cuda_of_ptx(found.isa) if found.isa else None) == cuda
    if cuda is not None:
        assert found.share == share


def test_ptx_of_an_older_toolkit_than_the_wheels() -> None:
    """clang writes what it knows, not what the toolkit does: 2.15 is of CUDA 12.2."""
    release = Compat.load().release("2.15.0")
    assert release is not None
    assert Compat.load().to_compile(release, "8.6") == ("11.1", "most")
    assert Compat.load().to_compile(release, "9.0") == ("12.1", "all")
    assert Compat.load().to_compile(release, "7.5") is None


def test_of_two_modules_for_one_card_the_newest_that_was_read_counts() -> None:
    assert coverage({"70|80,80:8.5": 3}, "8.0").isa == "8.5"
    assert coverage({"70|80:8.9,80:8.10": 3}, "8.0").isa == "8.10"
    assert coverage({"70|80": 3}, "8.0").isa is None


@pytest.mark.parametrize("kinds", ["70|80", "70|80:99.9"])
def test_ptx_that_is_not_known_is_taken_to_be_of_the_wheels_cuda(
    monkeypatch: pytest.MonkeyPatch, kinds: str
) -> None:
    monkeypatch.setattr(
        Compat, "coverage", lambda _, __, capability: coverage({kinds: 3, "70,80|": 1}, capability)
    )
    release = Compat.load().release("2.20.0")
    assert release is not None
    assert Compat.load().to_compile(release, "8.0") == (release.cuda, "most")
    assert Compat.load().to_compile(release, "7.0") is None
