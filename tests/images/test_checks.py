"""Tests of the checks of a Dockerfile: the value that decides, for each condition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor.compat import Compat
from tfdoctor.core.findings import Severity
from tfdoctor.images.analysis import check_dockerfile
from tfdoctor.images.checks.requirements_conflict import _can_both_hold

if TYPE_CHECKING:
    from tfdoctor.core.findings import Finding

COMPAT = Compat.load()
INFO, WARNING, ERROR = Severity.INFO, Severity.WARNING, Severity.ERROR
CUDA = "FROM nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04"
SLIM = "FROM python:3.11-slim"
TF = "RUN pip install tensorflow==2.15.1"


def list_findings(*lines: str, **options: Any) -> list[Finding]:
    report = check_dockerfile("\n".join(lines), COMPAT, **{"read": lambda _: None, **options})
    assert report is not None
    return [*report.findings]


@pytest.mark.parametrize(
    ("lines", "code", "severity", "text"),
    [
        # the base image
        (("FROM nvidia/cuda:10.0-base", TF), "TFD501", ERROR, "no longer exists"),
        (("FROM nvidia/cuda:latest", TF), "TFD501", ERROR, "January 2021"),
        (("FROM nvidia/cuda", TF), "TFD501", ERROR, "January 2021"),
        (
            ("FROM mirror.example/nvidia/cuda:10.0-base", TF),
            "TFD501",
            WARNING,
            "This registry may have kept it.",
        ),
        ((f"FROM nvidia/cuda:10.0-base@sha256:{'0' * 64}", TF), "TFD501", None, ""),
        (
            ("FROM nvidia/cuda:10.0-base", TF),
            "TFD501",
            ERROR,
            "nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04",
        ),
        (
            ("FROM nvidia/cuda:11.4.1-base-ubuntu20.04",),
            "TFD501",
            ERROR,
            "Of CUDA 11.4 there is nvidia/cuda:11.4.3",
        ),
        (("FROM nvidia/cuda:10.0-base",), "TFD501", ERROR, "no image of this CUDA to take its place"),
        (("FROM nvidia/cuda:12.2.2-runtime-ubuntu22.04", TF), "TFD501", None, ""),
        (("FROM nvidia/cuda:nonsense", TF), "TFD502", INFO, "no CUDA version that could be read"),
        (("FROM nvidia/cuda:12.2.2-runtime-ubuntu22.04", TF), "TFD502", None, ""),
        (("FROM nvidia/cuda:12.2.2-runtime-rockylinux8", TF), "TFD502", INFO, "for Ubuntu only"),
        (
            ("FROM nvidia/cuda:12.2.2-runtime-ubuntu16.04", TF),
            "TFD502",
            WARNING,
            "Known are 12.2.2-runtime-ubuntu22.04",
        ),
        (("FROM nvidia/cuda:12.2-runtime-ubuntu22.04", TF), "TFD502", WARNING, "Known are"),
        (("FROM nvidia/cuda:12.2.2-ubuntu22.04", TF), "TFD502", WARNING, "not among the tags"),
        (("FROM nvidia/cuda:12.2.2-cudnn9-runtime-ubuntu22.04", TF), "TFD502", WARNING, "not among the tags"),
        (
            ("FROM nvidia/cuda:99.9.9-runtime-ubuntu22.04", TF),
            "TFD502",
            INFO,
            "CUDA 99.9.9 is not in the table",
        ),
        (("FROM tensorflow/tensorflow:9.9.9-gpu",), "TFD502", INFO, "not known to this tfdoctor"),
        (("FROM tensorflow/tensorflow:nightly-gpu",), "TFD502", INFO, "not known to this tfdoctor"),
        (("FROM tensorflow/tensorflow:2.14.0-gpu",), "TFD502", None, ""),
        (("FROM nvcr.io/nvidia/tensorflow:99.01-tf2-py3",), "TFD502", INFO, "not known to this tfdoctor"),
        (("FROM nvcr.io/nvidia/tensorflow:23.03-tf1-py3",), "TFD502", None, ""),
        (
            ("FROM nvidia/cuda:12.2.2-devel-ubuntu22.04", TF),
            "TFD517",
            INFO,
            "FROM nvidia/cuda:12.2.2-runtime-ubuntu22.04",
        ),
        (("FROM nvidia/cuda:12.2.2-runtime-ubuntu22.04", TF), "TFD517", None, ""),
        (("FROM nvidia/cuda:10.0-devel", TF), "TFD517", None, ""),
        (("FROM nvidia/cuda:11.8-devel-ubuntu22.04", TF), "TFD517", None, ""),
        (("FROM tensorflow/tensorflow:2.18.0-gpu",), "TFD503", ERROR, "does not find its own CUDA libraries"),
        (("FROM tensorflow/tensorflow:latest-gpu",), "TFD503", ERROR, f"is {COMPAT.newest.version} today"),
        (("FROM tensorflow/tensorflow:2.14.0-gpu",), "TFD503", None, ""),
        (("FROM tensorflow/tensorflow:2.18.0",), "TFD503", None, ""),
        (
            ("FROM tensorflow/tensorflow:2.8.0-gpu", "RUN apt-get update"),
            "TFD513",
            WARNING,
            "retired repository key",
        ),
        (("FROM tensorflow/tensorflow:2.8.0-gpu",), "TFD513", None, ""),
        (("FROM tensorflow/tensorflow:2.8.0", "RUN apt-get update"), "TFD513", None, ""),
        (("FROM tensorflow/tensorflow:2.14.0-gpu", "RUN apt-get update"), "TFD513", None, ""),
        (
            (
                "FROM tensorflow/tensorflow:2.8.0-gpu",
                "RUN rm /etc/apt/sources.list.d/cuda.list",
                "RUN apt-get update",
            ),
            "TFD513",
            None,
            "",
        ),
        (
            ("FROM ubuntu:24.04", "RUN pip3 install tensorflow"),
            "TFD520",
            ERROR,
            "externally-managed-environment",
        ),
        # the version
        ((SLIM, "RUN pip install tensorflow>=2.4"), "TFD510", WARNING, "writes a file called =2.4"),
        ((SLIM, "RUN pip install tensorflow<2.4"), "TFD510", ERROR, "reads a file called 2.4"),
        ((SLIM, "RUN pip install 'tensorflow>=2.4'"), "TFD510", WARNING, "For Python 3.11 that is"),
        (("FROM x", "RUN pip install tensorflow"), "TFD510", WARNING, "With the newest Python that is"),
        ((SLIM, "RUN pip install tensorflow[and-cuda]"), "TFD510", WARNING, "'tensorflow[and-cuda]==2."),
        ((SLIM, "RUN pip install 'tensorflow<2.16'"), "TFD510", None, ""),
        ((SLIM, "RUN pip install tensorflow~=2.15"), "TFD510", None, ""),
        ((SLIM, "RUN pip install 'tensorflow!=2.15.*'"), "TFD510", None, ""),
        ((SLIM, TF), "TFD510", None, ""),
        (("FROM tensorflow/tensorflow:latest-gpu",), "TFD510", WARNING, "another image after each release"),
        ((f"FROM tensorflow/tensorflow:latest-gpu@sha256:{'0' * 64}",), "TFD510", None, ""),
        (("FROM tensorflow/tensorflow:2.14.0-gpu",), "TFD510", None, ""),
        # NVIDIA's wheels
        (
            (SLIM, "RUN pip install tensorflow==2.13.1 nvidia-cudnn-cu11==8.6.*"),
            "TFD511",
            ERROR,
            "Before 2.14 TensorFlow",
        ),
        (
            (
                SLIM,
                "ENV LD_LIBRARY_PATH=/usr/lib/python3.11/site-packages/x",
                "RUN pip install tensorflow==2.13.1 nvidia-cudnn-cu11==8.6.*",
            ),
            "TFD511",
            None,
            "",
        ),
        (
            (SLIM, "ENV LD_LIBRARY_PATH=/x", "RUN pip install tensorflow==2.13.1 nvidia-cudnn-cu11==8.6.*"),
            "TFD511",
            ERROR,
            "Before 2.14",
        ),
        (
            (
                SLIM,
                "RUN echo /x > /etc/ld.so.conf.d/x.conf",
                "RUN pip install tensorflow==2.13.1 nvidia-cudnn-cu11==8.6.*",
            ),
            "TFD511",
            None,
            "",
        ),
        ((SLIM, "RUN pip install tensorflow==2.15.1 nvidia-cudnn-cu12==8.9.*"), "TFD511", None, ""),
        # requirements
        (
            (SLIM, "RUN pip install tensorflow==2.15.1 numpy==2.0"),
            "TFD519",
            ERROR,
            "TensorFlow 2.15.1 asks for numpy",
        ),
        ((SLIM, "RUN pip install tensorflow==2.15.1 numpy==1.26.0"), "TFD519", None, ""),
        ((SLIM, "RUN pip install numpy==2.0"), "TFD519", None, ""),
        (("FROM ubuntu:20.04", "RUN pip3 install tensorflow==2.13.1 numpy==2.0"), "TFD519", None, ""),
        (
            ("FROM ubuntu:22.04", "RUN pip3 install tensorflow==2.13.1 numpy==2.0"),
            "TFD519",
            ERROR,
            "asks for numpy",
        ),
        (
            (
                "FROM ubuntu:20.04",
                "RUN pip3 install -U pip",
                "RUN pip3 install tensorflow==2.13.1 numpy==2.0",
            ),
            "TFD519",
            ERROR,
            "asks for numpy",
        ),
        (("FROM debian:10", "RUN pip3 install tensorflow==2.10.1 numpy==2.0"), "TFD519", None, ""),
        (("FROM debian:11", "RUN pip3 install tensorflow==2.10.1 numpy==2.0"), "TFD519", None, ""),
        # GPUs
        ((CUDA, TF, "ENV CUDA_VISIBLE_DEVICES=-1"), "TFD515", ERROR, "hides every GPU"),
        ((CUDA, TF, "ENV CUDA_VISIBLE_DEVICES=NoDevFiles"), "TFD515", ERROR, "hides every GPU"),
        ((CUDA, TF, 'ENV CUDA_VISIBLE_DEVICES=""'), "TFD515", ERROR, "hides every GPU"),
        ((CUDA, TF, "ENV CUDA_VISIBLE_DEVICES=0"), "TFD515", None, ""),
        ((CUDA, TF, "ENV CUDA_VISIBLE_DEVICES=$X"), "TFD515", None, ""),
        ((CUDA, TF, "ENV NVIDIA_VISIBLE_DEVICES=none"), "TFD515", WARNING, "gets no GPU"),
        ((CUDA, TF, "ENV NVIDIA_VISIBLE_DEVICES=void"), "TFD515", WARNING, "gets no GPU"),
        ((CUDA, TF, "ENV NVIDIA_VISIBLE_DEVICES=all"), "TFD515", None, ""),
        ((CUDA, TF, "ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility"), "TFD515", None, ""),
        ((CUDA, TF, "ENV NVIDIA_DRIVER_CAPABILITIES=all"), "TFD515", None, ""),
        # the rules of `check`
        ((SLIM, TF), "TFD201", ERROR, ""),
        ((SLIM, "RUN pip install tensorflow[and-cuda]==2.15.1"), "TFD201", None, ""),
        ((SLIM, "RUN pip install --no-deps tensorflow[and-cuda]==2.15.1"), "TFD201", None, ""),
        ((SLIM, "RUN pip install tensorflow-cpu==2.15.1"), "TFD303", ERROR, "has no GPU code"),
    ],
)
def test_finding(lines: tuple[str, ...], code: str, severity: Severity | None, text: str) -> None:
    findings = [finding for finding in list_findings(*lines) if finding.code == code]
    assert [finding.severity for finding in findings] == ([] if severity is None else [severity]), lines
    for finding in findings:
        remedies = [f"{remedy.text} {' '.join(remedy.commands)}" for remedy in finding.remedies]
        assert text in " ".join([finding.title, finding.explanation, *remedies])


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("==1.0", ">=1", True),
        ("==1.0", ">1", False),
        (">1", "<1.1", True),
        (">=2", "<2", False),
        ("<2", "<1", True),
        ("!=1.0", "==1.0", False),
        ("==1.*", "<1.0", False),
        ("", "==1", True),
        ("=1", "==2", True),
    ],
)
def test_two_specifiers_can_hold_together(first: str, second: str, expected: bool) -> None:
    assert _can_both_hold(first, second) is expected


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("RUN pip install tensorflow==2.15.1 six", [(["tensorflow==2.15.1", "six"], [], "3.11")]),
        (
            "RUN pip install 'tensorflow[x,a]==2.15.1' \"six>1; python_version > '3'\"",
            [(["tensorflow[a,x]==2.15.1", 'six>1; python_version > "3"'], [], "3.11")],
        ),
        ("RUN pip install tensorflow==2.15.1", []),
        ("RUN pip install tensorflow==2.15.1 pip", []),
        ("RUN pip install six keras", []),
        ("RUN pip install tensorflow==2.15.1 six .", []),
        ("RUN /opt/x/bin/pip install tensorflow==2.15.1 six", []),
    ],
)
def test_index_is_asked_about_complete_commands(line: str, asked: list[Any]) -> None:
    queries: list[Any] = []

    def query(requirements: Any, constraints: Any, python: str) -> Any:
        queries.append(([*requirements], [*constraints], python))
        return SimpleNamespace(conflict_reason="they conflict", unknown_reason="")

    findings = list_findings(SLIM, line, query_index=query)
    assert queries == asked
    assert [finding.explanation for finding in findings if finding.code == "TFD519"] == [
        "they conflict"
    ] * len(asked)


@pytest.mark.parametrize(
    ("python", "requirement", "replacement"),
    [
        ("3.13", "tensorflow", "'tensorflow[and-cuda]==2.20.0'"),
        ("3.12", "tensorflow==2.21.0", "'tensorflow[and-cuda]==2.20.0'"),
        ("3.12", "tensorflow==2.16.1", "'tensorflow[and-cuda]==2.16.2'"),
        ("3.11", "tensorflow==2.17.0", "'tensorflow[and-cuda]==2.17.0'"),
        ("3.11", "tensorflow==2.13.0", ""),
        ("3.9", "tensorflow==2.10.0", ""),
    ],
)
def test_image_of_python_is_kept_if_a_release_finds_its_wheels(
    python: str, requirement: str, replacement: str
) -> None:
    base = f"FROM python:{python}-slim"
    findings = list_findings(base, f"RUN pip install {requirement}")
    (remedies,) = [finding.remedies for finding in findings if finding.code == "TFD201"]
    if replacement:
        assert remedies[0].commands == (f"RUN pip install {replacement}",)
        assert not [
            finding for finding in list_findings(base, *remedies[0].commands) if finding.severity > INFO
        ]
    else:
        assert remedies[0].commands[0].startswith("tfdoctor build ")
    # nvidia/cuda has no Python
    assert remedies[-1].commands[0].startswith("FROM nvidia/cuda:")
    assert "It has no Python" in remedies[-1].text


def test_conflict_names_both_requirements() -> None:
    reply = SimpleNamespace(conflict_reason="they conflict", unknown_reason="")
    line = "RUN pip install 'six>1' tensorflow==2.15.1"
    findings = list_findings(SLIM, line, query_index=lambda *_: reply)
    texts = [finding.remedies[0].text for finding in findings if finding.code == "TFD519"]
    assert texts == ["Loosen six>1, or replace tensorflow==2.15.1 with a TensorFlow that accepts it."]


def test_index_that_does_not_answer_is_a_note() -> None:
    reply = SimpleNamespace(conflict_reason="", unknown_reason="no network")
    findings = list_findings(SLIM, "RUN pip install tensorflow==2.15.1 six", query_index=lambda *_: reply)
    assert [finding.severity for finding in findings if finding.code == "TFD519"] == [INFO]
