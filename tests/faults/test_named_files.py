"""Files that a user names: what is no regular file is never replaced, a link is refused, nothing half is left."""

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
from faults.harness import HEALTHY, shell
from tfdoctor.cli.main import _Commands
from tfdoctor.errors import Error, UsageError
from tfdoctor.system.writing import write_file

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = b"a text\n"


@pytest.fixture
def tfdoctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tfdoctor:
    return Tfdoctor(monkeypatch, capsys)


def test_a_new_file_and_one_that_is_there(tmp_path: Path) -> None:
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
def test_a_link_is_refused_and_stays(force: bool, tmp_path: Path) -> None:
    real, link = tmp_path / "real.md", tmp_path / "link.md"
    link.symlink_to("real.md")
    for before in (None, b"old"):
        if before is not None:
            real.write_bytes(before)
        with pytest.raises(UsageError, match="is a symbolic link"):
            write_file(link, TEXT, force=force)
        assert link.is_symlink()
        assert (real.read_bytes() if real.exists() else None) == before


READS = {"--facts", "--against", "--compare", "--ca-cert", "--check", "--requirements", "--peer"}
"""Options that name a file to read."""
RECORDED = ["--facts", str(HEALTHY)]
WRITES = {
    ("check", "--html"): RECORDED,
    ("diagnose", "--html"): ["{log}"],
    ("verify", "--junit"): ["--python", "{python}"],
    ("verify", "--html"): ["--python", "{python}"],
    ("matrix", "--html"): [],
    ("placement", "--svg"): ["{log}"],
    ("bench", "--output"): ["--python", "{python}"],
    ("bench", "--html"): ["--python", "{python}"],
    ("fleet", "--html"): ["report", "{results}"],
    ("capture", "--output"): [],
    ("report", "--output"): RECORDED,
    ("install", "--into"): ["--tf", "2.20"],
}
"""(command, option that names a file or folder to write) → the other arguments."""
QUICK = {
    ("check", "--html"),
    ("diagnose", "--html"),
    ("placement", "--svg"),
    ("report", "--output"),
}
"""Those that also write it here, with --force."""


def test_all_options_that_name_files_are_known() -> None:
    found = set()
    for name, command in _Commands().items():
        for option in command.params:
            kind = "path" in str(option.type).lower() and option.param_type_name == "option"
            if kind and not READS & set(option.opts):
                found.add((name, max(option.opts, key=len)))
    assert found == set(WRITES)


@pytest.mark.parametrize(("command", "option"), WRITES)
def test_every_command_leaves_what_is_there(
    command: str, option: str, tmp_path: Path, tfdoctor: Tfdoctor
) -> None:
    names = {"log": tmp_path / "log", "results": tmp_path / "results", "python": tmp_path / "python"}
    names["log"].write_text("a line\n")
    names["results"].mkdir()
    (tmp_path / "there").write_bytes(b"keep")
    (tmp_path / "link").symlink_to("there")
    (tmp_path / "dangling").symlink_to("nowhere")
    words = [word.format(**names) for word in WRITES[command, option]]
    for name in ("there", "link", "dangling"):
        done = tfdoctor(command, *words, option, str(tmp_path / name))
        assert done.status == 2, (name, done)
        assert (tmp_path / "there").read_bytes() == b"keep"
        assert not (tmp_path / "nowhere").exists()
        assert (tmp_path / name).is_symlink() == (name != "there")
    if (command, option) in QUICK:
        assert tfdoctor(command, *words, option, str(tmp_path / "there"), "--force").status in (0, 1, 2)
        assert (tmp_path / "there").read_bytes()[:1] in (b"<", b"*")
        for name in ("link", "dangling"):
            assert tfdoctor(command, *words, option, str(tmp_path / name), "--force").status == 2
            assert (tmp_path / name).is_symlink()


def folder(place: Path) -> None:
    place.mkdir()


def unix_socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(place))


def circle(place: Path) -> None:
    place.symlink_to(place.name)


