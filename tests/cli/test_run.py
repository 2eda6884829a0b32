"""`tfdoctor run`: the program is as it is without us, in a terminal, in pipes, under signals; the answer comes last."""

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

from tfdoctor.running import log_worker as running
from tfdoctor.running.launch import make_loader_environment
from tfdoctor.running.log_worker import PLENTY, Analyst
from tfdoctor.running.passthrough import hold_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RUN = [sys.executable, "-m", "tfdoctor", "run"]
FAILED = (
    "2024-05-01 10:00:00.000000: I external/local_xla/xla/tsl/platform/default/dso_loader.cc:87] Could not load "
    "dynamic library 'libcudnn.so.9'; dlerror: libcudnn.so.9: cannot open shared object file: No such file or "
    "directory\n"
    "2024-05-01 10:00:00.000001: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2342] Cannot dlopen some GPU "
    "libraries. Please make sure the missing libraries mentioned above are installed properly if you would like to "
    "use GPU.\nSkipping registering GPU devices...\n"
)
SILENT = "no TensorFlow message about GPUs"


def run(
    *command: str,
    options: tuple[str, ...] = (),
    stdin: bytes = b"",
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*RUN, *options, "--", *command],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, **(env or {})},
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode(errors="replace")
    )


def shell(script: str) -> subprocess.CompletedProcess[bytes]:
    """A line of bash; RUN in it is `tfdoctor run --`."""
    line = re.sub(r"\bRUN\b", f"{sys.executable} -m tfdoctor run --", script)
    return subprocess.run(["/bin/bash", "-c", line], capture_output=True, timeout=60, check=False)


def python(code: str) -> tuple[str, str, str]:
    return sys.executable, "-c", code


@pytest.fixture
def failing(tmp_path: Path) -> str:
    path = tmp_path / "failed.log"
    path.write_text(FAILED, encoding="utf-8")
    return str(path)


