"""`tfdoctor diagnose` as a program: files, pipes, formats, exit statuses."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cli.planner import call_tfdoctor

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[2] / "docs" / "schemas" / "diagnose.schema.json").read_text(
        encoding="utf-8"
    )
)
LOGS = Path(__file__).resolve().parents[1] / "logs"
LOG = (
    "W tensorflow/stream_executor/platform/default/dso_loader.cc:60] Could not load dynamic library "
    "'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: No such file or directory; "
    "LD_LIBRARY_PATH: /home/user/cuda-10.2/lib64\nSkipping registering GPU devices...\n"
)


def tfdoctor(*args: str, stdin: bytes = b"") -> tuple[int, str, str]:
    result = call_tfdoctor("diagnose", *args, stdin=stdin)
    return result.status, result.out, result.err


def diagnose_json(*args: str, stdin: bytes = b"") -> dict[str, Any]:
    """Return the validated answer of `diagnose --json`."""
    _, out, _ = tfdoctor("--json", *args, stdin=stdin)
    value: dict[str, Any] = json.loads(out)
    jsonschema.Draft202012Validator(SCHEMA).validate(value)
    return value


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(LOG, encoding="utf-8")
    return path


def test_plain_file(log: Path) -> None:
    value = diagnose_json(str(log))
    assert value["verdict"]["cause"] == "libs-wrong-version"
    assert value["missing_libraries"] == ["libcudart.so.11.0"]
    assert value["gpu_registered"] is False
    assert value["lines"] == 2
    assert value["bytes"] == len(LOG)
    assert value["findings"][0]["evidence"][0]["line"] == 1


@pytest.mark.parametrize("args", [(), ("-",)])
def test_standard_input(args: tuple[str, ...]) -> None:
    assert diagnose_json(*args, stdin=LOG.encode())["file"] == "-"


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_compressed_file(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / "log.packed"
    path.write_bytes(pack(LOG.encode()))
    assert diagnose_json(str(path))["bytes"] == len(LOG)


def test_several_files(log: Path) -> None:
    value = diagnose_json(str(log), str(log))
    assert [report["verdict"]["cause"] for report in value["logs"]] == ["libs-wrong-version"] * 2


def test_exit_status(log: Path) -> None:
    assert tfdoctor(str(log))[0] == 1
    assert tfdoctor("--fail-on", "never", str(log))[0] == 0
    assert tfdoctor(stdin=b"nothing\n")[0] == 0
    assert tfdoctor("--fail-on", "warning", stdin=b"nothing\n")[0] == 1


HOME_FOLDERS = "/home/"
LOAD_FAILURE = (
    "W tensorflow/stream_executor/platform/default/dso_loader.cc:60] Could not load dynamic library"
)
LOG_WITH_SECRETS = f"""\
{LOAD_FAILURE} 'libcuda.so.1'; dlerror: libcuda.so.1: cannot open shared object file: No such file or directory; \
LD_LIBRARY_PATH: {HOME_FOLDERS}alicia/lib:/srv/tower-nine/x
E tensorflow/stream_executor/cuda/cuda_driver.cc:271] failed call to cuInit: UNKNOWN ERROR (303) alicia@corp.example \
https://bob:hunter22@wheels.corp.example/x AKIAQ7EXAMPLE3KEYS42 AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCY \
pw=swordfish9
I tensorflow/stream_executor/cuda/cuda_diagnostics.cc:156] kernel driver does not appear to be running on this host \
(tower-nine.corp.example): /proc/driver/nvidia/version does not exist 10.20.30.41
"""
SECRETS = (
    "alicia",
    "tower-nine",
    "corp.example",
    "bob",
    "hunter22",
    "AKIA",
    "wJalr",
    "swordfish9",
    "10.20.30.41",
)


def test_markdown_has_no_names_or_secrets(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(LOG_WITH_SECRETS, encoding="utf-8")
    _, terminal_text, _ = tfdoctor("-v", str(path))
    _, out, _ = tfdoctor("--format", "markdown", str(path))
    unescaped = out.replace("\\", "")
    assert sum(secret in terminal_text for secret in SECRETS) >= 5  # the terminal shows the text of the log
    assert [secret for secret in SECRETS if secret in unescaped] == []
    assert "libcuda.so.1" in out
    assert "on this host (host-" in unescaped


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "no file"), (b"\x00\x01\x02\x03" * 500, "not a text"), (b"\x1f\x8bxx", "cannot be unpacked")],
)
def test_unreadable_file_is_refused(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "log"
    if content is not None:
        path.write_bytes(content)
    status, out, err = tfdoctor(str(path))
    assert (status, out) == (2, "")
    assert words in err
    status, out, _ = tfdoctor("--json", str(path))
    assert status == 2
    assert json.loads(out)["error"]["code"] == 2


def test_folder_is_refused(tmp_path: Path) -> None:
    status, _, err = tfdoctor(str(tmp_path))
    assert status == 2
    assert "folder" in err


def test_empty_log_is_inconclusive() -> None:
    assert diagnose_json(stdin=b"")["verdict"]["cause"] == "inconclusive"


def test_damaged_archive_is_read_as_far_as_possible(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(LOG.encode() + os.urandom(3000).hex().encode())[:-40])
    status, out, err = tfdoctor("--json", str(path))
    assert status == 1
    assert json.loads(out)["verdict"]["cause"] == "libs-wrong-version"
    assert "damaged" in err
    assert err.count("\n") == 1


# ---------------------------------------------------------------- --follow


def start_following(*args: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tfdoctor", "diagnose", "-f", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "COLUMNS": "200"},
        **options,
    )


def test_follow_prints_changes_and_a_final_report(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("starting\n", encoding="utf-8")
    with start_following(str(path)) as process:
        assert process.stdout is not None
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(LOG)
            first_line = process.stdout.readline()
            assert first_line.startswith("✗ ")
            assert "libcudart.so.11.0" in first_line
            with path.open("a", encoding="utf-8") as file:
                file.write("Epoch 1\n")
            time.sleep(0.6)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 1  # the status without -f: there is a finding
    assert out.count("✗ ") == 1
    assert "2 │ Could not load dynamic library" in out
    assert "4 lines read" in out
    assert err == ""


def test_follow_reads_a_pipe(tmp_path: Path) -> None:
    with start_following("--json", stdin=subprocess.PIPE) as process:
        out, err = process.communicate(LOG, timeout=30)
    assert json.loads(out)["verdict"]["cause"] == "libs-wrong-version"
    assert (process.returncode, err) == (1, "")


def test_follow_refuses_other_inputs(tmp_path: Path, log: Path) -> None:
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(LOG.encode()))
    for args, message in (
        ((str(log), str(log)), "one log can be followed"),
        ((str(tmp_path / "none"),), "no file"),
        ((str(packed),), "packed"),
        ((str(tmp_path),), "folder"),
    ):
        status, out, err = tfdoctor("-f", *args)
        assert (status, out) == (2, "")
        assert message in err


# ---------------------------------------------------------------- progress


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_is_shown_at_terminals_only(tmp_path: Path, quiet: bool) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"step 1 loss 2\n" * 300_000)
    code = (
        "import sys; from tfdoctor.cli import startup; from tfdoctor.render import progress; "
        "progress.PROGRESS_DELAY_S = 0; "
        f"sys.argv = ['tfdoctor', 'diagnose', {'-q' if quiet else '-v'!r}, {str(path)!r}]; startup.run()"
    )
    master, slave = os.openpty()
    result = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=slave,
        env={**os.environ, "TERM": "xterm"},
        timeout=60,
        check=False,
    )
    os.close(slave)
    terminal_output = b""
    try:
        while data := os.read(master, 65536):
            terminal_output += data
    except OSError:
        pass
    os.close(master)
    assert result.returncode == 0
    assert bool(re.search(rb"\d%", terminal_output)) is not quiet
    if not quiet:
        assert terminal_output.rstrip().endswith(b"\x1b[2K")  # the progress line was removed


def test_aborted_program_is_an_error() -> None:
    """The cause is not known, but the exit status must not say that nothing was found."""
    status, out, _ = tfdoctor(str(LOGS / "computing" / "2.20.0-ecc.log"))
    assert status == 1
    assert out.startswith("✗ The GPU was registered and worked until one of its kernels was aborted.")


def test_missing_libraries_have_a_reason() -> None:
    """The first reason is why they are missing, and not that a card is not registered."""
    status, out, _ = tfdoctor(str(LOGS / "lab" / "1.14.0-all-missing.log"))
    assert status == 1
    words = " ".join(out.split())
    assert (
        "Why TensorFlow 1.14 needs CUDA 10.0 and cuDNN 7.3. `pip install` of this TensorFlow does not"
        in words
    )
