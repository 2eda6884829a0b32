"""Which TensorFlow wrote a log, by the lines of its source that the messages name."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from tfdoctor.causes.codes import RELEASE
from tfdoctor.compat import Compat
from tfdoctor.findings import Cause
from tfdoctor.logs.report import LogReport, diagnose_log
from tfdoctor.logs.scan import scan
from tfdoctor.logs.signatures import load_signatures
from tfdoctor.logs.sources import identify_sources
from tfdoctor.render.log import log_json, render_log

COMPAT = Compat.load()
LAB = Path(__file__).parent / "lab"
CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "logs"
GPU = "tensorflow/core/common_runtime/gpu/gpu_device.cc"
DSO = "tensorflow/stream_executor/platform/default/dso_loader.cc"


def make_output(date: str, *messages: str) -> str:
    return "".join(f"{date} 10:00:{n:02}.000001: {message}\n" for n, message in enumerate(messages))


def diagnose_text(text: str) -> LogReport:
    return diagnose_log([text.encode()], COMPAT)


def note(report: LogReport) -> str:
    return next((finding.explanation for finding in report.findings if finding.code == RELEASE), "")


MISSING = "cannot open shared object file: No such file or directory"
CUDART = f"Could not dlopen library 'libcudart.so.10.0'; dlerror: libcudart.so.10.0: {MISSING}"
CUSOLVER = f"Could not load dynamic library 'libcusolver.so.10'; dlerror: libcusolver.so.10: {MISSING}"
OLD = (
    f"I {GPU}:1640] Found device 0 with properties:",
    f"I {DSO}:53] {CUDART}; LD_LIBRARY_PATH: /usr/local/cuda-10.1/lib64:",
    f"I {DSO}:42] Successfully opened dynamic library libcudnn.so.7",
    f"W {GPU}:1663] Cannot dlopen some GPU libraries. Skipping registering GPU devices...",
)
NEW = (
    f"I {GPU}:1720] Found device 0 with properties:",
    f"W {DSO}:60] {CUSOLVER}",
    f"W {GPU}:1757] Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are",
)
CANDIDATE = f"W {GPU}:1598] Cannot dlopen some GPU libraries."
NAMES = "WARNING:tensorflow:From a.py:6: The name tf.Session is deprecated. Please use tf.compat.v1.Session instead."


# --- one release ---


def test_the_lines_name_the_release_and_its_commands() -> None:
    report = diagnose_text(make_output("2020-09-11", *OLD))
    assert (report.tensorflow_version, report.era) == ("1.14", "1.14")
    assert report.cause is Cause.LIBS_WRONG_VERSION
    assert report.summary.startswith("TensorFlow 1.14: ")
    assert report.root is not None
    commands = [command for remedy in report.root.remedies for command in remedy.commands]
    assert {"tfdoctor matrix --tf 1.14", "tfdoctor build --tf 1.14"} <= set(commands)
    assert any("TensorFlow 1.14 needs CUDA 10.0" in remedy.text for remedy in report.root.remedies)
    assert not any("has code for" in remedy.text for remedy in report.root.remedies)
    for words in (
        "CUDA 10.1 is on LD_LIBRARY_PATH, but CUDA 10.0 is needed.",
        "libcudnn.so.7 was found.",
        "One card is present",
    ):
        assert words in report.root.explanation
    assert note(report) == "Only TensorFlow 1.14 has these source lines."
    assert all(evidence.line for finding in report.findings for evidence in finding.evidence)
    assert log_json(report)["tensorflow_version"] == "1.14"


def test_four_cards_beside_another_cuda_than_the_one_that_is_wanted() -> None:
    found = "".join(
        f"2020-09-11 10:00:0{n}.000001: I {GPU}:1640] Found device {n} with properties: \n"
        "name: Tesla M60 major: 5 minor: 2 memoryClockRate(GHz): 1.1775\n"
        for n in range(4)
    )
    xla = "".join(
        f"/job:localhost/replica:0/task:0/device:XLA_GPU:{n} -> device: XLA_GPU device\n" for n in range(4)
    )
    report = diagnose_text(found + make_output("2020-09-11", *OLD[1:]) + xla)
    assert (report.tensorflow_version, report.gpu_registered, report.devices) == ("1.14", False, ())
    assert report.root is not None
    for words in (
        "10.1 is on LD_LIBRARY_PATH, but CUDA 10.0",
        "libcudnn.so.7 was found",
        "4 cards are present",
    ):
        assert words in report.root.explanation
    build = next(
        one for one in report.root.remedies if "tfdoctor build --tf 1.14 --gpu 'Tesla M60'" in one.commands
    )
    assert "It has code for Tesla M60." in build.text
    misread = next(one.explanation for one in report.findings if one.title == "Easily misread")
    assert "An XLA_GPU is not a registered GPU" in misread
    short = render_log(report, room=20)
    assert len(short.splitlines()) <= 20
    assert "An XLA_GPU is not a registered GPU: operations run on the CPU." in short


def test_a_build_for_another_cuda_has_the_lines_and_not_the_needs_of_the_release() -> None:
    report = diagnose_text(make_output("2020-09-11", *OLD).replace(".so.10.0", ".so.10.1"))
    assert report.tensorflow_version == "1.14"
    assert report.root is not None
    assert "CUDA 10.0" not in report.root.remedies[0].text
    assert report.root.remedies[0].commands == ("tfdoctor build --tf 1.14",)


def test_patches_that_share_all_lines_are_named_by_their_minor() -> None:
    assert diagnose_text(make_output("2021-09-01", *NEW)).tensorflow_version == "2.4"


def test_one_line_can_be_of_several_releases() -> None:
    report = diagnose_text(make_output("2023-09-11", f"W {GPU}:1934] Cannot dlopen some GPU libraries."))
    assert (report.tensorflow_version, report.era) == (None, "2.10-2.11")
    assert "TensorFlow 2.10-2.11" in note(report)


def test_what_the_log_states_stays_where_the_lines_agree() -> None:
    report = diagnose_text("tensorflow version: 2.4.1\n" + make_output("2021-09-01", *NEW))
    assert report.tensorflow_version == "2.4.1"
    assert not note(report)


def test_lines_outweigh_a_release_that_is_named_beside_them() -> None:
    report = diagnose_text("Successfully installed tensorflow-gpu-2.4.1\n" + make_output("2020-09-11", *OLD))
    assert report.tensorflow_version == "1.14"


def test_names_of_dlls_tell_releases_apart_that_share_their_lines() -> None:
    lines = (
        f"W {DSO}:55] Could not load dynamic library 'cudart64_100.dll'; dlerror: cudart64_100.dll not found"
    )
    stub = "I tensorflow/stream_executor/cuda/cudart_stub.cc:29] Ignore above cudart dlerror if you do not have a GPU"
    assert diagnose_text(make_output("2020-12-02", lines, stub)).era in ("1.15", "1.15-2.0")


@pytest.mark.parametrize("where", ["", "C:\\tf_jenkins\\workspace\\", "external/org_tensorflow/"])
def test_what_a_build_puts_before_a_path_changes_nothing(where: str) -> None:
    text = make_output("2020-09-11", *OLD).replace("I tensorflow/", f"I {where}tensorflow/")
    assert diagnose_text(text.replace("W tensorflow/", f"W {where}tensorflow/")).era == "1.14"


# --- none that can be named ---


def test_a_line_that_no_release_has_is_of_another_build() -> None:
    report = diagnose_text(make_output("2020-09-11", *OLD, f"I {GPU}:9] Adding visible gpu devices: 0"))
    assert report.tensorflow_version is None
    assert "another build" in note(report)


def test_lines_that_share_no_release_by_chance_name_none() -> None:
    report = diagnose_text(make_output("2022-09-11", OLD[0], NEW[0]))
    assert report.tensorflow_version is None
    assert "another build" in note(report)


def test_a_log_from_before_a_release_is_not_of_it() -> None:
    report = diagnose_text(make_output("2020-11-14", *NEW[:1]))
    assert report.tensorflow_version is None
    assert "come from different releases: the release" in note(report)
    ahead = diagnose_text(
        make_output(
            "2020-04-14", f"I {DSO}:44] Successfully opened dynamic library libcudart.so.10.1", CANDIDATE
        )
    )
    assert (
        ahead.tensorflow_version is None
    )  # a candidate of 2.2, or a nightly: its commands are for what is nearest
    assert ahead.root is not None
    assert any("tfdoctor build --tf 2.2" in remedy.commands for remedy in ahead.root.remedies)
    seconds = "E0000 00:00:1500000000.960447  222489 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error"
    assert diagnose_text(f"{seconds}\n").tensorflow_version is None
    assert diagnose_text(f"{seconds.replace('15000', '17751', 1)}\n").tensorflow_version == "2.21"


def test_betas_that_nobody_can_measure_are_thought_of() -> None:
    assert diagnose_text(make_output("2019-08-19", *OLD)).era == "1.14-2.0"
    assert diagnose_text(f"{NAMES}\n" + make_output("2019-08-19", *OLD)).tensorflow_version == "1.14"


def test_lines_of_other_programs_say_nothing() -> None:
    text = (
        make_output("2020-09-11", *OLD)
        + "[2020-09-11 10:00:00.1: D horovod/common/gloo/gloo_context.cc:123] rendezvous\n"
    )
    text += "E0000 00:00:1775118342.960447  222489 pjrt_stream_executor_client.cc:9] Execution of replica 0 failed\n"
    assert diagnose_text(text).tensorflow_version == "1.14"


# --- several ---


@pytest.mark.parametrize("mixed", [False, True])
def test_two_releases_in_one_log_are_told_apart(mixed: bool) -> None:
    first, second = make_output("2021-09-11", *OLD).splitlines(), make_output("2021-09-11", *NEW).splitlines()
    lines = [line for both in zip(first, second, strict=False) for line in both] if mixed else first + second
    report = diagnose_text("\n".join(lines) + "\n")
    assert [process.label for process in report.processes] == ["TensorFlow 1.14", "TensorFlow 2.4"]
    assert report.tensorflow_version in ("1.14", "2.4")
    assert report.root is not None
    commands = " ".join(command for remedy in report.root.remedies for command in remedy.commands)
    assert f"--tf {report.tensorflow_version}" in commands


def test_processes_with_names_have_their_own_release() -> None:
    text = "".join(f"(pid=1) {line}\n(pid=2) {other}\n" for line, other in zip(OLD, [*NEW, ""], strict=True))
    report = diagnose_text(text)
    assert [process.summary.partition(":")[0] for process in report.processes] == [
        "TensorFlow 1.14",
        "TensorFlow 2.4",
    ]


def test_a_page_that_quotes_an_old_session_is_read_as_the_log_that_it_has() -> None:
    quoted = (
        "/job:localhost/replica:0/task:0/gpu:0 -> device: 0, name: Tesla K40c, pci bus id: 0000:05:00.0\n"
    )
    assert diagnose_text(quoted).gpu_registered is True
    report = diagnose_text(
        make_output("2020-09-11", *OLD) + "You should see:\n" + quoted + "![](E:\\blog\\source\\a.png)\n"
    )
    assert report.gpu_registered is not True
    assert report.cause is Cause.LIBS_WRONG_VERSION
    assert report.root is not None
    assert any("tfdoctor build --tf 1.14" in remedy.commands for remedy in report.root.remedies)


def test_a_beta_is_told_from_the_release_whose_sources_it_has_by_the_file_that_differs() -> None:
    numa = "successful NUMA node read from SysFS had negative value (-1)"
    executor = "tensorflow/stream_executor/cuda/cuda_gpu_executor.cc"
    beta = make_output("2019-07-11", f"I {executor}:1006] {numa}", *OLD)
    assert (diagnose_text(beta).tensorflow_version, diagnose_text(beta).era) == ("2.0", "2.0")
    assert (
        diagnose_text(beta.replace("2019-07", "2020-02")).era == "2.0"
    )  # nothing else has these lines, whenever
    assert diagnose_text(beta.replace(":1006]", ":1005]")).tensorflow_version == "1.14"
    assert diagnose_text(make_output("2019-07-11", *OLD)).era == "1.14-2.0"


def test_what_messages_say_decides_between_releases_that_share_the_lines() -> None:
    service = "tensorflow/compiler/xla/service/service.cc"
    lines = (
        "E tensorflow/stream_executor/cuda/cuda_driver.cc:318] failed call to cuInit: UNKNOWN ERROR (303)",
        f"I {service}:168] XLA service 0x1 executing computations on platform Host. Devices:",
    )
    assert diagnose_text(make_output("2023-03-06", *lines)).era == "1.14-2.0"
    old = diagnose_text(
        make_output(
            "2023-03-06", *lines, f"I {service}:175]   StreamExecutor device (0): <undefined>, <undefined>"
        )
    )
    assert old.tensorflow_version == "1.14"
    assert note(old).startswith("Of the releases with these source lines, only TensorFlow 1.14")
    new = make_output(
        "2023-03-06", *lines, f"I {service}:175]   StreamExecutor device (0): Host, Default Version"
    )
    assert diagnose_text(new).tensorflow_version == "2.0"


def test_no_release_was_compiled_with_a_cudnn_that_is_newer() -> None:
    dnn = (
        "E tensorflow/stream_executor/cuda/cuda_dnn.cc:324] Loaded runtime CuDNN library: 7.3.1 but source was "
        "compiled with: {}."
    )
    assert diagnose_text(make_output("2020-07-05", dnn.format("7.1.4"))).tensorflow_version is None
    assert diagnose_text(make_output("2020-07-05", dnn.format("7.5.0"))).tensorflow_version == "1.13"


# --- real logs ---


def test_every_line_that_a_release_printed_in_the_lab_is_in_the_table() -> None:
    """The table is read from machine code; these logs are what the wheels printed when they were run."""
    catalogue = load_signatures()
    seen: dict[str, int] = {}
    missing: list[str] = []
    for name, truth in json.loads((LAB / "expected.json").read_text(encoding="utf-8")).items():
        release = truth["tensorflow"]
        log = scan([(LAB / name).read_bytes()], catalogue)
        for event in log.list_events("source-line"):
            message = event.text.partition("]")[2]
            found = COMPAT.source_lines.find_releases(event.get("path"), int(event.get("number")), message)
            if found is not None:
                seen[release] = seen.get(release, 0) + 1
                if release not in found:
                    missing.append(f"{name}: {event.text[:120]}")
    assert not missing
    assert len(seen) >= 16
    assert sum(seen.values()) > 1200


def test_no_real_log_is_taken_for_another_release() -> None:
    right = 0
    for name, truth in json.loads((LAB / "expected.json").read_text(encoding="utf-8")).items():
        report = diagnose_log([(LAB / name).read_bytes()], COMPAT)
        minor = ".".join(truth["tensorflow"].split(".")[:2])
        if report.tensorflow_version is not None:
            assert truth["tensorflow"].startswith(report.tensorflow_version), name
            right += report.tensorflow_version in (minor, truth["tensorflow"])
    assert right > 200


# --- the lines of TensorFlow's own Python ---

PACKAGES = "/opt/env/lib/python3.6/site-packages/tensorflow"


def frame(function: str, release: str, file: str = "client/session.py", packages: str = PACKAGES) -> str:
    """A frame of a traceback, as this release shows it: the middle of the function."""
    folder = packages.rpartition("/")[2]
    words = COMPAT.functions.files[f"{folder}/python/{file}"].functions[function].split()
    place = COMPAT.functions.releases.index(release)
    for word in words:
        where, _, places = word.partition(":")
        first, last = map(int, where.split("-"))
        for part in places.split(","):
            low, _, high = part.partition("-")
            if int(low) <= place <= int(high or low):
                return f'  File "{packages}/python/{file}", line {(first + last) // 2}, in {function}\n'
    raise AssertionError(function)


def test_a_traceback_tells_the_release_where_no_line_of_the_source_is_named() -> None:
    text = "".join(frame(name, "1.12.0") for name in ("run", "_run", "_do_run", "_do_call"))
    report = diagnose_text(
        f"Traceback (most recent call last):\n{text}x.InternalError: Blas GEMM launch failed\n"
    )
    assert report.era == "1.12-1.13"


def test_a_traceback_and_lines_of_the_source_narrow_each_other() -> None:
    line = make_output("2020-09-11", f"I {DSO}:44] Successfully opened dynamic library libcudart.so.10.1")
    text = frame("_do_call", "2.1.0", packages=f"{PACKAGES}_core")
    assert diagnose_text(line).tensorflow_version is None
    assert diagnose_text(line + text).tensorflow_version == "2.1"


def test_a_frame_that_contradicts_the_lines_tells_nothing() -> None:
    assert (
        diagnose_text(make_output("2020-09-11", *OLD) + frame("_do_call", "2.15.0")).tensorflow_version
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
def test_frames_of_others_tell_nothing(text: str) -> None:
    assert (diagnose_text(text).tensorflow_version, diagnose_text(text).era) == (None, None)


def test_frames_of_two_releases_tell_nothing() -> None:
    text = frame("_do_call", "1.12.0") + frame("_do_call", "2.15.0")
    assert diagnose_text(text).tensorflow_version is None


# --- candidates ---


def test_what_was_written_soon_before_a_release_is_of_it_or_of_a_nightly_of_the_next() -> None:
    late, early = (
        diagnose_text(make_output("2021-09-01", *NEW)),
        diagnose_text(make_output("2020-11-20", *NEW)),
    )
    assert (late.tensorflow_version, late.era) == ("2.4", "2.4")
    assert (early.tensorflow_version, early.era) == (None, "2.4-2.5")
    assert "2.5" not in " ".join(list_named(early))  # what is typed is for the release that has these lines
    assert "2.4" in list_named(early)
    assert diagnose_text(make_output("2020-05-01", *NEW)).era != "2.4-2.5"
    assert "the log is older than it: a candidate or a nightly build wrote this" in note(early)


@pytest.mark.parametrize(
    ("date", "era"), [("2019-05-25", "1.14"), ("2019-06-16", "1.14-1.15"), ("2019-07-29", "1.14-2.0")]
)
def test_nightlies_of_a_known_number_are_no_others(date: str, era: str) -> None:
    assert diagnose_text(make_output(date, *OLD)).era == era


def test_few_lines_soon_before_several_releases_leave_out_those_that_have_none_of_them() -> None:
    text = f"W {DSO}:55] {CUSOLVER.replace('cusolver.so.10', 'cudart.so.10.0')}"
    assert diagnose_text(make_output("2019-09-20", text)).era == "1.15-2.1"


# --- what the messages say ---


def test_the_words_of_messages_tell_the_release_where_no_line_is_named() -> None:
    assert (
        diagnose_text("Cannot dlopen some GPU libraries. Skipping registering GPU devices...\n").era == "1.14"
    )
    new = "Created device /job:localhost/replica:0/task:0/device:GPU:0 with 9 MB memory:  -> device: 0, name: Tesla T4,"
    assert (diagnose_text(f"{new} pci bus id: 0000:00:04.0, compute capability: 7.5").era or "").startswith(
        "2.6"
    )


@pytest.mark.parametrize("path", sorted(LAB.glob("*.log")), ids=lambda path: path.stem)
def test_every_release_says_what_is_said_of_its_words(path: Path) -> None:
    text = path.read_text(encoding="utf-8", errors="replace")
    minor = tuple(map(int, path.name.split(".")[:2]))
    for one in load_signatures().wordings:
        if one.text in text:
            first, last = (tuple(map(int, bound.split("."))) if bound else minor for bound in one.era)
            assert first <= minor <= last, one.text


# --- what is typed ---


def list_named(report: LogReport) -> set[str]:
    """The releases that the commands name."""
    commands = [line for one in report.findings for remedy in one.remedies for line in remedy.commands]
    found = {word for line in commands for word in re.findall(r"--tf[ =]'?([\d.]+)", line)}
    return found | {word for line in commands for word in re.findall(r"tensorflow(?:-gpu)?==([\d.]+)", line)}


@pytest.mark.parametrize("seed", range(60))
def test_no_command_names_a_release_that_the_lines_exclude(seed: int) -> None:
    choice = random.Random(seed)
    table = COMPAT.source_lines
    release = choice.choice(table.releases)
    files = [
        file for file in (GPU, DSO, "tensorflow/core/platform/cpu_feature_guard.cc") if file in table.files
    ]
    lines = [
        (file, int(word.partition(":")[0]))
        for file in files
        for word in table.files[file].lines.split()
        if release in (table.find_releases(file, int(word.partition(":")[0])) or ())
    ]
    chosen = choice.sample(lines, min(len(lines), 4))
    fitting = frozenset(table.releases).intersection(
        *(table.find_releases(file, line) or () for file, line in chosen)
    )
    messages = [f"W {file}:{line}] what is said there" for file, line in chosen]
    messages.append("W Cannot dlopen some GPU libraries.")
    report = diagnose_text(make_output("2026-09-11", *messages))
    assert report.gpu_registered is False
    for version in list_named(report):
        assert any(one == version or one.startswith(f"{version}.") for one in fitting), (version, fitting)
    assert report.tensorflow_version is None or any(
        one == report.tensorflow_version or one.startswith(f"{report.tensorflow_version}.") for one in fitting
    )


@pytest.mark.parametrize("path", sorted(LAB.glob("*.log")), ids=lambda path: path.stem)
@pytest.mark.few(60)
def test_no_command_names_a_release_that_the_log_cannot_be_of(path: Path) -> None:
    report = diagnose_log([path.read_bytes()], COMPAT)
    minors = list(dict.fromkeys(row.minor for row in COMPAT.releases))
    low, _, high = (report.era or f"{minors[0]}-{minors[-1]}").partition("-")
    known = minors[minors.index(low.rstrip("+")) : minors.index(high or low) + 1 if "+" not in low else None]
    assert ".".join(path.name.split(".")[:2]) in known
    for version in list_named(report):
        assert ".".join(version.split(".")[:2]) in known


def logs() -> list[Path]:
    """Those of the lab, and the real ones where they are at hand."""
    return sorted([*LAB.glob("*.log"), *CORPUS.glob("*/log.txt")])


@pytest.mark.parametrize("path", logs(), ids=lambda path: f"{path.parent.name}-{path.stem}")
@pytest.mark.few(60)
def test_no_log_gets_a_command_that_names_a_release_that_its_lines_exclude(path: Path) -> None:
    text = path.read_bytes()
    catalogue = load_signatures()
    writers = identify_sources(scan([text], catalogue), COMPAT).writers
    if not writers:
        return
    having = {release for writer in writers for release in writer.releases}
    report = diagnose_log([text], COMPAT)
    for version in {*list_named(report), report.tensorflow_version} - {None}:
        assert any(one == version or one.startswith(f"{version}.") for one in having), (version, having)


# --- what is no release, and what is between two ---


def lines_of(release: str, *files: str, without: str = "", count: int = 3) -> list[str]:
    """Messages of a release that the release `without` does not log from there."""
    table = COMPAT.source_lines
    found = []
    for file in files:
        numbers = [int(word.partition(":")[0]) for word in table.files[file].lines.split()]
        own = [
            number
            for number in numbers
            if release in (at := table.find_releases(file, number) or ())
            and (without not in at or not without)
        ]
        found += [f"W {file}:{number}] " for number in own[:count]]
    return found


def test_a_candidate_and_a_package_for_other_cards_are_named_by_their_minor() -> None:
    builds = [build.version for build in COMPAT.source_lines.builds]
    assert any("rocm" in build for build in builds)
    assert any(build.startswith("0.12") for build in builds)
    lines = lines_of("2.13.1.600+rocm", GPU, without="2.13.1", count=8)
    assert diagnose_text(make_output("2024-02-01", *lines)).era == "2.13"


def test_lines_of_two_releases_one_after_the_other_are_of_a_nightly_of_the_later() -> None:
    own = lines_of("2.3.0", GPU, without="2.2.0", count=4)
    older = lines_of("2.2.0", "tensorflow/stream_executor/cuda/cuda_driver.cc", without="2.3.0", count=1)
    report = diagnose_text(make_output("2020-05-31", *own, *older))
    assert (report.tensorflow_version, report.era) == (None, "2.3")
    far = lines_of("1.14.0", "tensorflow/stream_executor/cuda/cuda_driver.cc", without="2.3.0", count=2)
    assert diagnose_text(make_output("2020-05-31", *own, *far)).era != "2.3"


def test_another_build_that_asks_for_the_libraries_of_a_release_can_be_one_of_the_next() -> None:
    opened = f"I {DSO}:49] Successfully opened dynamic library libcudart.so.10.1"
    assert diagnose_text(opened.replace(":49]", "]")).era == "2.1-2.3"
    assert diagnose_text(make_output("2020-11-14", opened, f"I {GPU}:9] Found device 0")).era == "2.1-2.4"


def test_long_before_the_first_candidate_a_nightly_has_the_number_of_its_lines() -> None:
    lines = lines_of("2.11.0", GPU, without="2.12.0", count=4)
    candidate = min(build.released for build in COMPAT.source_lines.builds if build.version == "2.11.0rc0")
    assert candidate > "2022-10-01"
    assert diagnose_text(make_output("2022-09-19", *lines)).era == "2.11"
    assert diagnose_text(make_output("2022-11-10", *lines)).era == "2.11-2.12"


def test_the_name_of_a_dll_tells_of_which_cuda_it_is() -> None:
    text = (
        "ImportError: Could not find 'cudart64_100.dll'. TensorFlow requires that this DLL be installed in a directory "
        "that is named in your %PATH% environment variable. Download and install CUDA 10.0 from this URL: "
    )
    assert diagnose_text(text).era == "1.13-2.0"


def test_a_notebook_shows_the_line_that_ran_with_an_arrow() -> None:
    text = (
        "~/env/lib/python3.6/site-packages/tensorflow/python/platform/self_check.py in preload_check()\n"
        '     80               "environment variable. Download and install CUDA %s from "\n'
        "---> 82               % (build_info.cudart_dll_name, build_info.cuda_version_number))\n"
    )
    assert diagnose_text(text).era == "1.4-1.14"
    assert diagnose_text(f"{text}ImportError: Could not find 'cudart64_100.dll'.\n").era == "1.13-1.14"
    assert diagnose_text(text.replace("self_check.py in preload_check()", "nobody.py in run()")).era is None


def test_a_frame_whose_module_html_took_is_the_modules() -> None:
    packages = "C:\\env\\lib\\site-packages\\tensorflow\\python"
    text = f'Traceback (most recent call last):\n  File "{packages}\\pywrap_tensorflow.py", line 62, in '
    end = "\nfrom tensorflow.python._pywrap_tensorflow_internal import *\nImportError: DLL load failed"
    assert (
        diagnose_text(f"{text}<module>{end}: x\n").era == diagnose_text(f"{text}{end}: x\n").era == "1.5-2.14"
    )
    assert diagnose_text(f"{text}{end} while importing _pywrap_tensorflow_internal: x\n").era == "2.9-2.14"


def test_a_python_for_which_a_release_has_no_wheel_leaves_it_out() -> None:
    line = make_output("2024-09-11", f"W {GPU}:1934] Cannot dlopen some GPU libraries.")
    frame = '  File "/opt/env/lib/python3.7/site-packages/tensorflow/python/nobody.py", line 1, in run\n'
    assert diagnose_text(line).era == "2.10-2.11"
    eleven = frame.replace("3.7", "3.11")
    assert diagnose_text(line + eleven).era == "2.10-2.11"  # of none, then it was built for it
