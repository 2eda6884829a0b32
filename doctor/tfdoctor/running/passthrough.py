"""Run a program with unchanged terminal, pipes and signals, and read its output. POSIX only.

There are two cases:

* If standard input and output are a terminal, the program gets a new terminal (a pty), as with `script` or `sudo`. An
  additional process, the session leader of the pty, starts it. Without a parent in its session Ctrl-Z could not stop the
  program: the kernel ignores it in a process group whose parents are all in another session. The session leader also
  restores the modes of the real terminal if tfdoctor is killed.

* Otherwise the program stays in the process group of tfdoctor and inherits its standard input, so that Ctrl-C and
  Ctrl-Z reach it directly. Output that does not go to a terminal goes through pipes. If only one output stream is a
  terminal, the program writes that stream to a pty.

Each stream is copied by a thread, so that a slow reader delays only that stream. The bytes are not changed, and the order
of two streams that go to the same file is preserved.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import shutil
import signal
import struct
import subprocess
import termios
import threading
import time
import tty
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Passthrough", "hold_signals"]

COPY_BYTES = 1 << 18
"""The number of bytes that are copied at once, and the requested size of the pipes."""
LINGER_S = 0.2
"""The seconds without output after which a stream is closed after the program's end. Other processes may keep it open."""
MAX_LINGER_BYTES = 2 << 20
"""The largest number of bytes that are copied from a stream after the program's end. No pipe holds that many."""

