"""The reader of logs: whatever wraps, encodes or prefixes a log, its own lines are read."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdoctor.compat import Compat
from tfdoctor.logs.blocks import is_binary
from tfdoctor.logs.reader import read_lines
from tfdoctor.logs.report import diagnose_log
from tfdoctor.render.log import render_log
from tfdoctor.render.log_markdown import make_log_markdown

COMPAT = Compat.load()
LOG = """\
2020-11-30 17:36:59.367782: I tensorflow/stream_executor/platform/default/dso_loader.cc:49] Successfully opened dynamic library libcudart.so.11.0
2020-11-30 17:36:59.369653: I tensorflow/stream_executor/platform/default/dso_loader.cc:49] Successfully opened dynamic library libcublas.so.11
2020-11-30 17:36:59.370610: W tensorflow/stream_executor/platform/default/dso_loader.cc:60] Could not load dynamic library 'libcusolver.so.10'; dlerror: libcusolver.so.10: cannot open shared object file: No such file or directory
2020-11-30 17:36:59.371200: W tensorflow/core/common_runtime/gpu/gpu_device.cc:1764] Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are installed properly if you would like to use GPU.
Skipping registering GPU devices...
"""  # noqa: E501


def wrap_lines(width: int) -> str:
    return "\n".join(
        part
        for line in LOG.splitlines()
        for part in (line[i : i + width] for i in range(0, len(line), width))
    )


def prefix_lines(mark: str, text: str = LOG) -> str:
    return "\n".join(mark + line for line in text.splitlines())


WRAPPED_LOGS = {
    "as it is": LOG.encode(),
    "crlf": LOG.replace("\n", "\r\n").encode(),
    "utf-16": LOG.encode("utf-16"),
    "utf-16 without mark": LOG.encode("utf-16-le"),
    "byte-order mark": LOG.encode("utf-8-sig"),
    "colours": prefix_lines("\x1b[31m\x1b[1m").encode(),
    "quoted": prefix_lines("> ").encode(),
    "a comment": prefix_lines("# ").encode(),
    "indented": prefix_lines("    ").encode(),
    "ray": prefix_lines("(pid=7428) ").encode(),
    "mpi": prefix_lines("[1,0]<stderr>:").encode(),
    "slurm": prefix_lines("0: ").encode(),
    "compose": prefix_lines("trainer_1  | ").encode(),
    "kubectl": prefix_lines("2024-01-01T10:00:00.123456789Z stderr F ").encode(),
    "journald": prefix_lines("Nov 20 12:30:30 host python3[123]: ").encode(),
    "airflow": prefix_lines("[2024-01-01, 10:00:00 UTC] {subprocess.py:93} INFO - ").encode(),
    "hadoop": prefix_lines("18/07/25 12:17:57 INFO HboxContainer: ").encode(),
    "80 columns": wrap_lines(80).encode(),
    "146 columns": wrap_lines(146).encode(),
    "80 columns, quoted": prefix_lines("> ", wrap_lines(80)).encode(),
    "on one line": LOG.replace("\n", " ").encode(),
    "html": ("<pre>" + LOG.replace("'", "&#39;").replace("\n", "<br>\n") + "</pre>").encode(),
    "a notebook": (
        '{"text": [\n' + ",\n".join(json.dumps(f"{li}\n") for li in LOG.splitlines()) + "]}"
    ).encode(),
    "json": json.dumps({"stderr": LOG}).encode(),
    "json in json": json.dumps(json.dumps({"stderr": LOG})).encode(),
    "markdown": LOG.replace("_", "\\_").encode(),
    "after carriage returns": ("1/9\r2/9\r" + LOG).encode(),
    "latin-1 beside it": b"caf\xe9\n" + LOG.encode(),
}


@pytest.mark.parametrize("data", WRAPPED_LOGS.values(), ids=WRAPPED_LOGS)
def test_every_form_of_a_log_has_the_same_report(data: bytes) -> None:
    report = diagnose_log([data], COMPAT)
    assert report.missing_sonames == ("libcusolver.so.10",)
    assert report.cause.value == "libs-wrong-version"
    assert report.gpu_registered is False
    assert (
        report.era == "2.4-2.5"
    )  # some of its source lines are in no release: a nightly build needs the same library


def test_line_numbers_are_those_of_the_file() -> None:
    report = diagnose_log([b"\n\n" + wrap_lines(80).encode()], COMPAT)
    assert report.root_finding is not None
    assert report.root_finding.evidence[0].line == 7
    assert report.line_count == 2 + len(wrap_lines(80).splitlines())


def test_chunk_size_makes_no_difference() -> None:
    data = LOG.encode()
    for size in (1, 7, 100, 4096):
        chunks = [data[start : start + size] for start in range(0, len(data), size)]
        assert [line.text for line in read_lines(chunks)] == [line.text for line in read_lines([data])]


def test_nvidia_smi_table_is_not_unwrapped() -> None:
    row = "| NVIDIA-SMI 440.82       Driver Version: 440.82       CUDA Version: 10.2     |".ljust(79)
    lines = list(read_lines([("\n".join([row] * 6)).encode()]))
    assert len(lines) == 6


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=3000), st.text(max_size=2000).map(lambda text: text.encode("utf-8", "replace"))
    )
)
def test_output_never_has_control_characters(data: bytes) -> None:
    report = diagnose_log([LOG.encode(), data, LOG.encode()], COMPAT)
    output = render_log(report, verbose=True) + make_log_markdown(report)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", output)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="\x1b[]\r\\n\"'<>&;_|>#*` GPUlibcuda.so:1", max_size=400))
def test_lines_never_have_control_characters(text: str) -> None:
    for line in read_lines([text.encode()]):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", line.text)


def test_binary_data_is_recognized() -> None:
    assert is_binary(bytes(range(256)) * 8)
    assert not is_binary(LOG.encode("utf-16"))
    assert not is_binary(b"\x1b[31mred\x1b[0m\n")
    assert not is_binary(b"")


# ---------------------------------------------------------------- NULs

LINES = [line.text for line in read_lines([LOG.encode()])]


@pytest.mark.parametrize("size", [1, 7, 100, 4096, 1 << 20])
@pytest.mark.parametrize(
    "data",
    [
        bytes(400) + LOG.encode(),
        bytes(401) + LOG.encode(),
        bytes(9000) + b"\n" + LOG.encode(),
        LOG.encode() + bytes(5000),
        bytes(3) + LOG.encode("utf-8-sig"),
        bytes(400) + LOG.encode("utf-16-le"),
        bytes(400) + LOG.encode("utf-16-be"),
        LOG.encode("utf-16"),
        LOG.encode("utf-16-le"),
        LOG.encode("utf-16-be"),
        LOG[:100].encode() + LOG[100:].encode("utf-16-le"),
        b"".join(LOG.encode().splitlines(keepends=True)[:2])
        + bytes(1 << 17)
        + b"".join(LOG.encode().splitlines(keepends=True)[2:]),
    ],
    ids=range(12),
)
def test_nul_bytes_are_skipped(data: bytes, size: int) -> None:
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    assert [line.text for line in read_lines(chunks) if line.text] == LINES
    assert not is_binary(data[:8192])


def test_message_behind_nul_bytes_has_its_line_number() -> None:
    report = diagnose_log([b"one\nhalf a li" + bytes(512) + LOG.encode()], COMPAT)
    assert report.cause.value == "libs-wrong-version"
    assert report.root_finding is not None
    assert report.root_finding.evidence[0].line == 4
    assert report.byte_count == len(LOG) + 512 + 13


def test_log_of_nul_bytes_is_inconclusive() -> None:
    report = diagnose_log([bytes(1 << 16)] * 20, COMPAT)
    assert (report.cause.value, report.line_count, report.byte_count) == ("inconclusive", 0, 20 << 16)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=600), st.lists(st.integers(1, 40), max_size=8))
def test_chunk_boundaries_make_no_difference(data: bytes, sizes: list[int]) -> None:
    data = data.replace(b"\xff", b"\0\0\0")
    chunks, start = [], 0
    for size in [*sizes, len(data)]:
        chunks.append(data[start : start + size])
        start += size
    assert [line.text for line in read_lines(chunks)] == [line.text for line in read_lines([data])]


def test_text_without_a_byte_order_mark_is_no_binary_file() -> None:
    assert not is_binary(b"")
    assert not is_binary(LOG.encode("utf-16-le"))
