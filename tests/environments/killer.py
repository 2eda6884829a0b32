"""Run actions on a journal in processes that are killed before their N-th change of a file.

A request is a line of JSON on standard input, [action, prefix, N]. The answer is "killed", "survived" or "failed".
Each request runs in a fork, because starting Python hundreds of times would take minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "doctor"))

from tfdoctor.environments.history.journal import Journal, JournalError

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = {
    "os.chmod",
    "os.chown",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.truncate",
    "os.utime",
}
SITE = "lib/python3.11/site-packages"
NAMED = ("bin/tool", f"{SITE}/pkg/__init__.py", "etc/made/for/it.sh", "bin/python", f"{SITE}/gone/a.py")
"""Paths that `change_named` changes."""


def kill_at(number: int) -> None:
    """Kill this process before its `number`-th change of a file, or never if `number` is 0."""
    left = number

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def write(path: Path, content: bytes, mtime: int, mode: int = 0o644) -> None:
    """Write a new file after removing an existing one with its name, as pip does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    os.utime(path, (mtime, mtime))


def plant(prefix: Path) -> None:
    """Create an environment with one file of every kind."""
    site = prefix / SITE
    write(site / "pkg" / "__init__.py", b"one = 1\n", 1_000)
    write(site / "pkg" / "__pycache__" / "__init__.cpython-311.pyc", b"compiled one", 1_001)
    write(site / "pkg" / "big.so", bytes(range(256)) * 300, 1_002, 0o755)
    write(site / "pkg" / "locked.txt", b"locked", 1_003, 0o444)
    write(site / "single.py", b"single = True\n", 1_004)
    write(site / "some.pth", b"import some\n", 1_005)
    write(site / "gone" / "a.py", b"a = 1\n", 1_006)
    write(site / "gone" / "below" / "b.bin", b"b" * 1000, 1_007)
    write(site / "gone" / "__pycache__" / "a.cpython-311.pyc", b"compiled a", 1_008)
    write(prefix / "bin" / "tool", b"#!/old/python\nprint()\n", 1_009, 0o755)
    write(prefix / "pyvenv.cfg", b"home = /usr\n", 1_010)
    (prefix / "empty").mkdir()
    (prefix / "lib64").symlink_to("lib")
    (prefix / "bin" / "python").symlink_to("/usr/bin/python3.11")
    (prefix / "dangling").symlink_to("nowhere")


def change(prefix: Path) -> None:
    """Change the environment in every way that is possible for a path."""
    site = prefix / SITE
    with (prefix / "bin" / "tool").open("r+b") as stream:  # written in place
        stream.write(b"#!/new/python\nprint(")
    os.utime(prefix / "bin" / "tool", (2_000, 2_000))
    with (prefix / "pyvenv.cfg").open("ab") as stream:
        stream.write(b"version = 3\n")
    os.utime(prefix / "pyvenv.cfg", (2_001, 2_001))
    write(site / "pkg" / "__init__.py", b"two = 2\n", 2_002)
    write(site / "pkg" / "__pycache__" / "__init__.cpython-311.pyc", b"compiled two", 2_003)
    shutil.rmtree(site / "gone")
    write(site / "new" / "deep" / "file.py", b"new = 1\n", 2_004)
    write(site / "new" / "__pycache__" / "x.cpython-311.pyc", b"compiled x", 2_005)
    (site / "single.py").rename(site / "renamed.py")
    (site / "pkg" / "big.so").chmod(0o644)
    (site / "pkg").chmod(0o700)
    (prefix / "bin" / "python").unlink()
    (prefix / "bin" / "python").symlink_to("/usr/bin/python3.12")
    (prefix / "empty").rmdir()
    (prefix / "empty").symlink_to("lib")
    (prefix / "dangling").unlink()
    write(prefix / "dangling" / "inside", b"inside", 2_006)


def change_again(prefix: Path) -> None:
    """Change the environment a second time, after `change`."""
    site = prefix / SITE
    write(site / "pkg" / "__init__.py", b"three = 3\n", 3_000)
    write(site / "gone", b"a file now", 3_001)
    shutil.rmtree(site / "new")
    (site / "renamed.py").unlink()
    write(prefix / "bin" / "tool", b"#!/newest\n", 3_002, 0o700)
    (prefix / "empty").unlink()


def change_named(prefix: Path) -> None:
    """Change the paths in `NAMED` only."""
    write(prefix / "bin" / "tool", b"#!/new\n", 2_000, 0o755)
    write(prefix / SITE / "pkg" / "__init__.py", b"two = 2\n", 2_001)
    write(prefix / "etc" / "made" / "for" / "it.sh", b"export A=1\n", 2_002)
    (prefix / "bin" / "python").unlink()
    (prefix / "bin" / "python").symlink_to("/usr/bin/python3.12")
    (prefix / SITE / "gone" / "a.py").unlink()


def run_action(action: str, prefix: Path) -> None:
    """Run one action with the journal of the environment."""
    with Journal.open(prefix) as journal:
        if action == "step":
            with journal.begin_step(title="change", codes=("TFD205",)) as step:
                change(prefix)
            step.commit()
        elif action == "named":
            with journal.begin_step(title="change", paths=[prefix / name for name in NAMED]) as step:
                change_named(prefix)
            step.commit()
        elif action == "rollback":
            with journal.begin_step(title="change") as step:
                change(prefix)
            step.rollback()
        elif action == "again":
            with journal.begin_step(title="change again") as step:
                change_again(prefix)
            step.commit()
        elif action == "undo":
            journal.undo()
        elif action == "force":
            journal.undo(force=True)


def main() -> None:
    for line in sys.stdin:
        action, prefix, number = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                kill_at(number)
                run_action(action, Path(prefix))
            except BaseException as error:  # The parent must learn of every failure.
                if not isinstance(error, JournalError):
                    traceback.print_exc()
                else:
                    print(error, file=sys.stderr)
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            print("killed", flush=True)
        else:
            print("survived" if status == 0 else "failed", flush=True)


if __name__ == "__main__":
    main()
