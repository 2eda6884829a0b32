"""`tfdoctor run`: the program behaves as without it, in terminals, pipes and under signals; the report comes last."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tfdoctor.verification.running import log_worker as running
from tfdoctor.verification.running.launch import make_loader_environment
from tfdoctor.verification.running.log_worker import MAX_QUEUED_BYTES, LogWorker
from tfdoctor.verification.running.passthrough import hold_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RUN = [sys.executable, "-m", "tfdoctor", "run"]
FAILURE_LOG = (
    "2024-05-01 10:00:00.000000: I external/local_xla/xla/tsl/platform/default/dso_loader.cc:87] Could not load "
    "dynamic library 'libcudnn.so.9'; dlerror: libcudnn.so.9: cannot open shared object file: No such file or "
    "directory\n"
    "2024-05-01 10:00:00.000001: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2342] Cannot dlopen some GPU "
    "libraries. Please make sure the missing libraries mentioned above are installed properly if you would like to "
    "use GPU.\nSkipping registering GPU devices...\n"
)
NO_MESSAGES = "no TensorFlow message about GPUs"


def run(
    *command: str,
    options: tuple[str, ...] = (),
    stdin: bytes = b"",
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [*RUN, *options, "--", *command],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, **(env or {})},
    )
    return subprocess.CompletedProcess(
        result.args, result.returncode, result.stdout.decode(), result.stderr.decode(errors="replace")
    )


def run_in_shell(script: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash in which RUN stands for `tfdoctor run --`."""
    line = re.sub(r"\bRUN\b", f"{sys.executable} -m tfdoctor run --", script)
    return subprocess.run(["/bin/bash", "-c", line], capture_output=True, timeout=60, check=False)


def python_command(code: str) -> tuple[str, str, str]:
    return sys.executable, "-c", code


@pytest.fixture
def failing(tmp_path: Path) -> str:
    path = tmp_path / "failed.log"
    path.write_text(FAILURE_LOG, encoding="utf-8")
    return str(path)


# ---------------------------------------------------------------- exit statuses


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -15), ("kill -KILL $$", -9), ("kill -SEGV $$", -11)],
)
def test_exit_status_is_that_of_the_program(script: str, status: int) -> None:
    assert run("sh", "-c", script).returncode == status


def test_program_that_cannot_be_started(tmp_path: Path) -> None:
    plain, broken = tmp_path / "plain", tmp_path / "broken"
    plain.write_text("x", encoding="utf-8")
    broken.write_text("#!/no/such/interpreter\n", encoding="utf-8")
    broken.chmod(0o755)
    for name, status, message in (
        ("no-such-command-anywhere", 127, "no such command"),
        ("/no/such/file", 127, "no such file"),
        (str(plain), 126, "Permission denied"),
        (str(broken), 127, "interpreter"),
        ("", 127, "no such command"),
    ):
        result = run(name)
        assert (result.returncode, result.stdout) == (status, "")
        assert result.stderr.startswith("tfdoctor: cannot run ")
        assert message in result.stderr
        assert result.stderr.count("\n") == 1