@pytest.mark.parametrize("make", [folder, unix_socket, circle])
@pytest.mark.parametrize("force", [False, True])
def test_anything_else_is_refused_and_left(make: Callable[[Path], None], force: bool, tmp_path: Path) -> None:
    target = tmp_path / "there"
    make(target)
    before = target.lstat()
    with pytest.raises(UsageError):
        write_file(target, TEXT, force=force)
    assert (target.lstat().st_ino, target.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("force", [False, True])
def test_a_pipe_takes_it(force: bool, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    seen: list[bytes] = []
    reader = threading.Thread(target=lambda: seen.append(pipe.read_bytes()))
    reader.start()
    write_file(pipe, TEXT * 50_000, force=force)
    reader.join(20)
    assert seen == [TEXT * 50_000]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_pipe_that_nobody_reads_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfdoctor.system.writing.PIPE_TIMEOUT_S", 0.2)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Error, match="nobody reads this pipe"):
        write_file(tmp_path / "pipe", TEXT, force=False)


@pytest.mark.parametrize("force", [False, True])
def test_devices_stay(force: bool) -> None:
    write_file(Path("/dev/null"), TEXT, force=force)
    with pytest.raises(Error, match="No space left"):
        write_file(Path("/dev/full"), TEXT, force=force)
    for name in ("/dev/null", "/dev/full"):
        assert stat.S_ISCHR(Path(name).stat().st_mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_by_its_name(name: str, tmp_path: Path) -> None:
    """Also where it is a file, and others write into it before and after."""
    before = os.lstat("/dev/stdout")
    out = tmp_path / "out"
    command = f"DOCTOR report --facts {HEALTHY} -o {name} --force"
    done = shell(f"(echo first; {command}; echo last) >{out}")
    assert done.returncode == 0, done
    lines = out.read_text(encoding="utf-8").splitlines()
    assert (lines[0], lines[-1]) == ("first", "last")
    assert len(lines) > 20
    assert shell(f"{command} | tail -n +2 | wc -l").stdout.strip() == str(len(lines) - 3).encode()
    after = os.lstat("/dev/stdout")
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)


def test_a_full_disk_leaves_the_old_one(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs to mount a small file system")
    small = tmp_path / "small"
    small.mkdir()
    script = (
        f"mount -t tmpfs -o size=4k tmpfs {small} || exit 99; echo old >{small}/r.md; "
        f"DOCTOR report --facts {HEALTHY} -o {small}/r.md --force; echo $?; cat {small}/r.md; ls -A {small}"
    )
    script = script.replace("DOCTOR", f"{sys.executable} -m tfdoctor")
    done = subprocess.run(
        ["/usr/bin/unshare", "-m", "sh", "-c", script], capture_output=True, check=False, timeout=60
    )
    if done.returncode == 99 or not done.stdout:
        pytest.skip("no file system can be mounted here")
    assert done.stdout == b"3\nold\nr.md\n"


def test_every_command_that_writes_a_file_refuses_alike(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    for words in (
        ["report", "--facts", str(HEALTHY), "-o", str(target), "--force"],
        ["capture", "-o", str(target), "--force"],
        ["verify", "--python", "/bin/false", "--junit", str(target)],
    ):
        ended = tfdoctor(*words)
        assert (ended.status, ended.out) == (2, ""), (words, ended)
        assert list(target.iterdir()) == []


LINKED = {
    "lint": ("lint", "code.py", "."),
    "install": ("install", "req.txt", "--dry-run", "--tf", "2.20", "--into", "env", "-r", "req.txt"),
    "cluster": ("cluster", "rec/link", "--peer", "rec", "--tf-config", '{"cluster": {"worker": ["a:1"]}}'),
}
"""Of each command the link to itself that it meets, and what is typed."""


@pytest.mark.parametrize("name", LINKED)
def test_a_link_to_itself_is_named(
    name: str, tfdoctor: Tfdoctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, link, *rest = LINKED[name]
    (tmp_path / "rec").mkdir()
    (tmp_path / "rec" / "host.json").write_text((HEALTHY / "host.json").read_text())
    (tmp_path / link).symlink_to((tmp_path / link).name)
    monkeypatch.chdir(tmp_path)
    ended = tfdoctor(command, *rest)
    assert ended.status == (0 if name == "lint" else 2), ended
    assert link in ended.out + ended.err


@pytest.mark.parametrize("form", ["text", "json", "github", "sarif", "junit"])
@pytest.mark.parametrize("code", [b"import os\nos.environ['CUDA_VISIBLE_DEVIES'] = '0'\n", b"\0"])
def test_names_of_files_that_are_not_utf8_in_findings(
    form: str, code: bytes, tfdoctor: Tfdoctor, tmp_path: Path
) -> None:
    (tmp_path / os.fsdecode(b"k\xff.py")).write_bytes(code)
    ended = tfdoctor("lint", "--format", form, str(tmp_path))
    assert ended.status == int(code != b"\0"), ended
    ended.out.encode("utf-8")
    if form in ("json", "sarif"):
        json.dumps(ended.json, ensure_ascii=False).encode("utf-8")
        assert ("k%FF.py" if form == "sarif" and ended.status else "k\\ufffd.py") in ended.out


@pytest.mark.parametrize(
    "words",
    [
        ["diagnose", "{0}/a.json", "--html", "{0}/a.json"],
        ["placement", "{0}/a.json", "--svg", "{0}/a.json"],
        ["fleet", "report", "{0}", "--html", "{0}/a.json"],
        ["check", "--facts", "{0}", "--html", "{0}/a.json"],
        ["report", "--facts", "{0}", "-o", "{0}/a.json"],
    ],
)
def test_what_is_read_is_not_replaced(tfdoctor: Tfdoctor, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "a.json").write_text("{}")
    done = tfdoctor(*(word.format(tmp_path) for word in words), "--force")
    assert done.status == 2
    assert "is what this command reads" in done.err
    assert (tmp_path / "a.json").read_text() == "{}"