FORWARDED = frozenset(
    {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
)
_HANDLED = FORWARDED | {signal.SIGWINCH, signal.SIGCHLD, signal.SIGCONT}
_SET_PIPE_SIZE = getattr(fcntl, "F_SETPIPE_SZ", 1031)
_MESSAGE = struct.Struct("ii")
_STARTED, _STATUS, _FAILED = range(3)


@contextlib.contextmanager
def hold_signals() -> Iterator[set[signal.Signals]]:
    """Block the handled signals, yield the previous mask, and restore it at the end.

    Ignored signals stay ignored (`nohup`, background jobs of a shell), and the program inherits that.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it were ignored, the exit status would be lost
    handled = {number for number in _HANDLED if signal.getsignal(number) is not signal.SIG_IGN}
    # Without SIGTTOU, setting the modes of a terminal from the background would stop this process.
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, handled | {signal.SIGTTOU})
    try:
        yield {signal.Signals(number) for number in previous}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


class Passthrough:
    """Runs a program and forwards its streams. Use it within `hold_signals`, before any thread is started."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        mask: set[signal.Signals],
        tap: Callable[[int, bytes], None],
    ) -> None:
        """Prepare the start.

        `mask` is the signal mask of the program. `tap` is called from several threads, with 1 or 2 (for standard
        output or error) and the bytes that were forwarded.
        """
        self._argv = list(argv)
        self._env = dict(env)
        self._mask = mask
        self._tap = tap
        self._program_pid = 0
        self._program: subprocess.Popen[bytes] | None = None
        self._leader_pid = 0
        self._leader_pipe = -1
        self._pty = -1
        """The descriptor of the master side of the pty; -1 if there is no pty."""
        self._slave = -1
        self._screen = -1
        """The descriptor of the real terminal from which the pty takes its size."""
        self._original_modes: list[object] = []
        """The modes of the real terminal before it was set to raw mode; empty if it is not in raw mode."""
        self._saved_modes: list[object] = []
        self._copied_streams: list[tuple[int, int]] = []
        self._last_byte = {1: b"\n", 2: b"\n"}
        self._write_locks = {1: threading.Lock(), 2: threading.Lock()}
        self._notice = b""
        self._is_over = False
        self._wake_read, self._wake_write = os.pipe()
        self._end_read, self._end_write = os.pipe()
        self.failures: list[str] = []
        """The errors that stopped the forwarding of a stream, except that its reader closed it."""

    # ------------------------------------------------------------ start

    def start(self) -> None:
        """Start the program. Raise OSError if it cannot be started."""
        is_output_terminal, is_error_terminal = os.isatty(1), os.isatty(2)
        needs_leader = is_output_terminal and os.isatty(0)
        streams = {1: -1, 2: -1}
        if is_output_terminal or is_error_terminal:
            self._screen = 1 if is_output_terminal else 2
            self._pty, self._slave = os.openpty()
            self._resize()
            attributes = termios.tcgetattr(self._screen)
            if not needs_leader:  # the bytes come out unchanged; the real terminal processes them
                attributes[1] &= ~termios.OPOST
            termios.tcsetattr(self._slave, termios.TCSANOW, attributes)
            for number in (1, 2):
                if (is_output_terminal, is_error_terminal)[number - 1]:
                    streams[number] = self._slave
            self._copied_streams.append((self._pty, self._screen))
        write_ends: list[int] = []
        for number in (1, 2):
            if streams[number] >= 0:
                continue
            if number == 2 and streams[1] != self._slave and _is_same_file(1, 2):
                streams[2] = streams[1]
                continue
            read_end, streams[number] = os.pipe()
            write_ends.append(streams[number])
            with contextlib.suppress(OSError):
                fcntl.fcntl(read_end, _SET_PIPE_SIZE, COPY_BYTES)
            self._copied_streams.append((read_end, number))
        try:
            if needs_leader:
                self._start_leader(streams[1], streams[2])
            else:
                self._program = self._spawn(None, streams[1], streams[2], self._restore_mask)
                self._program_pid = self._program.pid
        finally:
            for descriptor in write_ends:
                os.close(descriptor)

    def _spawn(
        self, stdin: int | None, stdout: int, stderr: int, prepare: Callable[[], None]
    ) -> subprocess.Popen[bytes]:
        """Start the program. A script without an interpreter line is started with /bin/sh.

        `prepare` runs in the child process before the program.
        """

        def start(argv: Sequence[str]) -> subprocess.Popen[bytes]:
            return self._popen(argv, stdin, stdout, stderr, prepare)

        try:
            return start(self._argv)
        except OSError as error:
            script = self._find_script() if error.errno == errno.ENOEXEC else None
            if script is None:
                raise
            return start(["/bin/sh", script, *self._argv[1:]])

    def _find_script(self) -> str | None:
        """Return the path of the program if it is a text file, which `sh` can run, else None."""
        path = shutil.which(self._argv[0], path=self._env.get("PATH", os.defpath))
        if path is None:
            return None
        with open(path, "rb") as file:  # noqa: PTH123 - the name may not be expressible as a Path
            return path if b"\0" not in file.read(256) else None

    def _popen(
        self,
        argv: Sequence[str],
        stdin: int | None,
        stdout: int,
        stderr: int,
        prepare: Callable[[], None],
    ) -> subprocess.Popen[bytes]:
        """Start a command with these streams. `prepare` runs in the child process before the command."""
        return subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=self._env,
            close_fds=False,  # descriptors that the user opened (3>file) are inherited
            preexec_fn=prepare,  # noqa: PLW1509 - there are no threads yet
        )

    def _restore_mask(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _start_leader(self, stdout: int, stderr: int) -> None:
        """Fork the session leader, which starts the program in the pty, and wait for its first message.

        Raise OSError if the program cannot be started.
        """
        self._saved_modes = termios.tcgetattr(0)
        self._leader_pipe, write_end = os.pipe()
        parent = os.getpid()
        self._leader_pid = os.fork()
        if self._leader_pid == 0:
            self._run_leader(write_end, parent, stdout, stderr)
        os.close(write_end)
        kind, value = self._read_leader_message()
        if kind == _FAILED:
            os.waitpid(self._leader_pid, 0)
            raise OSError(value, os.strerror(value), self._argv[0])
        self._program_pid = value
        os.close(self._slave)
        self._slave = -1

    def _read_leader_message(self) -> tuple[int, int]:
        """Return the kind and the value of the session leader's next message."""
        data = os.read(self._leader_pipe, _MESSAGE.size)
        if len(data) < _MESSAGE.size:  # the session leader was killed
            return _STATUS, int(signal.SIGKILL)
        kind, value = _MESSAGE.unpack(data)
        return int(kind), int(value)

    def _run_leader(self, write_end: int, parent: int, stdout: int, stderr: int) -> NoReturn:
        """Run the session leader in the forked child process, which then exits."""
        status = 1
        try:
            for descriptor in {self._pty, *(source for source, _ in self._copied_streams)}:
                os.close(descriptor)
            os.setsid()
            fcntl.ioctl(self._slave, termios.TIOCSCTTY, 0)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGCHLD, signal.SIGTTOU})

            def enter_foreground() -> None:
                os.setpgid(0, 0)
                os.tcsetpgrp(self._slave, os.getpid())
                self._restore_mask()

            try:
                program = self._spawn(self._slave, stdout, stderr, enter_foreground)
            except OSError as error:
                os.write(write_end, _MESSAGE.pack(_FAILED, error.errno or errno.EIO))
                os._exit(1)
            for descriptor in {stdout, stderr} - {self._slave}:
                os.close(descriptor)
            os.write(write_end, _MESSAGE.pack(_STARTED, program.pid))
            while True:
                number = signal.sigwait({signal.SIGHUP, signal.SIGCHLD})
                if number == signal.SIGHUP and _is_orphan(parent):
                    self._restore_terminal()
                    break
                pid, wait_status = os.waitpid(program.pid, os.WNOHANG | os.WUNTRACED)
                if not pid:
                    continue
                if not os.WIFSTOPPED(wait_status):
                    # When a session leader ends, the kernel sends SIGHUP to the foreground group. Background processes
                    # in the program's group must survive that.
                    os.tcsetpgrp(self._slave, os.getpgrp())
                    os.write(write_end, _MESSAGE.pack(_STATUS, wait_status))
                    break
                os.write(write_end, _MESSAGE.pack(_STATUS, wait_status))
            status = 0
        except BrokenPipeError:  # the parent was killed before it read the status
            self._restore_terminal()
            status = 0
        finally:
            os._exit(status)

    def _restore_terminal(self) -> None:
        """Restore the modes of the real terminal. The session leader does this if its parent was killed."""
        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, self._saved_modes)  # type: ignore[arg-type]

    # ------------------------------------------------------------ waiting

    def wait(self, extra: Mapping[int, Callable[[], bool]], idle: Callable[[], None]) -> int:
        """Forward everything, and return the program's exit status, or -N if signal N ended it.

        `extra` has callbacks by descriptor. A callback is called when its descriptor is readable, until it returns False.
        `idle` is called several times a second.
        """
        needs_raw_mode = self._leader_pid != 0
        listener = threading.Thread(target=self._listen, daemon=True)
        copiers = [
            threading.Thread(target=self._copy_stream, args=pair, daemon=True)
            for pair in self._copied_streams
        ]
        try:
            if needs_raw_mode:
                self._enter_raw_mode()
                threading.Thread(target=self._copy_keys, daemon=True).start()
            for thread in (listener, *copiers):
                thread.start()
            status = self._run_event_loop(dict(extra), idle)
        except BaseException:  # the program must not continue without its streams
            with contextlib.suppress(OSError):
                os.kill(self._program_pid, signal.SIGTERM)
            raise
        finally:
            self._is_over = True
            if listener.ident is not None and listener.is_alive():
                signal.pthread_kill(listener.ident, signal.SIGCHLD)
                listener.join()
            # From here on signals end tfdoctor. Otherwise a reader that does not read could block it forever.
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            try:
                if self._slave >= 0:
                    os.close(self._slave)
                os.write(self._end_write, b"x")
                for thread in copiers:
                    if thread.ident is not None:
                        thread.join()
            finally:
                self._leave_raw_mode()
        return status

    def _run_event_loop(self, callbacks: dict[int, Callable[[], bool]], idle: Callable[[], None]) -> int:
        """Handle signals, the session leader's messages and the extra descriptors, and return the exit status."""
        watched = [self._wake_read, *callbacks] + ([self._leader_pipe] if self._leader_pid else [])
        while True:
            ready = select.select(watched, [], [], 0.2)[0]
            idle()
            if self._leader_pid:  # `fg` of a job that is already running sends no signal
                self._enter_raw_mode()
            for descriptor in ready:
                status: int | None = None
                if descriptor == self._wake_read:
                    status = self._handle_signal(*_MESSAGE.unpack(os.read(self._wake_read, _MESSAGE.size)))
                elif descriptor == self._leader_pipe:
                    status = self._handle_status(self._read_leader_message()[1])
                elif not callbacks[descriptor]():
                    watched.remove(descriptor)
                if status is not None:
                    return status

    def _handle_status(self, wait_status: int) -> int | None:
        """Handle the session leader's message about the program.

        If the program has ended, return its exit status. If it was stopped, stop the whole job and return None.
        """
        if not os.WIFSTOPPED(wait_status):
            os.waitpid(self._leader_pid, 0)
            return os.waitstatus_to_exitcode(wait_status)
        time.sleep(0.02)  # for its remaining output
        self._leave_raw_mode()
        os.kill(0, signal.SIGTSTP)  # stop the whole job, as Ctrl-Z does; this continues at SIGCONT
        self._continue_program()
        return None

    def _continue_program(self) -> None:
        """Continue the program after a stop, and restore raw mode and the size of the pty."""
        if self._leader_pid:
            self._enter_raw_mode()
        self._resize()
        if self._leader_pid:
            self._send_signal(signal.SIGCONT)

    def _handle_signal(self, number: int, code: int) -> int | None:
        """Handle or forward a signal. Return the exit status of the program; None if it is still running."""
        if number == signal.SIGCHLD:
            return self._program.poll() if self._program is not None else None
        if number == signal.SIGWINCH:
            self._resize()
            if (
                not self._leader_pid and self._pty >= 0
            ):  # the program's own SIGWINCH came before the size was set
                self._send_signal(number)
        elif number == signal.SIGCONT:
            self._continue_program()
        # If both are in one group, the terminal sends its signals to the program as well (code > 0), but a process
        # sends a signal only to tfdoctor.
        elif self._leader_pid or code <= 0:
            self._send_signal(number)
        return None

    def _send_signal(self, number: int) -> None:
        """Send the program a signal.

        If it has its own session, SIGCONT goes to its process group, and SIGHUP also to the foreground group.
        """
        with contextlib.suppress(OSError):
            if self._leader_pid and number == signal.SIGCONT:
                os.killpg(self._program_pid, number)
            else:
                os.kill(self._program_pid, number)
            if self._leader_pid and number == signal.SIGHUP:
                os.killpg(os.tcgetpgrp(self._pty), number)

    def _listen(self) -> None:
        """Write the number and the code of each signal to the wake pipe. This runs in a thread.

        A code above 0 means that the kernel sent the signal.
        """
        handled = {number for number in _HANDLED if signal.getsignal(number) is not signal.SIG_IGN}
        while True:
            if hasattr(signal, "sigwaitinfo"):
                info = signal.sigwaitinfo(handled)
                number, code = info.si_signo, info.si_code
            else:  # macOS has no codes: assume that the terminal sent the signals that it can send
                number = int(signal.sigwait(handled))
                code = int(number in (signal.SIGINT, signal.SIGQUIT))
            if self._is_over:
                return
            os.write(self._wake_write, _MESSAGE.pack(number, code))

    # ------------------------------------------------------------ the terminal

    def _is_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(0) == os.getpgrp()
        except OSError:
            return False

    def _enter_raw_mode(self) -> None:
        """Set the real terminal to raw mode, unless it is already or tfdoctor is in the background."""
        if self._original_modes or not self._is_foreground():
            return
        with contextlib.suppress(termios.error):
            modes = termios.tcgetattr(0)
            tty.setraw(0, termios.TCSANOW)
            self._original_modes = modes
            self._resize()

    def _leave_raw_mode(self) -> None:
        """Restore the modes of the real terminal if it is in raw mode."""
        if self._original_modes:
            modes, self._original_modes = self._original_modes, []
            with contextlib.suppress(termios.error):
                termios.tcsetattr(0, termios.TCSANOW, modes)  # type: ignore[arg-type]

    def _resize(self) -> None:
        """Copy the size of the real terminal to the pty. The kernel sends SIGWINCH to its foreground group."""
        if self._pty >= 0:
            with contextlib.suppress(OSError):
                size = fcntl.ioctl(self._screen, termios.TIOCGWINSZ, b"\0" * 8)
                fcntl.ioctl(self._pty, termios.TIOCSWINSZ, size)

    def _copy_keys(self) -> None:
        """Copy keyboard input to the pty while tfdoctor is in the foreground. This runs in a thread."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._end_read, select.POLLIN)
        while not self._is_over:
            ready = dict(poll.poll())
            if self._end_read in ready:
                return
            if not self._original_modes or not self._is_foreground():
                select.select([self._end_read], [], [], 0.2)
                continue
            try:
                data = os.read(0, 4096)
                if not data:
                    return
                _write_all(self._pty, data)
            except OSError:  # the terminal is gone, and SIGHUP follows
                return

    # ------------------------------------------------------------ output

    def _copy_stream(self, source: int, target: int) -> None:
        """Copy a stream until its end. This runs in a thread.

        After the program's end at most MAX_LINGER_BYTES are copied.
        """
        poll = select.poll()
        poll.register(source, select.POLLIN)
        poll.register(self._end_read, select.POLLIN)
        remaining = -1
        try:
            while remaining:
                ready = dict(poll.poll(None if remaining < 0 else LINGER_S * 1000))
                if self._end_read in ready:
                    poll.unregister(self._end_read)
                    remaining = MAX_LINGER_BYTES
                    continue
                if not ready:
                    return
                try:
                    data = os.read(source, COPY_BYTES)
                except OSError:  # no process has the pty open any more
                    return
                if not data:
                    return
                if remaining > 0:
                    remaining = max(remaining - len(data), 0)
                if not self._forward(target, data):
                    return
        finally:
            # From now on the program gets SIGPIPE or EIO, as it would without tfdoctor.
            if source != self._pty or not self._leader_pid:
                os.close(source)

    def _forward(self, target: int, data: bytes) -> bool:
        """Write data to the target, and pass them to the tap. Return False if the target cannot be written."""
        with self._write_locks[target]:
            try:
                _write_all(target, data)
                self._last_byte[target] = data[-1:]
                if target == 2 and self._notice and data.endswith(b"\n"):
                    notice, self._notice = self._notice, b""
                    _write_all(2, notice)
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.EIO):
                    name = "standard output" if target == 1 else "standard error"
                    self.failures.append(f"{name}: {error.strerror}")
                return False
        self._tap(target, data)
        return True

    def write_line(self, text: str) -> None:
        """Write a line of tfdoctor to standard error, between two lines of the program.

        The line is dropped if the output is blocked for half a second.
        """
        line = text.encode(errors="replace")
        is_terminal = os.isatty(2)
        # If both streams are terminals, they are the same terminal.
        stream = 1 if is_terminal and self._screen == 1 else 2
        lock = self._write_locks[stream]
        if not lock.acquire(timeout=0.5):  # the report at the end has the same information
            return
        try:
            if self._last_byte[stream] == b"\n" or is_terminal:
                start = b"" if self._last_byte[stream] == b"\n" else b"\r\n"
                with contextlib.suppress(OSError):
                    _write_all(2, start + line + (b"\r\n" if self._original_modes else b"\n"))
                    self._last_byte[stream] = b"\n"
            else:
                self._notice = line + b"\n"
        finally:
            lock.release()

    @property
    def has_open_line(self) -> bool:
        """Whether the last text on standard error (or its terminal) is an unfinished line."""
        return self._last_byte[1 if os.isatty(2) and self._screen == 1 else 2] != b"\n"


def _is_same_file(first: int, second: int) -> bool:
    first_status, second_status = os.fstat(first), os.fstat(second)
    return (first_status.st_dev, first_status.st_ino) == (second_status.st_dev, second_status.st_ino)


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all data, waiting if the descriptor is non-blocking."""
    remaining = memoryview(data)
    while remaining:
        try:
            remaining = remaining[os.write(descriptor, remaining) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


def _is_orphan(parent: int) -> bool:
    """Return whether the parent has died. Wait up to 0.5 s: orphans are reparented after the SIGHUP."""
    for _ in range(50):
        if os.getppid() != parent:
            return True
        time.sleep(0.01)
    return False