def test_script_without_shebang_is_run_by_the_shell(tmp_path: Path) -> None:
    script, binary = tmp_path / "a-script-of-ours", tmp_path / "binary"
    script.write_text('echo "$0 $1"; exit 5\n', encoding="utf-8")
    binary.write_bytes(b"\x7fELF\0\0not one\n")
    for file in (script, binary):
        file.chmod(0o755)
    by_path = run(str(script), "one")
    assert (by_path.returncode, by_path.stdout) == (5, f"{script} one\n")
    by_name = run("a-script-of-ours", "two", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert (by_name.returncode, by_name.stdout) == (5, f"{script} two\n")
    refused = run(str(binary))
    assert (refused.returncode, refused.stdout) == (126, "")


def test_exit_status_130_is_no_interrupt() -> None:
    result = run("sh", "-c", "exit 130", options=("-q",))
    assert (result.returncode, result.stderr) == (130, "")


def test_missing_command_is_refused() -> None:
    result = run()
    assert result.returncode == 2
    assert "no command" in result.stderr


def test_options_of_the_program_are_not_parsed() -> None:
    result = subprocess.run(
        [*RUN, "-q", "sh", "-c", 'echo "$@"', "x", "--json", "-v", "--", "-q"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert result.stdout == b"--json -v -- -q\n"


def test_findings_change_the_status_only_with_fail_on(failing: str) -> None:
    assert run("cat", failing).returncode == 0
    assert run("cat", failing, options=("--fail-on", "error")).returncode == 1
    assert run("sh", "-c", f"cat {failing}; exit 5", options=("--fail-on", "error")).returncode == 5


# ---------------------------------------------------------------- streams


def test_both_streams_are_passed_separately() -> None:
    code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 999); sys.stderr.write('an error\\n')"
    result = subprocess.run([*RUN, *python_command(code)], capture_output=True, timeout=60, check=False)
    assert result.stdout == bytes(range(256)) * 999
    assert result.stderr.startswith(b"an error\n")


def test_common_file_keeps_the_order_of_both_streams(tmp_path: Path) -> None:
    loop = "for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done"
    run_in_shell(f"RUN sh -c '{loop}' > {tmp_path}/log 2>&1")
    text = (tmp_path / "log").read_text(encoding="utf-8")
    assert text.startswith("".join(f"o{i}\ne{i}\n" for i in range(1, 10)))


def test_output_is_passed_at_once() -> None:
    with subprocess.Popen(
        [*RUN, *python_command("print('a', flush=True); input(); print('b')")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"a\n"  # while the program waits for input
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.stdout.read() == b"b\n"
    assert process.returncode == 0


def test_input_is_passed_to_its_end() -> None:
    assert run("cat", stdin=b"some\ninput").stdout == "some\ninput"


def test_closed_pipe_ends_the_program() -> None:
    assert run_in_shell("RUN yes | head -c 4; echo ${PIPESTATUS[0]}").stdout == b"y\ny\n141\n"


def test_program_that_closes_its_output_is_awaited() -> None:
    assert run("sh", "-c", "exec >&- 2>&-; sleep 0.3; exit 4").returncode == 4


def test_grandchild_with_open_pipes_does_not_block() -> None:
    start = time.monotonic()
    result = run("sh", "-c", "sleep 30 & echo $!")
    assert time.monotonic() - start < 10
    os.kill(int(result.stdout), signal.SIGKILL)  # it is alive: tfdoctor does not end it


def test_slow_reader_gets_all_output() -> None:
    result = run_in_shell("RUN sh -c 'head -c 300000 /dev/zero' 2>/dev/null | (sleep 1; wc -c)")
    assert result.stdout.strip() == b"300000"


def test_other_and_closed_descriptors() -> None:
    assert run_in_shell("RUN sh -c 'echo three >&3' 3>&1 2>/dev/null").stdout == b"three\n"
    closed_result = run_in_shell("RUN sh -c 'exit 6' <&- >&- 2>&-")
    assert (closed_result.returncode, closed_result.stderr) == (6, b"")
    full_result = run_in_shell("RUN echo x >/dev/full")
    assert b"No space left" in full_result.stderr


def test_large_output_is_passed_completely() -> None:
    result = run_in_shell("RUN sh -c 'yes 0123456789 | head -c 20000000' 2>/dev/null | md5sum")
    assert result.stdout == run_in_shell("yes 0123456789 | head -c 20000000 | md5sum").stdout


# ---------------------------------------------------------------- signals


@pytest.mark.few(2)
@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signal_is_forwarded_once(number: signal.Signals) -> None:
    code = (
        "import signal, sys, time\nn = []\n"
        f"signal.signal({int(number)}, lambda *a: n.append(1))\nprint('up', flush=True)\n"
        "while not n: time.sleep(0.02)\ntime.sleep(0.3); print(len(n)); sys.exit(5)"
    )
    with subprocess.Popen(
        [*RUN, *python_command(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(number)
        assert process.stdout.read() == b"1\n"
    assert process.returncode == 5


@pytest.mark.few(0)
def test_program_inherits_the_signal_settings() -> None:
    code = "import signal; print(signal.getsignal(2) == signal.SIG_IGN, signal.pthread_sigmask(0, []))"
    quoted = f'{sys.executable} -c "{code}"'
    assert run_in_shell(f"RUN {quoted}").stdout == run_in_shell(quoted).stdout
    assert run_in_shell(f"trap '' INT; RUN {quoted}").stdout == b"True set()\n"


def test_killed_tfdoctor_leaves_no_process() -> None:
    code = "import os, time; print(os.getpid(), flush=True)\nwhile 1: time.sleep(.05); print('x', flush=True)"
    with subprocess.Popen(
        [*RUN, *python_command(code)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        program = int(process.stdout.readline().split()[0])
        process.kill()
        process.stdout.close()
    assert wait_for(lambda: not is_alive(program))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


# ---------------------------------------------------------------- terminals


class Terminal:
    """A terminal of 30 lines and 100 columns with one foreground process."""

    def __init__(self, *command: str, env: dict[str, str] | None = None) -> None:
        self.master, self.slave = os.openpty()
        self.resize(30, 100)
        self.seen = ""
        self._position = 0

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            command,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            preexec_fn=take_terminal,  # noqa: PLW1509
            env={**os.environ, "TERM": "xterm", "PS1": "$ ", **(env or {})},
        )

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def expect(self, text: str, seconds: float = 20) -> None:
        """Wait until the text appears after the text of the previous call."""
        deadline = time.monotonic() + seconds
        while text not in self.seen[self._position :]:
            assert time.monotonic() < deadline, f"{text!r} did not come: {self.seen[self._position :]!r}"
            self._read(0.1)
        self._position = self.seen.index(text, self._position) + len(text)

    def _read(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError as error:
            assert error.errno == errno.EIO  # noqa: PT017
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def status(self) -> int:
        """Wait for the process and return its exit status; `seen` has all of its output."""
        assert wait_for(lambda: (self._read(0.02), self.process.poll() is not None)[1], 30)
        while self._read(0):
            pass
        return self.process.returncode

    @property
    def canonical(self) -> bool:
        modes = termios.tcgetattr(self.slave)
        return bool(modes[3] & termios.ICANON and modes[3] & termios.ECHO and modes[1] & termios.OPOST)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*command: str, env: dict[str, str] | None = None) -> Terminal:
        opened.append(Terminal(*command, env=env))
        return opened[-1]

    yield start
    for screen in opened:
        screen.process.kill()
        screen.process.wait()
        os.close(screen.master)
        os.close(screen.slave)


def test_program_has_a_terminal(terminal: Callable[..., Terminal]) -> None:
    code = (
        "import os; print([os.isatty(n) for n in range(3)], os.get_terminal_size(1), "
        "os.tcgetpgrp(1) == os.getpgrp(), open('/dev/tty').isatty()); print(input('name? ') + '!')"
    )
    screen = terminal(*RUN, *python_command(code))
    screen.expect("[True, True, True] os.terminal_size(columns=100, lines=30) True True\r\nname? ")
    screen.type("bob\n")
    assert screen.status() == 0
    assert "bob!\r\n" in screen.seen
    assert screen.canonical


@pytest.mark.parametrize(("key", "number"), [("\x03", signal.SIGINT), ("\x1c", signal.SIGQUIT)])
def test_control_keys_end_the_program(
    terminal: Callable[..., Terminal], key: str, number: signal.Signals
) -> None:
    screen = terminal(*RUN, "sh", "-c", "echo up; exec sleep 30")
    screen.expect("up")
    screen.type(key)
    assert screen.status() == -number
    assert screen.canonical


def test_program_handles_ctrl_c(terminal: Callable[..., Terminal]) -> None:
    code = (
        "import time\ntry: print('up', flush=True); time.sleep(30)\n"
        "except KeyboardInterrupt: print('saved'); raise SystemExit(9)"
    )
    screen = terminal(*RUN, *python_command(code))
    screen.expect("up")
    screen.type("\x03")
    assert screen.status() == 9
    assert "saved" in screen.seen


def test_end_of_terminal_input(terminal: Callable[..., Terminal]) -> None:
    screen = terminal(*RUN, "cat")
    screen.type("abc\n")
    screen.expect("abc\r\nabc")
    screen.type("\x04")
    assert screen.status() == 0


def test_new_terminal_size_is_forwarded(terminal: Callable[..., Terminal]) -> None:
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGWINCH, lambda *a: (os.write(1, b'%d, %d' % os.get_terminal_size()), sys.exit()))\n"
        "print('up', flush=True); time.sleep(60)"
    )
    screen = terminal(*RUN, *python_command(code))
    screen.expect("up")
    screen.resize(50, 77)
    screen.expect("77, 50")
    assert screen.status() == 0


def test_program_is_stopped_and_resumed(terminal: Callable[..., Terminal]) -> None:
    screen = terminal("bash", "--norc", "--noediting", "-i")
    command = " ".join(RUN)
    screen.expect("$ ")
    screen.type(f'{command} -- sh -c \'echo u""p; read x; echo go""t $x\'\n')
    screen.expect("up")
    assert not screen.canonical
    screen.type("\x1a")
    screen.expect("Stopped")
    screen.expect("$ ")
    assert screen.canonical
    screen.type("fg\n")
    screen.expect("sh -c")
    assert wait_for(lambda: not screen.canonical)
    screen.type("hello\n")
    screen.expect("got hello")
    screen.expect("$ ")
    assert screen.canonical
    screen.type("exit\n")
    screen.status()


def test_background_program_is_resumed_in_foreground(terminal: Callable[..., Terminal]) -> None:
    screen = terminal("bash", "--norc", "--noediting", "-i")
    screen.expect("$ ")
    screen.type(f'{" ".join(RUN)} -- sh -c \'echo u""p; read x; echo go""t $x\' &\n')
    screen.expect("up")
    assert screen.canonical
    screen.type('echo still"" here\n')
    screen.expect("still here")
    screen.type("fg\n")
    assert wait_for(lambda: not screen.canonical)
    screen.type("hello\n")
    screen.expect("got hello")


def test_pipeline_leaves_the_terminal_unchanged(terminal: Callable[..., Terminal]) -> None:
    code = (
        "import os, sys, time; print([os.isatty(n) for n in range(3)], os.get_terminal_size(2)[:], "
        "file=sys.stderr, flush=True); time.sleep(30)"
    )
    screen = terminal("bash", "-c", f'{" ".join(RUN)} -- {sys.executable} -c "{code}" | cat')
    screen.expect("[True, False, True] (100, 30)\r\n")
    assert screen.canonical
    screen.type("\x03")
    screen.expect("KeyboardInterrupt")  # newer Pythons colour it
    screen.status()


def test_piped_input_in_a_terminal(terminal: Callable[..., Terminal]) -> None:
    code = "import os, sys; print([os.isatty(n) for n in range(3)], sys.stdin.read())"
    screen = terminal("bash", "-c", f'echo piped | {" ".join(RUN)} -- {sys.executable} -c "{code}"')
    screen.expect("[False, True, True] piped\r\n")
    assert screen.status() == 0


def test_terminal_is_restored_after_sigkill(terminal: Callable[..., Terminal]) -> None:
    screen = terminal(*RUN, "sh", "-c", "echo up $$; exec sleep 30")
    screen.expect("up ")
    assert wait_for(lambda: not screen.canonical)
    screen.expect("\r\n")
    program = int(screen.seen.split("up ")[1].split()[0])
    screen.process.kill()
    screen.process.wait()
    assert wait_for(lambda: screen.canonical)
    assert wait_for(lambda: not is_alive(program))


@pytest.mark.skipif(shutil.which("infocmp") is None, reason="no terminfo")
def test_full_screen_program(terminal: Callable[..., Terminal]) -> None:
    code = (
        "import curses\ndef main(s):\n s.addstr(0, 0, 'press'); s.refresh(); return s.getkey()\n"
        "print('key', curses.wrapper(main))"
    )
    screen = terminal(*RUN, *python_command(code))
    screen.expect("press")
    screen.type("q")
    screen.expect("key q")
    assert screen.status() == 0


# ---------------------------------------------------------------- report


def test_report_follows_the_output(failing: str) -> None:
    result = run("sh", "-c", f"cat {failing} >&2; exit 3", env={"COLUMNS": "80"})
    assert result.returncode == 3
    assert result.stdout == ""
    assert result.stderr.startswith(FAILURE_LOG)
    answer = result.stderr.removeprefix(FAILURE_LOG)
    assert "ended with exit status 3" in answer
    assert "libcudnn.so.9" in answer
    assert "tfdoctor run`" in answer
    quiet = run("cat", failing, options=("-q",)).stderr
    assert "libcudnn.so.9" in quiet
    assert quiet.count("\n") <= 4
    # tfdoctor did not enable these messages, so it does not mention them.
    assert "tfdoctor run" not in run("cat", failing, options=("--no-verbose-loader",)).stderr


def test_output_without_tensorflow_messages() -> None:
    assert NO_MESSAGES in run("echo", "x").stderr
    assert run("echo", "x", options=("-q",)).stderr == ""


def test_failed_registration_is_reported_at_once(failing: str) -> None:
    with subprocess.Popen(
        [*RUN, "sh", "-c", f"cat {failing} >&2; read x; echo late >&2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        lines = [process.stderr.readline().decode() for _ in range(4)]
        assert "".join(lines[:3]) == FAILURE_LOG
        assert (
            lines[3]
            == "tfdoctor: TensorFlow is not using a GPU. The report when the program ends says why.\n"
        )
        process.stdin.close()
        assert process.stderr.readline() == b"late\n"
        process.stderr.read()


def test_environment_of_the_program() -> None:
    changed, notes = make_loader_environment({"TF_CPP_VMODULE": "a=1", "TF_CPP_MIN_LOG_LEVEL": "2", "X": "y"})
    assert changed == {"TF_CPP_VMODULE": "a=1,dso_loader=3", "TF_CPP_MIN_LOG_LEVEL": "0", "X": "y"}
    assert len(notes) == 3
    unchanged = {"TF_CPP_VMODULE": "dso_loader=1", "TF_CPP_MIN_LOG_LEVEL": "0"}
    assert make_loader_environment(unchanged) == (unchanged, [])
    for option, value in (((), "dso_loader=3\n"), (("--no-verbose-loader",), "\n")):
        assert (
            run("sh", "-c", "echo $TF_CPP_VMODULE", options=option, env={"TF_CPP_VMODULE": ""}).stdout
            == value
        )


def test_skipped_output_is_counted_and_its_end_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "FEED_TIMEOUT_S", 60.0)
    monkeypatch.setattr(running, "ANSWER_TIMEOUT_S", 60.0)
    piece = b"nothing of interest\n" * 50_000
    with hold_signals():
        analyst = LogWorker()
    os.kill(analyst._pid, signal.SIGSTOP)  # the worker cannot keep up
    try:
        for _ in range(3 * MAX_QUEUED_BYTES // len(piece)):
            analyst.queue_output(1, piece)
        analyst.queue_output(2, FAILURE_LOG.encode())
        assert analyst._queued_bytes <= MAX_QUEUED_BYTES
        os.kill(analyst._pid, signal.SIGCONT)
        answer = analyst.wait_for_answer()
    finally:
        analyst.kill()
    assert answer is not None
    assert answer.report.gpu_registered is False
    assert answer.report.line_count == 3 * MAX_QUEUED_BYTES // len(piece) * 50_000 + 3
    assert analyst.dropped_bytes > MAX_QUEUED_BYTES
