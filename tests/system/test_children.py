"""The environment and the limits of programs that tfdoctor starts, and the live machine."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor.core.errors import Error
from tfdoctor.system import LiveSystem, children, live, payloads
from tfdoctor.system.children import Children
from tfdoctor.system.elf import ElfError, ElfProblem

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("PATH", "/a:.:b::/proc/self/cwd:/c", "/a:/c"),
        ("PATH", ".", ""),
        ("LD_LIBRARY_PATH", "/a:.::sub;/c", "/a:/c"),
        ("LD_LIBRARY_PATH", ".:", None),
        ("LD_LIBRARY_PATH", "/proc/self/cwd:/a", "/a"),
        ("LD_LIBRARY_PATH", "../lib", None),
        ("PYTHONPATH", ".", "."),
    ],
)
def test_entries_that_name_the_working_folder_are_dropped(
    name: str, value: str, expected: str | None
) -> None:
    environment = {name: value, "OTHER": "."}
    assert children.drop_working_folder(environment) == {
        "OTHER": ".", **({name: expected} if expected is not None else {}),
    }  # fmt: skip
    assert environment[name] == value


def test_absolute_path_of_the_working_folder_stays() -> None:
    assert children.drop_working_folder({"LD_LIBRARY_PATH": str(Path.cwd())}) == {
        "LD_LIBRARY_PATH": str(Path.cwd())
    }


def test_module_of_the_working_folder_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "json").mkdir()
    (tmp_path / "json/tool.py").write_text("print('hijacked')")
    (tmp_path / "json/__init__.py").touch()
    command = (sys.executable, "-m", "json.tool", "--help")
    isolated = children.isolate_module_command(command)
    result = children.run_program(isolated, timeout=30, env=os.environ, cwd=str(tmp_path))
    assert b"hijacked" not in result.stdout
    assert b"usage" in result.stdout
    assert children.isolate_module_command(command[:1]) == command[:1]
    assert children.isolate_module_command(("a", "-c", "x")) == ("a", "-c", "x")


def run_code(code: str, *, timeout: float = 20, **options: Any) -> children.ChildResult:
    return Children().run([sys.executable, "-c", code], timeout=timeout, env=os.environ, **options)


def test_output_arrives_in_pieces_and_errors_end_the_program() -> None:
    pieces: list[bytes] = []
    code = "import sys, time; print('a', flush=True); print('e', file=sys.stderr); time.sleep(.3); print('b')"
    result = run_code(code, on_output=pieces.append)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"a\nb\n", b"e\n")
    assert len(pieces) > 1
    assert b"".join(pieces) == result.stdout

    def fail(_: bytes) -> None:
        raise ValueError("stop")

    started = time.monotonic()
    with pytest.raises(ValueError, match="stop"):
        run_code("import time; print('a', flush=True); time.sleep(30)", on_output=fail)
    assert time.monotonic() - started < 15


def test_program_at_its_limit_has_its_output() -> None:
    result = run_code("import time; print('a', flush=True); time.sleep(30)", timeout=1)
    assert (result.returncode, result.stdout) == (None, b"a\n")
    result = run_code("import os, time; os.close(1); os.close(2); time.sleep(30)", timeout=1)
    assert result.returncode is None
    result = run_code("import os, time; os.close(1); os.close(2); time.sleep(.2)")
    assert result.returncode == 0
    assert run_code("import os; os.kill(os.getpid(), 9)").returncode == -signal.SIGKILL


def test_grandchild_that_holds_the_pipe_costs_no_time() -> None:
    code = "import subprocess, sys; print('a', flush=True); subprocess.Popen(['sleep', '5'])"
    started = time.monotonic()
    result = run_code(code)
    assert (result.returncode, result.stdout) == (0, b"a\n")
    assert time.monotonic() - started < 4


def test_stopped_children_start_nothing() -> None:
    stopped = Children()
    started = time.monotonic()
    stopped.stop()
    assert time.monotonic() - started < 1
    with pytest.raises(InterruptedError):
        stopped.run([sys.executable, "-c", ""], timeout=5, env=os.environ)


def test_signal_during_the_start_is_delivered_afterwards() -> None:
    received: list[int] = []
    previous = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        with children.hold_signals() as held:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
            assert received == []
            assert held == [signal.SIGTERM] * 2
        assert received == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, previous)


# ---------------------------------------------------------------- the live machine


def test_special_files_are_no_elf_objects(tmp_path: Path) -> None:
    system = LiveSystem()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ElfError) as caught:
        system.read_elf(str(tmp_path / "pipe"))
    assert caught.value.problem is ElfProblem.NAMED_PIPE
    with pytest.raises(ElfError) as caught:
        system.read_elf("/dev/null")
    assert caught.value.problem is ElfProblem.BAD_MAGIC
    with pytest.raises(IsADirectoryError):
        system.read_elf(str(tmp_path))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError, match="No such device") as refused:
            system.read_elf(str(tmp_path / "socket"))
        assert refused.value.errno == errno.ENXIO
    assert system.find_unresolved_symbols(str(tmp_path / "absent"), []) == ()


def test_paths_below_another_root(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/b").touch()
    (tmp_path / "etc/a").symlink_to("b")
    system = LiveSystem(root=f"{tmp_path}/", cwd="/w")
    assert system.realpath("/etc/a") == "/etc/b"
    assert system.realpath("/") == "/"
    assert system.listdir("/etc") == ["a", "b"]
    assert (system.is_dir("/etc"), system.is_dir("/etc/a"), system.exists("/etc/a"), system.cwd) == (
        True,
        False,
        True,
        "/w",
    )
    assert LiveSystem().realpath("/") == "/"
    assert LiveSystem(env={"PATH": "."}).which("ls") is None


@pytest.mark.parametrize(
    ("error_number", "attempts"), [(errno.EMFILE, 3), (errno.ENFILE, 3), (errno.ENOENT, 1)]
)
def test_lack_of_file_descriptors_is_waited_for(error_number: int, attempts: int) -> None:
    count = 0

    def fail_twice() -> str:
        nonlocal count
        count += 1
        if count < 3:
            raise OSError(error_number, "x")
        return "done"

    if attempts == 1:
        with pytest.raises(FileNotFoundError):
            live._retry_when_out_of_files(fail_twice)
    else:
        assert live._retry_when_out_of_files(fail_twice) == "done"
    assert count == attempts


def test_lasting_lack_of_file_descriptors_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_RETRY_S", 0.05)

    def fail() -> None:
        raise OSError(errno.EMFILE, "x")

    with pytest.raises(Error, match="no more files"):
        live._retry_when_out_of_files(fail)


@pytest.mark.parametrize(("limit", "is_refused"), [((512 << 20) - 1, True), (512 << 20, False), (-1, False)])
def test_address_space_is_checked(monkeypatch: pytest.MonkeyPatch, limit: int, is_refused: bool) -> None:
    monkeypatch.setattr(live.resource, "getrlimit", lambda _: (limit, limit))
    if is_refused:
        with pytest.raises(Error, match="511 MiB"):
            LiveSystem()
    else:
        LiveSystem()


@pytest.fixture
def start_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Return a function that sets the variables with which this process was started."""
    return lambda variables: monkeypatch.setattr(live, "_get_start_variables", lambda: variables)


