"""Files that the user names: special files are never replaced, links are refused, no partial file is left."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.planner import Tfdoctor
from faults.harness import HEALTHY, run_in_shell
from tfdoctor.cli.main import iter_commands, make_command_group
from tfdoctor.core.errors import Error, UsageError
from tfdoctor.system.writing import write_file

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = b"a text\n"


@pytest.fixture
def tfdoctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tfdoctor:
    return Tfdoctor(monkeypatch, capsys)


def test_existing_file_is_replaced_only_with_force(tmp_path: Path) -> None:
    target = tmp_path / "report.md"
    write_file(target, TEXT, force=False)
    assert target.read_bytes() == TEXT
    with pytest.raises(UsageError, match="exists"):
        write_file(target, b"another", force=False)
    target.chmod(0o640)
    write_file(target, b"another", force=True)
    assert target.read_bytes() == b"another"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.md"]


@pytest.mark.parametrize("force", [False, True])
def test_symbolic_link_is_refused_and_left(force: bool, tmp_path: Path) -> None:
    real, link = tmp_path / "real.md", tmp_path / "link.md"
    link.symlink_to("real.md")
    for before in (None, b"old"):
        if before is not None:
            real.write_bytes(before)
        with pytest.raises(UsageError, match="is a symbolic link"):
            write_file(link, TEXT, force=force)
        assert link.is_symlink()
        assert (real.read_bytes() if real.exists() else None) == before


INPUT_OPTIONS = {
    "--from",
    "--against",
    "--compare",
    "--ca-cert",
    "--check",
    "--requirements",
    "--peer",
    "--copy",
}
"""Options that name a file to read."""
FACTS_ARGUMENTS = ["--from", str(HEALTHY)]
OUTPUT_OPTIONS = {
    ("check", "--html"): FACTS_ARGUMENTS,
    ("diagnose", "--html"): ["{log}"],
    ("verify", "--junit"): ["--python", "{python}"],
    ("verify", "--html"): ["--python", "{python}"],
    ("matrix", "--html"): [],
    ("diagnose", "--svg"): ["--placement", "{log}"],
    ("bench", "--output"): ["--python", "{python}"],
    ("bench", "--html"): ["--python", "{python}"],
    ("fleet run", "--html"): ["{results}", "--ssh", "localhost"],
    ("fleet report", "--html"): ["{results}"],
    ("capture", "--output"): [],
    ("report", "--output"): FACTS_ARGUMENTS,
    ("matrix", "--output"): [],
    ("lint", "--output"): ["{python}"],
    ("diagnose", "--output"): ["{log}"],
    ("install", "--into"): ["--tf", "2.20"],
}
"""The other arguments, by command and by the option that names the file or folder to write."""
FAST_COMMANDS = {
    ("check", "--html"),
    ("diagnose", "--html"),
    ("diagnose", "--svg"),
    ("report", "--output"),
}
"""Commands that are fast enough to write the file in the test, with --force."""


def test_every_output_option_is_covered() -> None:
    outputs = set()
    for name, command in iter_commands(make_command_group()):
        for option in command.params:
            is_path = "path" in str(option.type).lower() and option.param_type_name == "option"
            if is_path and not INPUT_OPTIONS & set(option.opts):
                outputs.add((name, max(option.opts, key=len)))
    assert outputs == set(OUTPUT_OPTIONS)


@pytest.mark.parametrize(("command", "option"), OUTPUT_OPTIONS)
def test_every_command_leaves_existing_files(
    command: str, option: str, tmp_path: Path, tfdoctor: Tfdoctor
) -> None:
    names = {"log": tmp_path / "log", "results": tmp_path / "results", "python": tmp_path / "python"}
    names["log"].write_text("a line\n")
    names["results"].mkdir()
    (tmp_path / "there").write_bytes(b"keep")
    (tmp_path / "link").symlink_to("there")
    (tmp_path / "dangling").symlink_to("nowhere")
    arguments = [argument.format(**names) for argument in OUTPUT_OPTIONS[command, option]]
    for name in ("there", "link", "dangling"):
        result = tfdoctor(*command.split(), *arguments, option, str(tmp_path / name))
        assert result.status == 2, (name, result)
        assert (tmp_path / "there").read_bytes() == b"keep"
        assert not (tmp_path / "nowhere").exists()
        assert (tmp_path / name).is_symlink() == (name != "there")
    if (command, option) in FAST_COMMANDS:
        assert tfdoctor(command, *arguments, option, str(tmp_path / "there"), "--force").status in (0, 1, 2)
        assert (tmp_path / "there").read_bytes()[:1] in (b"<", b"*")
        for name in ("link", "dangling"):
            assert tfdoctor(command, *arguments, option, str(tmp_path / name), "--force").status == 2
            assert (tmp_path / name).is_symlink()


def make_folder(path: Path) -> None:
    path.mkdir()


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def make_link_loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [make_folder, make_socket, make_link_loop])
@pytest.mark.parametrize("force", [False, True])
def test_special_files_are_refused_and_left(
    make: Callable[[Path], None], force: bool, tmp_path: Path
) -> None:
    target = tmp_path / "there"
    make(target)
    before = target.lstat()
    with pytest.raises(UsageError):
        write_file(target, TEXT, force=force)
    assert (target.lstat().st_ino, target.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("force", [False, True])
def test_pipe_receives_the_content(force: bool, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    write_file(pipe, TEXT * 50_000, force=force)
    reader.join(20)
    assert received == [TEXT * 50_000]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_pipe_without_reader_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfdoctor.system.writing.PIPE_TIMEOUT_S", 0.2)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Error, match="nobody reads this pipe"):
        write_file(tmp_path / "pipe", TEXT, force=False)


@pytest.mark.parametrize("force", [False, True])
def test_devices_are_not_replaced(force: bool) -> None:
    write_file(Path("/dev/null"), TEXT, force=force)
    with pytest.raises(Error, match="No space left"):
        write_file(Path("/dev/full"), TEXT, force=force)
    for name in ("/dev/null", "/dev/full"):
        assert stat.S_ISCHR(Path(name).stat().st_mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_by_its_path(name: str, tmp_path: Path) -> None:
    """Write to standard output even if it is a file that other programs write to before and after."""
    before = os.lstat("/dev/stdout")
    output = tmp_path / "out"
    command = f"DOCTOR report --from {HEALTHY} -o {name} --force"
    result = run_in_shell(f"(echo first; {command}; echo last) >{output}")
    assert result.returncode == 0, result
    lines = output.read_text(encoding="utf-8").splitlines()
    assert (lines[0], lines[-1]) == ("first", "last")
    assert len(lines) > 20
    assert run_in_shell(f"{command} | tail -n +2 | wc -l").stdout.strip() == str(len(lines) - 3).encode()
    after = os.lstat("/dev/stdout")
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)


def test_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs to mount a small file system")
    mount = tmp_path / "small"
    mount.mkdir()
    script = (
        f"mount -t tmpfs -o size=4k tmpfs {mount} || exit 99; echo old >{mount}/r.md; "
        f"DOCTOR report --from {HEALTHY} -o {mount}/r.md --force; echo $?; cat {mount}/r.md; ls -A {mount}"
    )
    script = script.replace("DOCTOR", f"{sys.executable} -m tfdoctor")
    result = subprocess.run(
        ["/usr/bin/unshare", "-m", "sh", "-c", script], capture_output=True, check=False, timeout=60
    )
    if result.returncode == 99 or not result.stdout:
        pytest.skip("no file system can be mounted here")
    assert result.stdout == b"3\nold\nr.md\n"


def test_every_command_refuses_a_folder_as_output(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    for arguments in (
        ["report", "--from", str(HEALTHY), "-o", str(target), "--force"],
        ["capture", "-o", str(target), "--force"],
        ["verify", "--python", "/bin/false", "--junit", str(target)],
    ):
        result = tfdoctor(*arguments)
        assert (result.status, result.out) == (2, ""), (arguments, result)
        assert list(target.iterdir()) == []


LINK_CASES = {
    "lint": ("lint", "code.py", "."),
    "install": ("install", "req.txt", "--dry-run", "--tf", "2.20", "--into", "env", "-r", "req.txt"),
    "cluster": ("cluster", "rec/link", "--peer", "rec", "--tf-config", '{"cluster": {"worker": ["a:1"]}}'),
}
"""The command, the path of a link to itself, and the other arguments of each case."""


@pytest.mark.parametrize("name", LINK_CASES)
def test_link_to_itself_is_reported(
    name: str, tfdoctor: Tfdoctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, link, *arguments = LINK_CASES[name]
    (tmp_path / "rec").mkdir()
    (tmp_path / "rec" / "host.json").write_text((HEALTHY / "host.json").read_text())
    (tmp_path / link).symlink_to((tmp_path / link).name)
    monkeypatch.chdir(tmp_path)
    result = tfdoctor(command, *arguments)
    assert result.status == (3 if name == "lint" else 2), result
    assert link in result.out + result.err


@pytest.mark.parametrize("form", ["text", "json", "github", "sarif", "junit"])
@pytest.mark.parametrize("code", [b"import os\nos.environ['CUDA_VISIBLE_DEVIES'] = '0'\n", b"\0"])
def test_findings_in_files_with_undecodable_names(
    form: str, code: bytes, tfdoctor: Tfdoctor, tmp_path: Path
) -> None:
    (tmp_path / os.fsdecode(b"k\xff.py")).write_bytes(code)
    result = tfdoctor("lint", "--format", form, str(tmp_path))
    assert result.status == (1 if code != b"\0" else 3), result
    result.out.encode("utf-8")
    if form in ("json", "sarif"):
        json.dumps(result.json, ensure_ascii=False).encode("utf-8")
        assert ("k%FF.py" if form == "sarif" and result.status == 1 else "k\\ufffd.py") in result.out


@pytest.mark.parametrize(
    "words",
    [
        ["diagnose", "{0}/a.json", "--html", "{0}/a.json"],
        ["diagnose", "--placement", "{0}/a.json", "--svg", "{0}/a.json"],
        ["fleet", "report", "{0}", "--html", "{0}/a.json"],
        ["check", "--from", "{0}", "--html", "{0}/a.json"],
        ["report", "--from", "{0}", "-o", "{0}/a.json"],
    ],
)
def test_input_file_is_not_replaced(tfdoctor: Tfdoctor, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "a.json").write_text("{}")
    result = tfdoctor(*(argument.format(tmp_path) for argument in words), "--force")
    assert result.status == 2
    assert "is what this command reads" in result.err
    assert (tmp_path / "a.json").read_text() == "{}"


@pytest.mark.parametrize("words", [["diagnose", "--html"], ["diagnose", "--placement", "--svg"]])
def test_standard_input_is_not_replaced(tmp_path: Path, words: list[str]) -> None:
    log = tmp_path / "a.log"
    log.write_text("2024-05-03 10:11:13.1: W tensorflow/core/x.cc:1] text\n")
    with log.open("rb") as stream:
        done = subprocess.run(
            [sys.executable, "-m", "tfdoctor", *words, str(log), "--force"],
            stdin=stream,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "is what this command reads" in done.stderr
    assert log.read_text().startswith("2024")