# ---------------------------------------------------------------- exit statuses


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -15), ("kill -KILL $$", -9), ("kill -SEGV $$", -11)],
)
def test_the_exit_status_is_the_programs(script: str, status: int) -> None:
    assert run("sh", "-c", script).returncode == status


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    plain, broken = tmp_path / "plain", tmp_path / "broken"
    plain.write_text("x", encoding="utf-8")
    broken.write_text("#!/no/such/interpreter\n", encoding="utf-8")
    broken.chmod(0o755)
    for name, status, words in (
        ("no-such-command-anywhere", 127, "no such command"),
        ("/no/such/file", 127, "no such file"),
        (str(plain), 126, "Permission denied"),
        (str(broken), 127, "interpreter"),
        ("", 127, "no such command"),
    ):
        done = run(name)
        assert (done.returncode, done.stdout) == (status, "")
        assert done.stderr.startswith("tfdoctor: cannot run ")
        assert words in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_script_without_a_first_line_is_the_shells(tmp_path: Path) -> None:
    script, binary = tmp_path / "a-script-of-ours", tmp_path / "binary"
    script.write_text('echo "$0 $1"; exit 5\n', encoding="utf-8")
    binary.write_bytes(b"\x7fELF\0\0not one\n")
    for file in (script, binary):
        file.chmod(0o755)
    done = run(str(script), "one")
    assert (done.returncode, done.stdout) == (5, f"{script} one\n")
    found = run("a-script-of-ours", "two", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert (found.returncode, found.stdout) == (5, f"{script} two\n")
    refused = run(str(binary))
    assert (refused.returncode, refused.stdout) == (126, "")


def test_a_program_that_ends_with_130_was_not_interrupted() -> None:
    done = run("sh", "-c", "exit 130", options=("-q",))
    assert (done.returncode, done.stderr) == (130, "")


def test_no_command_is_a_wrong_request() -> None:
    done = run()
    assert done.returncode == 2
    assert "no command" in done.stderr


def test_options_of_the_program_are_its_own() -> None:
    done = subprocess.run(
        [*RUN, "-q", "sh", "-c", 'echo "$@"', "x", "--json", "-v", "--", "-q"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == b"--json -v -- -q\n"


def test_findings_change_the_status_on_request_alone(failing: str) -> None:
    assert run("cat", failing).returncode == 0
    assert run("cat", failing, options=("--fail-on", "error")).returncode == 1
    assert run("sh", "-c", f"cat {failing}; exit 5", options=("--fail-on", "error")).returncode == 5


# ---------------------------------------------------------------- streams


def test_both_streams_stay_apart_and_whole() -> None:
    code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 999); sys.stderr.write('an error\\n')"
    done = subprocess.run([*RUN, *python(code)], capture_output=True, timeout=60, check=False)
    assert done.stdout == bytes(range(256)) * 999
    assert done.stderr.startswith(b"an error\n")


def test_one_file_for_both_keeps_their_order(tmp_path: Path) -> None:
    loop = "for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done"
    shell(f"RUN sh -c '{loop}' > {tmp_path}/log 2>&1")
    text = (tmp_path / "log").read_text(encoding="utf-8")
    assert text.startswith("".join(f"o{i}\ne{i}\n" for i in range(1, 10)))


def test_output_comes_as_it_is_printed() -> None:
    with subprocess.Popen(
        [*RUN, *python("print('a', flush=True); input(); print('b')")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"a\n"  # while the program waits for us
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.stdout.read() == b"b\n"
    assert process.returncode == 0


def test_input_and_its_end_reach_the_program() -> None:
    assert run("cat", stdin=b"some\ninput").stdout == "some\ninput"


def test_a_reader_that_leaves_ends_the_program_as_ever() -> None:
    assert shell("RUN yes | head -c 4; echo ${PIPESTATUS[0]}").stdout == b"y\ny\n141\n"


def test_a_program_that_closes_its_output_runs_on() -> None:
    assert run("sh", "-c", "exec >&- 2>&-; sleep 0.3; exit 4").returncode == 4


def test_what_a_grandchild_holds_does_not_hold_us() -> None:
    began = time.monotonic()
    done = run("sh", "-c", "sleep 30 & echo $!")
    assert time.monotonic() - began < 10
    os.kill(int(done.stdout), signal.SIGKILL)  # it lives: it was not ours to end


def test_what_was_written_before_the_end_comes_out_to_a_slow_reader() -> None:
    done = shell("RUN sh -c 'head -c 300000 /dev/zero' 2>/dev/null | (sleep 1; wc -c)")
    assert done.stdout.strip() == b"300000"


def test_other_descriptors_and_closed_ones() -> None:
    assert shell("RUN sh -c 'echo three >&3' 3>&1 2>/dev/null").stdout == b"three\n"
    closed = shell("RUN sh -c 'exit 6' <&- >&- 2>&-")
    assert (closed.returncode, closed.stderr) == (6, b"")
    full = shell("RUN echo x >/dev/full")
    assert b"No space left" in full.stderr


def test_much_output_passes_whole() -> None:
    done = shell("RUN sh -c 'yes 0123456789 | head -c 20000000' 2>/dev/null | md5sum")
    assert done.stdout == shell("yes 0123456789 | head -c 20000000 | md5sum").stdout


# ---------------------------------------------------------------- signals


@pytest.mark.few(2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_for_us_reaches_the_program_once(number: signal.Signals) -> None:
    code = (
        "import signal, sys, time\nn = []\n"
        f"signal.signal({int(number)}, lambda *a: n.append(1))\nprint('up', flush=True)\n"
        "while not n: time.sleep(0.02)\ntime.sleep(0.3); print(len(n)); sys.exit(5)"
    )
    with subprocess.Popen(
        [*RUN, *python(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(number)
        assert process.stdout.read() == b"1\n"
    assert process.returncode == 5


@pytest.mark.few(0)
def test_the_program_inherits_the_signals_as_they_are() -> None:
    code = "import signal; print(signal.getsignal(2) == signal.SIG_IGN, signal.pthread_sigmask(0, []))"
    quoted = f'{sys.executable} -c "{code}"'
    assert shell(f"RUN {quoted}").stdout == shell(quoted).stdout
    assert shell(f"trap '' INT; RUN {quoted}").stdout == b"True set()\n"


def test_we_are_killed_and_nobody_is_left() -> None:
    code = "import os, time; print(os.getpid(), flush=True)\nwhile 1: time.sleep(.05); print('x', flush=True)"
    with subprocess.Popen(
        [*RUN, *python(code)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        program = int(process.stdout.readline().split()[0])
        process.kill()
        process.stdout.close()
    assert wait_for(lambda: not alive(program))


def alive(pid: int) -> bool:
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
    """A terminal of 30 lines and 100 columns with one process in front."""

    def __init__(self, *command: str, env: dict[str, str] | None = None) -> None:
        self.master, self.slave = os.openpty()
        self.resize(30, 100)
        self.seen = ""
        self._from = 0

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
        """Wait until this comes, after what was waited for before."""
        deadline = time.monotonic() + seconds
        while text not in self.seen[self._from :]:
            assert time.monotonic() < deadline, f"{text!r} did not come: {self.seen[self._from :]!r}"
            self._read(0.1)
        self._from = self.seen.index(text, self._from) + len(text)

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
        """Its exit status; what was still printed is in `seen`."""
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
    for one in opened:
        one.process.kill()
        one.process.wait()
        os.close(one.master)
        os.close(one.slave)


def test_the_program_has_a_terminal(terminal: Callable[..., Terminal]) -> None:
    code = (
        "import os; print([os.isatty(n) for n in range(3)], os.get_terminal_size(1), "
        "os.tcgetpgrp(1) == os.getpgrp(), open('/dev/tty').isatty()); print(input('name? ') + '!')"
    )
    screen = terminal(*RUN, *python(code))
    screen.expect("[True, True, True] os.terminal_size(columns=100, lines=30) True True\r\nname? ")
    screen.type("bob\n")
    assert screen.status() == 0
    assert "bob!\r\n" in screen.seen
    assert screen.canonical


@pytest.mark.parametrize(("key", "number"), [("\x03", signal.SIGINT), ("\x1c", signal.SIGQUIT)])
def test_keys_that_end(terminal: Callable[..., Terminal], key: str, number: signal.Signals) -> None:
    screen = terminal(*RUN, "sh", "-c", "echo up; exec sleep 30")
    screen.expect("up")
    screen.type(key)
    assert screen.status() == -number
    assert screen.canonical


def test_ctrl_c_that_the_program_heeds(terminal: Callable[..., Terminal]) -> None:
    code = (
        "import time\ntry: print('up', flush=True); time.sleep(30)\n"
        "except KeyboardInterrupt: print('saved'); raise SystemExit(9)"
    )
    screen = terminal(*RUN, *python(code))
    screen.expect("up")
    screen.type("\x03")
    assert screen.status() == 9
    assert "saved" in screen.seen


def test_the_end_of_input(terminal: Callable[..., Terminal]) -> None:
    screen = terminal(*RUN, "cat")
    screen.type("abc\n")
    screen.expect("abc\r\nabc")
    screen.type("\x04")
    assert screen.status() == 0


def test_a_new_size(terminal: Callable[..., Terminal]) -> None:
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGWINCH, lambda *a: (os.write(1, b'%d, %d' % os.get_terminal_size()), sys.exit()))\n"
        "print('up', flush=True); time.sleep(60)"
    )
    screen = terminal(*RUN, *python(code))
    screen.expect("up")
    screen.resize(50, 77)
    screen.expect("77, 50")
    assert screen.status() == 0


def test_stopping_and_going_on(terminal: Callable[..., Terminal]) -> None:
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


def test_in_the_background_and_then_in_front(terminal: Callable[..., Terminal]) -> None:
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


def test_in_a_pipeline_the_terminal_stays_as_it_is(terminal: Callable[..., Terminal]) -> None:
    code = (
        "import os, sys, time; print([os.isatty(n) for n in range(3)], os.get_terminal_size(2)[:], "
        "file=sys.stderr, flush=True); time.sleep(30)"
    )
    screen = terminal("bash", "-c", f'{" ".join(RUN)} -- {sys.executable} -c "{code}" | cat')
    screen.expect("[True, False, True] (100, 30)\r\n")
    assert screen.canonical
    screen.type("\x03")
    screen.expect("KeyboardInterrupt")  # coloured by newer Pythons
    screen.status()


def test_input_from_a_pipe_in_a_terminal(terminal: Callable[..., Terminal]) -> None:
    code = "import os, sys; print([os.isatty(n) for n in range(3)], sys.stdin.read())"
    screen = terminal("bash", "-c", f'echo piped | {" ".join(RUN)} -- {sys.executable} -c "{code}"')
    screen.expect("[False, True, True] piped\r\n")
    assert screen.status() == 0


def test_killed_without_warning_the_terminal_is_given_back(terminal: Callable[..., Terminal]) -> None:
    screen = terminal(*RUN, "sh", "-c", "echo up $$; exec sleep 30")
    screen.expect("up ")
    assert wait_for(lambda: not screen.canonical)
    screen.expect("\r\n")
    program = int(screen.seen.split("up ")[1].split()[0])
    screen.process.kill()
    screen.process.wait()
    assert wait_for(lambda: screen.canonical)
    assert wait_for(lambda: not alive(program))


@pytest.mark.skipif(shutil.which("infocmp") is None, reason="no terminfo")
def test_a_full_screen_program(terminal: Callable[..., Terminal]) -> None:
    code = (
        "import curses\ndef main(s):\n s.addstr(0, 0, 'press'); s.refresh(); return s.getkey()\n"
        "print('key', curses.wrapper(main))"
    )
    screen = terminal(*RUN, *python(code))
    screen.expect("press")
    screen.type("q")
    screen.expect("key q")
    assert screen.status() == 0


# ---------------------------------------------------------------- what is said


def test_the_answer(failing: str) -> None:
    done = run("sh", "-c", f"cat {failing} >&2; exit 3", env={"COLUMNS": "80"})
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith(FAILED)
    said = done.stderr.removeprefix(FAILED)
    assert "ended with exit status 3" in said
    assert "libcudnn.so.9" in said
    assert "tfdoctor run`" in said
    quiet = run("cat", failing, options=("-q",)).stderr
    assert "libcudnn.so.9" in quiet
    assert quiet.count("\n") <= 4
    # Without our doing, the lines are not ours.
    assert "tfdoctor run" not in run("cat", failing, options=("--no-verbose-loader",)).stderr


def test_nothing_to_say() -> None:
    assert SILENT in run("echo", "x").stderr
    assert run("echo", "x", options=("-q",)).stderr == ""


def test_a_failed_registration_is_told_at_once(failing: str) -> None:
    with subprocess.Popen(
        [*RUN, "sh", "-c", f"cat {failing} >&2; read x; echo late >&2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        lines = [process.stderr.readline().decode() for _ in range(4)]
        assert "".join(lines[:3]) == FAILED
        assert lines[3].startswith("tfdoctor: TensorFlow gets no GPU (")
        process.stdin.close()
        assert process.stderr.readline() == b"late\n"
        process.stderr.read()


def test_the_environment() -> None:
    shown, notes = make_loader_environment({"TF_CPP_VMODULE": "a=1", "TF_CPP_MIN_LOG_LEVEL": "2", "X": "y"})
    assert shown == {"TF_CPP_VMODULE": "a=1,dso_loader=3", "TF_CPP_MIN_LOG_LEVEL": "0", "X": "y"}
    assert len(notes) == 3
    same = {"TF_CPP_VMODULE": "dso_loader=1", "TF_CPP_MIN_LOG_LEVEL": "0"}
    assert make_loader_environment(same) == (same, [])
    for option, value in (((), "dso_loader=3\n"), (("--no-verbose-loader",), "\n")):
        assert (
            run("sh", "-c", "echo $TF_CPP_VMODULE", options=option, env={"TF_CPP_VMODULE": ""}).stdout
            == value
        )


def test_more_than_can_be_read_keeps_its_end_and_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "FEEDING", 60.0)
    monkeypatch.setattr(running, "ANSWER_TIMEOUT_S", 60.0)
    piece = b"nothing of interest\n" * 50_000
    with hold_signals():
        analyst = Analyst()
    os.kill(analyst._pid, signal.SIGSTOP)  # it cannot keep up
    try:
        for _ in range(3 * PLENTY // len(piece)):
            analyst.take(1, piece)
        analyst.take(2, FAILED.encode())
        assert analyst._size <= PLENTY
        os.kill(analyst._pid, signal.SIGCONT)
        answer = analyst.answer()
    finally:
        analyst.kill()
    assert answer is not None
    assert answer.report.gpu_registered is False
    assert answer.report.lines == 3 * PLENTY // len(piece) * 50_000 + 3
    assert analyst.lost > PLENTY