def test_variables_of_the_process(
    monkeypatch: pytest.MonkeyPatch, start_with: Callable[[dict[str, str]], None]
) -> None:
    monkeypatch.setattr(os, "environ", {"LD_LIBRARY_PATH": "late", "OTHER": "now"})
    start_with({"LD_PRELOAD": "early", "OTHER": "then"})
    assert live.get_process_variables() == {"LD_PRELOAD": "early", "OTHER": "now"}
    assert live._find_start_changes() == {
        "LD_LIBRARY_PATH": (None, "late"), "LD_PRELOAD": ("early", None), "OTHER": ("then", "now"),
    }  # fmt: skip
    start_with({})
    assert live.get_process_variables() == {"LD_LIBRARY_PATH": "late", "OTHER": "now"}
    assert live._find_start_changes() == {}


def test_changes_of_the_startup_are_reverted(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {
        "ADDED": (None, "1"),
        "CHANGED": ("old", "new"),
        "AGAIN": ("old", "new"),
        "REMOVED": ("old", None),
    }
    monkeypatch.setattr(live, "_START_CHANGES", changes)
    environment = {
        "ADDED": "1",
        "CHANGED": "new",
        "AGAIN": "newer",
        "TFDOCTOR_LOADER": "LD_PRELOAD=/a=b\nX=1",
    }
    monkeypatch.setattr(os, "environ", environment)
    assert live.get_original_variables() == {
        "CHANGED": "old", "AGAIN": "newer", "REMOVED": "old", "LD_PRELOAD": "/a=b", "X": "1",
    }  # fmt: skip


def test_command_in_the_background_is_waited_for() -> None:
    system = LiveSystem()
    command = [sys.executable, "-c", "import os; print(os.getpid())"]
    system.start_in_background(command, timeout=20)
    started = system._started_commands
    assert len(started) == 1
    other = system.run(command, timeout=20, env={"A": "1"})
    assert len(started) == 1
    result = system.run(command, timeout=20)
    assert started == {}
    assert result.stdout != other.stdout
    command_error = live.BackgroundCommand(lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    with pytest.raises(ZeroDivisionError):
        command_error.result()


# ---------------------------------------------------------------- answers of payloads


def test_lines_of_an_answer_are_merged() -> None:
    text = f'{payloads.MARKER}{{"a": 1, "b": 1}}\nother\n{payloads.MARKER}[1]\n{payloads.MARKER}{{"b": 2}}\n'
    assert payloads.parse_payload_output(text) == {"a": 1, "b": 2}


def test_objects_are_decoded_as_they_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    objects: list[dict[str, Any]] = []
    decoder = payloads.PayloadDecoder(objects.append)
    line = f'{payloads.MARKER}{{"a": 1}}\n'.encode()
    decoder(line[:5])
    decoder(line[5:] + b"noise\n" + line[:-1])
    assert objects == [{"a": 1}]
    decoder(b"\n")
    assert objects == [{"a": 1}] * 2
    monkeypatch.setattr(payloads, "MAX_LINE_BYTES", 3)
    decoder(line[:4])
    decoder(line[4:])
    assert len(objects) == 2


def test_files_of_a_payload() -> None:
    folder = payloads._FOLDER
    names = [path.name for path in payloads.list_payload_files(folder / "stages.py")]
    assert names[0] == "stages.py"
    assert "stages_compute.py" in names
    assert payloads.list_payload_files(Path("/elsewhere/stages.py")) == []


@pytest.mark.parametrize(
    ("value", "expected"), [("/a:/b", None), ("/a:b:/c", "/a:/c"), (":", ""), ("", None), ("b", "")]
)
def test_relative_entries_of_pythonpath_are_removed(value: str, expected: str | None) -> None:
    variables = payloads.make_payload_variables(LiveSystem(env={"PYTHONPATH": value}))
    assert variables.get("PYTHONPATH") == expected
