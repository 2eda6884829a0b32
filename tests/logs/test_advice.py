"""What a log lets us say to do: the way to a working GPU, in every era, with what the log names."""

from __future__ import annotations

import shlex

import pytest

from tfdoctor.compat import Compat
from tfdoctor.findings import Cause
from tfdoctor.fit import Host
from tfdoctor.logs.report import LogReport, diagnose_log
from tfdoctor.plan import Method, Request, recommend

COMPAT = Compat.load()
MINORS = sorted({row.minor for row in COMPAT.releases if row.gpu and not row.is_prerelease})
SKIPPED = "Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above\n"
SKIPPED += "Skipping registering GPU devices...\n"


def told(text: str) -> LogReport:
    return diagnose_log([text.encode()], COMPAT)


def commands(report: LogReport) -> list[str]:
    assert report.root is not None
    return [command for remedy in report.root.remedies for command in remedy.commands]


def of_release(minor: str, cuda: str = "") -> LogReport:
    """A log of this release in which its CUDA runtime and cuDNN are missing."""
    release = next(row for row in reversed(COMPAT.releases) if row.minor == minor and row.gpu)
    names = [name for name in release.required_libraries if "cudart" in name or "cudnn" in name]
    path = f"; LD_LIBRARY_PATH: /usr/local/cuda-{cuda}/lib64" if cuda else ""
    failed = [
        f"Could not load dynamic library '{one}'; dlerror: {one}: cannot open shared object file: No such file or "
        f"directory{path}"
        for one in names
    ]
    return told("\n".join([f"TensorFlow version: {release.version}", *failed, SKIPPED]))


@pytest.mark.few(3)
@pytest.mark.parametrize("minor", MINORS)
def test_in_every_era_the_commands_lead_to_a_gpu(minor: str) -> None:
    """What is offered can be had: the planner, asked for the same, has a way."""
    found = commands(of_release(minor))
    assert "tfdoctor check" in found
    asked = [shlex.split(one) for one in found if one.startswith(("tfdoctor install", "tfdoctor build"))]
    for words in asked:
        method = Method.PIP if words[1] == "install" else Method.CONTAINER
        wanted = words[words.index("--tf") + 1]
        assert wanted.startswith(minor)
        assert recommend(COMPAT, Request(tensorflow=wanted, method=method), Host()).conflict is None, words
    if recommend(COMPAT, Request(tensorflow=minor, method=Method.CONTAINER), Host()).conflict is None:
        assert any(words[1] == "build" for words in asked)


def test_the_two_cudnns_that_a_log_names_are_told() -> None:
    report = told("Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0.\n")
    assert report.root is not None
    assert "cuDNN 9.1.0 was loaded; TensorFlow was built with 9.3.0." in report.root.explanation


@pytest.mark.parametrize(
    ("text", "release"),
    [
        (f"TensorFlow version: 2.16.1\n{SKIPPED}", "2.16.1"),
        (f"TensorFlow version: 2.20.0\n{SKIPPED}", "2.20.0"),
    ],
)
def test_libraries_that_are_not_named(text: str, release: str) -> None:
    report = told(text)
    assert report.cause is Cause.LIBS_UNLISTED
    found = commands(report)
    assert found[0] == "tfdoctor check"
    assert f"tfdoctor install --tf {release}" in found
    assert any(command.startswith("tfdoctor run ") for command in found)
    assert report.root is not None
    assert "plain `pip install tensorflow`" in report.root.explanation
    assert "did not use the GPU" in report.headline


def test_another_cuda_is_named_with_the_one_that_is_wanted() -> None:
    report = of_release("2.3", "10.0")
    assert report.cause is Cause.LIBS_WRONG_VERSION
    assert "CUDA 10.0 is installed, but it needs CUDA 10.1" in report.headline
    assert report.root is not None
    assert "CUDA 10.0 is on LD_LIBRARY_PATH, but CUDA 10.1 is needed." in report.root.explanation


def test_the_card_that_a_log_names_is_in_the_command() -> None:
    card = "pciBusID: 0000:01:00.0 name: GeForce RTX 2070 computeCapability: 7.5\n"
    missing = (
        "Could not load dynamic library 'libcudart.so.10.1'; dlerror: libcudart.so.10.1: cannot open shared "
    )
    report = told(f"{card}{missing}object file: No such file or directory\n{SKIPPED}")
    assert "tfdoctor recommend --gpu 'GeForce RTX 2070'" in commands(report)


def test_a_card_nobody_knows_is_not_asked_for() -> None:
    card = "pciBusID: 0000:01:00.0 name: $(reboot) computeCapability: 7.5\n"
    assert not any("reboot" in command for command in commands(told(f"{card}{SKIPPED}")))
