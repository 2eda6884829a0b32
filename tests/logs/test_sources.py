"""The TensorFlow release of a log, inferred from the source lines that its messages name."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compat.every_row import for_each
from tfdoctor.compat import Compat
from tfdoctor.core.causes.codes import RELEASE
from tfdoctor.core.findings import Cause
from tfdoctor.logs import sources
from tfdoctor.logs.report import LogReport, diagnose_log
from tfdoctor.logs.scan import scan
from tfdoctor.logs.signatures import load_signatures
from tfdoctor.logs.sources import identify_sources
from tfdoctor.render.log import make_log_json, render_log

COMPAT = Compat.load()
LAB = Path(__file__).parent / "lab"
CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "logs"
GPU = "tensorflow/core/common_runtime/gpu/gpu_device.cc"
DSO = "tensorflow/stream_executor/platform/default/dso_loader.cc"


def make_log(date: str, *messages: str) -> str:
    return "".join(f"{date} 10:00:{n:02}.000001: {message}\n" for n, message in enumerate(messages))


def diagnose_text(text: str) -> LogReport:
    return diagnose_log([text.encode()], COMPAT)


def release_note(report: LogReport) -> str:
    return next((finding.explanation for finding in report.findings if finding.code == RELEASE), "")


NO_SUCH_FILE = "cannot open shared object file: No such file or directory"
CUDART = f"Could not dlopen library 'libcudart.so.10.0'; dlerror: libcudart.so.10.0: {NO_SUCH_FILE}"
CUSOLVER = f"Could not load dynamic library 'libcusolver.so.10'; dlerror: libcusolver.so.10: {NO_SUCH_FILE}"
LINES_1_14 = (
    f"I {GPU}:1640] Found device 0 with properties:",
    f"I {DSO}:53] {CUDART}; LD_LIBRARY_PATH: /usr/local/cuda-10.1/lib64:",
    f"I {DSO}:42] Successfully opened dynamic library libcudnn.so.7",
    f"W {GPU}:1663] Cannot dlopen some GPU libraries. Skipping registering GPU devices...",
)
LINES_2_4 = (
    f"I {GPU}:1720] Found device 0 with properties:",
    f"W {DSO}:60] {CUSOLVER}",
    f"W {GPU}:1757] Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are",
)
CANDIDATE_2_2 = f"W {GPU}:1598] Cannot dlopen some GPU libraries."
TF_1_DEPRECATION = (
    "WARNING:tensorflow:From a.py:6: The name tf.Session is deprecated. "
    "Please use tf.compat.v1.Session instead."
)


# --- one release ---


def test_source_lines_determine_release_and_commands() -> None:
    report = diagnose_text(make_log("2020-09-11", *LINES_1_14))
    assert (report.tensorflow_version, report.era) == ("1.14", "1.14")
    assert report.cause is Cause.LIBS_WRONG_VERSION
    assert report.summary.startswith("TensorFlow 1.14: ")
    assert report.root_finding is not None
    commands = [command for remedy in report.root_finding.remedies for command in remedy.commands]
    assert {"tfdoctor matrix --tf 1.14", "tfdoctor build --tf 1.14"} <= set(commands)
    assert any("TensorFlow 1.14 needs CUDA 10.0" in remedy.text for remedy in report.root_finding.remedies)
    assert not any("has code for" in remedy.text for remedy in report.root_finding.remedies)
    for words in (
        "CUDA 10.1 is on LD_LIBRARY_PATH, but CUDA 10.0 is needed.",
        "libcudnn.so.7 was found.",
        "One card is present",
    ):
        assert words in report.root_finding.explanation
    assert release_note(report) == "1.14 (recognized by the source lines in the log)."
    assert all(evidence.line for finding in report.findings for evidence in finding.evidence)
    assert make_log_json(report)["tensorflow_version"] == "1.14"


def test_wrong_cuda_with_four_gpus() -> None:
    devices = "".join(
        f"2020-09-11 10:00:0{n}.000001: I {GPU}:1640] Found device {n} with properties: \n"
        "name: Tesla M60 major: 5 minor: 2 memoryClockRate(GHz): 1.1775\n"
        for n in range(4)
    )
    xla = "".join(
        f"/job:localhost/replica:0/task:0/device:XLA_GPU:{n} -> device: XLA_GPU device\n" for n in range(4)
    )
    report = diagnose_text(devices + make_log("2020-09-11", *LINES_1_14[1:]) + xla)
    assert (report.tensorflow_version, report.gpu_registered, report.registered_devices) == (
        "1.14",
        False,
        (),
    )
    assert report.root_finding is not None
    for words in (
        "10.1 is on LD_LIBRARY_PATH, but CUDA 10.0",
        "libcudnn.so.7 was found",
        "4 cards (Tesla M60) are present",
    ):
        assert words in report.root_finding.explanation
    build = next(
        item
        for item in report.root_finding.remedies
        if "tfdoctor build --tf 1.14 --gpu 'Tesla M60'" in item.commands
    )
    assert "It has code for Tesla M60." in build.text
    misread = next(item.explanation for item in report.findings if item.title == "Easily misread")
    assert "An XLA_GPU is not a registered GPU" in misread
    short = render_log(report, max_lines=20)
    assert len(short.splitlines()) <= 20
    assert "An XLA_GPU is not a registered GPU: operations run on the CPU." in short


def test_custom_build_for_another_cuda_is_recognized() -> None:
    report = diagnose_text(make_log("2020-09-11", *LINES_1_14).replace(".so.10.0", ".so.10.1"))
    assert report.tensorflow_version == "1.14"
    assert report.root_finding is not None
    assert "CUDA 10.0" not in report.root_finding.remedies[0].text
    assert report.root_finding.remedies[0].commands == ("tfdoctor build --tf 1.14",)


def test_patches_with_the_same_lines_give_the_minor() -> None:
    assert diagnose_text(make_log("2021-09-01", *LINES_2_4)).tensorflow_version == "2.4"


def test_ambiguous_line_gives_a_range_of_releases() -> None:
    report = diagnose_text(make_log("2023-09-11", f"W {GPU}:1934] Cannot dlopen some GPU libraries."))
    assert (report.tensorflow_version, report.era) == (None, "2.10-2.11")
    assert "2.10-2.11 (recognized" in release_note(report)


def test_stated_version_stays_if_the_lines_agree() -> None:
    report = diagnose_text("tensorflow version: 2.4.1\n" + make_log("2021-09-01", *LINES_2_4))
    assert report.tensorflow_version == "2.4.1"
    assert not release_note(report)


def test_source_lines_outweigh_a_named_release() -> None:
    report = diagnose_text(
        "Successfully installed tensorflow-gpu-2.4.1\n" + make_log("2020-09-11", *LINES_1_14)
    )
    assert report.tensorflow_version == "1.14"


def test_dll_names_distinguish_releases_with_the_same_lines() -> None:
    lines = (
        f"W {DSO}:55] Could not load dynamic library 'cudart64_100.dll'; dlerror: cudart64_100.dll not found"
    )
    stub = "I tensorflow/stream_executor/cuda/cudart_stub.cc:29] Ignore above cudart dlerror if you do not have a GPU"
    assert diagnose_text(make_log("2020-12-02", lines, stub)).era in ("1.15", "1.15-2.0")


@pytest.mark.parametrize("where", ["", "C:\\tf_jenkins\\workspace\\", "external/org_tensorflow/"])
def test_path_prefix_of_a_build_is_ignored(where: str) -> None:
    text = make_log("2020-09-11", *LINES_1_14).replace("I tensorflow/", f"I {where}tensorflow/")
    assert diagnose_text(text.replace("W tensorflow/", f"W {where}tensorflow/")).era == "1.14"


# --- no release ---


def test_unknown_source_line_means_another_build() -> None:
    report = diagnose_text(make_log("2020-09-11", *LINES_1_14, f"I {GPU}:9] Adding visible gpu devices: 0"))
    assert report.tensorflow_version is None
    assert "another build" in release_note(report)


def test_lines_without_a_common_release_give_none() -> None:
    report = diagnose_text(make_log("2022-09-11", LINES_1_14[0], LINES_2_4[0]))
    assert report.tensorflow_version is None
    assert "another build" in release_note(report)


def test_log_older_than_a_release_is_not_of_it() -> None:
    report = diagnose_text(make_log("2020-11-14", *LINES_2_4[:1]))
    assert report.tensorflow_version is None
    assert "come from different releases." in release_note(report)
    candidate = diagnose_text(
        make_log(
            "2020-04-14", f"I {DSO}:44] Successfully opened dynamic library libcudart.so.10.1", CANDIDATE_2_2
        )
    )
    assert (
        candidate.tensorflow_version is None
    )  # a candidate of 2.2 or a nightly: its commands name the nearest release
    assert candidate.root_finding is not None
    assert any("tfdoctor build --tf 2.2" in remedy.commands for remedy in candidate.root_finding.remedies)
    seconds = "E0000 00:00:1500000000.960447  222489 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error"
    assert diagnose_text(f"{seconds}\n").tensorflow_version is None
    assert diagnose_text(f"{seconds.replace('15000', '17751', 1)}\n").tensorflow_version == "2.21"


def test_unmeasured_betas_are_considered() -> None:
    assert diagnose_text(make_log("2019-08-19", *LINES_1_14)).era == "1.14-2.0"
    assert (
        diagnose_text(f"{TF_1_DEPRECATION}\n" + make_log("2019-08-19", *LINES_1_14)).tensorflow_version
        == "1.14"
    )


def test_lines_of_other_programs_are_ignored() -> None:
    text = (
        make_log("2020-09-11", *LINES_1_14)
        + "[2020-09-11 10:00:00.1: D horovod/common/gloo/gloo_context.cc:123] rendezvous\n"
    )
    text += "E0000 00:00:1775118342.960447  222489 pjrt_stream_executor_client.cc:9] Execution of replica 0 failed\n"
    assert diagnose_text(text).tensorflow_version == "1.14"


# --- several releases ---


@pytest.mark.parametrize("mixed", [False, True])
def test_two_releases_in_one_log_are_separated(mixed: bool) -> None:
    first, second = (
        make_log("2021-09-11", *LINES_1_14).splitlines(),
        make_log("2021-09-11", *LINES_2_4).splitlines(),
    )
    lines = [line for pair in zip(first, second, strict=False) for line in pair] if mixed else first + second
    report = diagnose_text("\n".join(lines) + "\n")
    assert [process.label for process in report.processes] == ["TensorFlow 1.14", "TensorFlow 2.4"]
    assert report.tensorflow_version in ("1.14", "2.4")
    assert report.root_finding is not None
    commands = " ".join(command for remedy in report.root_finding.remedies for command in remedy.commands)
    assert f"--tf {report.tensorflow_version}" in commands


def test_each_named_process_has_its_release() -> None:
    text = "".join(
        f"(pid=1) {line}\n(pid=2) {other}\n" for line, other in zip(LINES_1_14, [*LINES_2_4, ""], strict=True)
    )
    report = diagnose_text(text)
    assert [process.summary.partition(":")[0] for process in report.processes] == [
        "TensorFlow 1.14",
        "TensorFlow 2.4",
    ]


def test_quoted_old_session_does_not_change_the_report() -> None:
    quoted = (
        "/job:localhost/replica:0/task:0/gpu:0 -> device: 0, name: Tesla K40c, pci bus id: 0000:05:00.0\n"
    )
    assert diagnose_text(quoted).gpu_registered is True
    report = diagnose_text(
        make_log("2020-09-11", *LINES_1_14) + "You should see:\n" + quoted + "![](E:\\blog\\source\\a.png)\n"
    )
    assert report.gpu_registered is not True
    assert report.cause is Cause.LIBS_WRONG_VERSION
    assert report.root_finding is not None
    assert any("tfdoctor build --tf 1.14" in remedy.commands for remedy in report.root_finding.remedies)


def test_beta_is_recognized_by_the_file_that_differs() -> None:
    numa = "successful NUMA node read from SysFS had negative value (-1)"
    executor = "tensorflow/stream_executor/cuda/cuda_gpu_executor.cc"
    beta = make_log("2019-07-11", f"I {executor}:1006] {numa}", *LINES_1_14)
    assert (diagnose_text(beta).tensorflow_version, diagnose_text(beta).era) == ("2.0", "2.0")
    assert (
        diagnose_text(beta.replace("2019-07", "2020-02")).era == "2.0"
    )  # no other release has these lines, whatever the date
    assert diagnose_text(beta.replace(":1006]", ":1005]")).tensorflow_version == "1.14"
    assert diagnose_text(make_log("2019-07-11", *LINES_1_14)).era == "1.14-2.0"


def test_wording_distinguishes_releases_with_the_same_lines() -> None:
    service = "tensorflow/compiler/xla/service/service.cc"
    lines = (
        "E tensorflow/stream_executor/cuda/cuda_driver.cc:318] failed call to cuInit: UNKNOWN ERROR (303)",
        f"I {service}:168] XLA service 0x1 executing computations on platform Host. Devices:",
    )
    assert diagnose_text(make_log("2023-03-06", *lines)).era == "1.14-2.0"
    old = diagnose_text(
        make_log(
            "2023-03-06", *lines, f"I {service}:175]   StreamExecutor device (0): <undefined>, <undefined>"
        )
    )
    assert old.tensorflow_version == "1.14"
    assert release_note(old).startswith("Of the releases with these source lines, only TensorFlow 1.14")
    new = make_log(
        "2023-03-06", *lines, f"I {service}:175]   StreamExecutor device (0): Host, Default Version"
    )
    assert diagnose_text(new).tensorflow_version == "2.0"


def test_release_is_not_older_than_its_cudnn() -> None:
    dnn = (
        "E tensorflow/stream_executor/cuda/cuda_dnn.cc:324] Loaded runtime CuDNN library: 7.3.1 but source was "
        "compiled with: {}."
    )
    assert diagnose_text(make_log("2020-07-05", dnn.format("7.1.4"))).tensorflow_version is None
    assert diagnose_text(make_log("2020-07-05", dnn.format("7.5.0"))).tensorflow_version == "1.13"


# --- real logs ---


def test_table_has_every_source_line_of_the_lab() -> None:
    """The table is read from machine code; the lab logs are what the wheels printed."""
    catalogue = load_signatures()
    line_counts: dict[str, int] = {}
    missing: list[str] = []
    for name, expected in json.loads((LAB / "expected.json").read_text(encoding="utf-8")).items():
        release = expected["tensorflow"]
        log = scan([(LAB / name).read_bytes()], catalogue)
        for event in log.list_events("source-line"):
            message = event.text.partition("]")[2]
            releases = COMPAT.source_lines.find_releases(event.get("path"), int(event.get("number")), message)
            if releases is not None:
                line_counts[release] = line_counts.get(release, 0) + 1
                if release not in releases:
                    missing.append(f"{name}: {event.text[:120]}")
    assert not missing
    assert len(line_counts) >= 16
    assert sum(line_counts.values()) > 1200


def test_lab_logs_have_the_right_release() -> None:
    identified = 0
    for name, expected in json.loads((LAB / "expected.json").read_text(encoding="utf-8")).items():
        report = diagnose_log([(LAB / name).read_bytes()], COMPAT)
        minor = ".".join(expected["tensorflow"].split(".")[:2])
        if report.tensorflow_version is not None:
            assert expected["tensorflow"].startswith(report.tensorflow_version), name
            identified += report.tensorflow_version in (minor, expected["tensorflow"])
    assert identified > 200


# --- tracebacks of TensorFlow's Python files ---

PACKAGES = "/opt/env/lib/python3.6/site-packages/tensorflow"


def format_frame(
    function: str, release: str, file: str = "client/session.py", packages: str = PACKAGES
) -> str:
    """Return the frame of a traceback in this release, at the middle line of the function."""
    folder = packages.rpartition("/")[2]
    entries = COMPAT.functions.files[f"{folder}/python/{file}"].spans_by_function[function].split()
    index = COMPAT.functions.releases.index(release)
    for entry in entries:
        span, _, release_spans = entry.partition(":")
        first, last = map(int, span.split("-"))
        for release_span in release_spans.split(","):
            low, _, high = release_span.partition("-")
            if int(low) <= index <= int(high or low):
                return f'  File "{packages}/python/{file}", line {(first + last) // 2}, in {function}\n'
    raise AssertionError(function)


def test_traceback_alone_gives_the_release() -> None:
    text = "".join(format_frame(name, "1.12.0") for name in ("run", "_run", "_do_run", "_do_call"))
    report = diagnose_text(
        f"Traceback (most recent call last):\n{text}x.InternalError: Blas GEMM launch failed\n"
    )
    assert report.era == "1.12-1.13"


def test_traceback_and_source_lines_narrow_the_release() -> None:
    line = make_log("2020-09-11", f"I {DSO}:44] Successfully opened dynamic library libcudart.so.10.1")
    text = format_frame("_do_call", "2.1.0", packages=f"{PACKAGES}_core")
    assert diagnose_text(line).tensorflow_version is None
    assert diagnose_text(line + text).tensorflow_version == "2.1"


def test_frame_that_contradicts_source_lines_is_ignored() -> None:
    assert (
        diagnose_text(
            make_log("2020-09-11", *LINES_1_14) + format_frame("_do_call", "2.15.0")
        ).tensorflow_version
        == "1.14"
    )


@pytest.mark.parametrize(
    "text",
    [
        '  File "/w/tensorflow/python/client/session.py", line 1334, in _do_call\n',
        f'  File "{PACKAGES}/python/client/session.py", line 99999, in _do_call\n',
        f'  File "{PACKAGES}/python/client/session.py", line 1334, in my_own\n',
        f'  File "{PACKAGES}/python/nobody.py", line 1334, in run\n',
    ],
)
def test_unknown_frames_are_ignored(text: str) -> None:
    assert (diagnose_text(text).tensorflow_version, diagnose_text(text).era) == (None, None)


def test_frames_of_two_releases_give_no_release() -> None:
    text = format_frame("_do_call", "1.12.0") + format_frame("_do_call", "2.15.0")
    assert diagnose_text(text).tensorflow_version is None


# --- release candidates and nightlies ---


def test_log_soon_before_a_release_is_a_candidate_or_nightly() -> None:
    late, early = (
        diagnose_text(make_log("2021-09-01", *LINES_2_4)),
        diagnose_text(make_log("2020-11-20", *LINES_2_4)),
    )
    assert (late.tensorflow_version, late.era) == ("2.4", "2.4")
    assert (early.tensorflow_version, early.era) == (None, "2.4-2.5")
    assert "2.5" not in " ".join(
        list_named_releases(early)
    )  # the commands name the release that has these lines
    assert "2.4" in list_named_releases(early)
    assert diagnose_text(make_log("2020-05-01", *LINES_2_4)).era != "2.4-2.5"
    assert (
        "a candidate of 2.4 or a nightly build (it has the source lines of 2.4; the log is older)"
        in release_note(early)
    )


@pytest.mark.parametrize(
    ("date", "era"), [("2019-05-25", "1.14"), ("2019-06-16", "1.14-1.15"), ("2019-07-29", "1.14-2.0")]
)
def test_date_limits_nightly_releases(date: str, era: str) -> None:
    assert diagnose_text(make_log(date, *LINES_1_14)).era == era


def test_few_lines_exclude_releases_without_them() -> None:
    text = f"W {DSO}:55] {CUSOLVER.replace('cusolver.so.10', 'cudart.so.10.0')}"
    assert diagnose_text(make_log("2019-09-20", text)).era == "1.15-2.1"


# --- wording of messages ---


def test_wording_alone_gives_the_release() -> None:
    assert (
        diagnose_text("Cannot dlopen some GPU libraries. Skipping registering GPU devices...\n").era == "1.14"
    )
    new = "Created device /job:localhost/replica:0/task:0/device:GPU:0 with 9 MB memory:  -> device: 0, name: Tesla T4,"
    assert (diagnose_text(f"{new} pci bus id: 0000:00:04.0, compute capability: 7.5").era or "").startswith(
        "2.6"
    )


@for_each(sorted(LAB.glob("*.log")), lambda path: path.stem)
def test_lab_logs_agree_with_the_eras_of_wordings(path: Path) -> None:
    text = path.read_text(encoding="utf-8", errors="replace")
    minor = tuple(map(int, path.name.split(".")[:2]))
    for wording in load_signatures().wordings:
        if wording.text in text:
            first, last = (tuple(map(int, bound.split("."))) if bound else minor for bound in wording.era)
            assert first <= minor <= last, wording.text


# --- releases in commands ---


def list_named_releases(report: LogReport) -> set[str]:
    """Return the releases that the commands of a report name."""
    commands = [
        line for finding in report.findings for remedy in finding.remedies for line in remedy.commands
    ]
    releases = {version for line in commands for version in re.findall(r"--tf[ =]'?([\d.]+)", line)}
    return releases | {
        version for line in commands for version in re.findall(r"tensorflow(?:-gpu)?==([\d.]+)", line)
    }


@pytest.mark.parametrize("seed", range(60))
def test_commands_name_no_release_that_lines_exclude(seed: int) -> None:
    rng = random.Random(seed)
    table = COMPAT.source_lines
    release = rng.choice(table.releases)
    files = [
        file for file in (GPU, DSO, "tensorflow/core/platform/cpu_feature_guard.cc") if file in table.files
    ]
    lines = [
        (file, int(entry.partition(":")[0]))
        for file in files
        for entry in table.files[file].lines.split()
        if release in (table.find_releases(file, int(entry.partition(":")[0])) or ())
    ]
    chosen = rng.sample(lines, min(len(lines), 4))
    fitting = frozenset(table.releases).intersection(
        *(table.find_releases(file, line) or () for file, line in chosen)
    )
    messages = [f"W {file}:{line}] what is said there" for file, line in chosen]
    messages.append("W Cannot dlopen some GPU libraries.")
    report = diagnose_text(make_log("2026-09-11", *messages))
    assert report.gpu_registered is False
    for version in list_named_releases(report):
        assert any(candidate == version or candidate.startswith(f"{version}.") for candidate in fitting), (
            version,
            fitting,
        )
    assert report.tensorflow_version is None or any(
        candidate == report.tensorflow_version or candidate.startswith(f"{report.tensorflow_version}.")
        for candidate in fitting
    )


@pytest.mark.parametrize("path", sorted(LAB.glob("*.log")), ids=lambda path: path.stem)
@pytest.mark.few(60)
def test_commands_for_lab_logs_name_no_impossible_release(path: Path) -> None:
    report = diagnose_log([path.read_bytes()], COMPAT)
    minors = list(dict.fromkeys(release.minor for release in COMPAT.releases))
    low, _, high = (report.era or f"{minors[0]}-{minors[-1]}").partition("-")
    possible = minors[
        minors.index(low.rstrip("+")) : minors.index(high or low) + 1 if "+" not in low else None
    ]
    assert ".".join(path.name.split(".")[:2]) in possible
    for version in list_named_releases(report):
        assert ".".join(version.split(".")[:2]) in possible


def list_logs() -> list[Path]:
    """Return the logs of the lab, and the real ones if the corpus is present."""
    return sorted([*LAB.glob("*.log"), *CORPUS.glob("*/log.txt")])


@pytest.mark.parametrize("path", list_logs(), ids=lambda path: f"{path.parent.name}-{path.stem}")
@pytest.mark.few(60)
def test_commands_for_real_logs_name_possible_releases(path: Path) -> None:
    log = path.read_bytes()
    catalogue = load_signatures()
    writers = identify_sources(scan([log], catalogue), COMPAT).writers
    if not writers:
        return
    possible = {release for writer in writers for release in writer.releases}
    report = diagnose_log([log], COMPAT)
    for version in {*list_named_releases(report), report.tensorflow_version} - {None}:
        assert any(candidate == version or candidate.startswith(f"{version}.") for candidate in possible), (
            version,
            possible,
        )


# --- other builds, and nightlies between two releases ---


def list_lines_of(release: str, *files: str, without: str = "", count: int = 3) -> list[str]:
    """Return messages whose source lines are in this release, and not in the release `without`."""
    table = COMPAT.source_lines
    messages = []
    for file in files:
        numbers = [int(entry.partition(":")[0]) for entry in table.files[file].lines.split()]
        matching = [
            number
            for number in numbers
            if release in (releases := table.find_releases(file, number) or ())
            and (without not in releases or not without)
        ]
        messages += [f"W {file}:{number}] " for number in matching[:count]]
    return messages


def test_candidate_and_rocm_build_give_the_minor() -> None:
    builds = [build.version for build in COMPAT.source_lines.unpublished_builds]
    assert any("rocm" in build for build in builds)
    assert any(build.startswith("0.12") for build in builds)
    lines = list_lines_of("2.13.1.600+rocm", GPU, without="2.13.1", count=8)
    assert diagnose_text(make_log("2024-02-01", *lines)).era == "2.13"


def test_lines_of_two_adjacent_releases_mean_a_nightly() -> None:
    newer = list_lines_of("2.3.0", GPU, without="2.2.0", count=4)
    older = list_lines_of("2.2.0", "tensorflow/stream_executor/cuda/cuda_driver.cc", without="2.3.0", count=1)
    report = diagnose_text(make_log("2020-05-31", *newer, *older))
    assert (report.tensorflow_version, report.era) == (None, "2.3")
    far = list_lines_of("1.14.0", "tensorflow/stream_executor/cuda/cuda_driver.cc", without="2.3.0", count=2)
    assert diagnose_text(make_log("2020-05-31", *newer, *far)).era != "2.3"


def test_other_build_can_be_of_the_next_release() -> None:
    opened = f"I {DSO}:49] Successfully opened dynamic library libcudart.so.10.1"
    assert diagnose_text(opened.replace(":49]", "]")).era == "2.1-2.3"
    assert diagnose_text(make_log("2020-11-14", opened, f"I {GPU}:9] Found device 0")).era == "2.1-2.4"


def test_early_nightly_has_the_number_of_its_lines() -> None:
    lines = list_lines_of("2.11.0", GPU, without="2.12.0", count=4)
    candidate = min(
        build.released for build in COMPAT.source_lines.unpublished_builds if build.version == "2.11.0rc0"
    )
    assert candidate > "2022-10-01"
    assert diagnose_text(make_log("2022-09-19", *lines)).era == "2.11"
    assert diagnose_text(make_log("2022-11-10", *lines)).era == "2.11-2.12"


def test_dll_name_gives_the_cuda_version() -> None:
    text = (
        "ImportError: Could not find 'cudart64_100.dll'. TensorFlow requires that this DLL be installed in a directory "
        "that is named in your %PATH% environment variable. Download and install CUDA 10.0 from this URL: "
    )
    assert diagnose_text(text).era == "1.13-2.0"


def test_notebook_arrow_marks_the_line_that_ran() -> None:
    text = (
        "~/env/lib/python3.6/site-packages/tensorflow/python/platform/self_check.py in preload_check()\n"
        '     80               "environment variable. Download and install CUDA %s from "\n'
        "---> 82               % (build_info.cudart_dll_name, build_info.cuda_version_number))\n"
    )
    assert diagnose_text(text).era == "1.4-1.14"
    assert diagnose_text(f"{text}ImportError: Could not find 'cudart64_100.dll'.\n").era == "1.13-1.14"
    assert diagnose_text(text.replace("self_check.py in preload_check()", "nobody.py in run()")).era is None


def test_frame_without_module_tag_is_module_level() -> None:
    packages = "C:\\env\\lib\\site-packages\\tensorflow\\python"
    text = f'Traceback (most recent call last):\n  File "{packages}\\pywrap_tensorflow.py", line 62, in '
    end = "\nfrom tensorflow.python._pywrap_tensorflow_internal import *\nImportError: DLL load failed"
    assert (
        diagnose_text(f"{text}<module>{end}: x\n").era == diagnose_text(f"{text}{end}: x\n").era == "1.5-2.14"
    )
    assert diagnose_text(f"{text}{end} while importing _pywrap_tensorflow_internal: x\n").era == "2.9-2.14"


def test_python_without_a_wheel_is_ignored() -> None:
    line = make_log("2024-09-11", f"W {GPU}:1934] Cannot dlopen some GPU libraries.")
    format_frame = (
        '  File "/opt/env/lib/python3.7/site-packages/tensorflow/python/nobody.py", line 1, in run\n'
    )
    assert diagnose_text(line).era == "2.10-2.11"
    eleven = format_frame.replace("3.7", "3.11")
    assert (
        diagnose_text(line + eleven).era == "2.10-2.11"
    )  # no release has a wheel for it, so this is a custom build


@pytest.mark.parametrize(("lines", "numbers"), [((0,), [7]), ((1,), []), ((-5, 0), [7]), ((1, 0), [7])])
def test_arrow_belongs_to_the_header_a_few_lines_before(lines: tuple[int, ...], numbers: list[int]) -> None:
    header, arrow = {"path": "a.py", "function": "f("}, {"number": "7"}
    events = [
        SimpleNamespace(id="python-frame-shown", line=10, get=header.get),
        *(
            SimpleNamespace(id="python-arrow", line=10 + sources._MAX_ARROW_LINES + line, get=arrow.get)
            for line in lines
        ),
    ]
    log: Any = SimpleNamespace(list_events=lambda *names: events if "python-arrow" in names else [])
    found = [(path, number, function) for _, path, number, function in sources._iter_frames(log)]
    assert found == [("a.py", number, "f") for number in numbers]
