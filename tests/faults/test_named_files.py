"""Files that a user names: what is no regular file is never replaced, a link is followed, nothing half is left."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from cli.planner import Tfdoctor
from faults.harness import HEALTHY, shell
from tfdoctor.errors import Error, UsageError
from tfdoctor.system.writing import write_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    real, link = tmp_path / "folder" / "real.md", tmp_path / "link.md"
    real.parent.mkdir()
    real.write_bytes(b"old")
    link.symlink_to("folder/real.md")
    with pytest.raises(UsageError, match="exists"):
        write_file(link, TEXT, force=False)
    write_file(link, TEXT, force=True)
    assert link.is_symlink()
    assert real.read_bytes() == TEXT
    real.unlink()
    with pytest.raises(UsageError, match="leads nowhere"):
        write_file(link, TEXT, force=False)
    write_file(link, TEXT, force=True)
    assert link.is_symlink()
    assert real.read_bytes() == TEXT


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


@pytest.mark.parametrize("force", [False, True])
def test_devices_stay(force: bool, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/dev/null")
    write_file(link, TEXT, force=force)
    assert link.is_symlink()
    with pytest.raises(Error, match="No space left"):
        write_file(tmp_path.__class__("/dev/full"), TEXT, force=force)
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)  # noqa: PTH116


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
