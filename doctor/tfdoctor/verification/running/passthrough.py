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
"""After the program's end, a stream is closed after this many seconds without output. Other processes may keep it open."""
MAX_LINGER_BYTES = 2 << 20
"""The largest number of bytes that are copied from a stream after the program's end. No pipe holds that many."""

FORWARDED_SIGNALS = frozenset(
    getattr(signal, f"SIG{name}")
    for name in (
        *("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "ALRM", "VTALRM"),
        *("PROF", "XCPU", "IO", "PWR", "ABRT", "RTMIN", "RTMAX"),
    )
    if hasattr(signal, f"SIG{name}")
)
_HANDLED_SIGNALS = FORWARDED_SIGNALS | {signal.SIGWINCH, signal.SIGCHLD, signal.SIGCONT}
"""The signals that are handled or forwarded."""
_F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", 1031)
"""The fcntl command that sets the size of a pipe. 1031 is its number on Linux."""
_MESSAGE_FORMAT = struct.Struct("ii")
"""The format of messages in pipes: two integers."""
_PROGRAM_STARTED, _PROGRAM_STATUS, _START_FAILED = range(3)
"""The kinds of the session leader's messages. Their values are the process id, the wait status and the errno."""


@contextlib.contextmanager
def hold_signals() -> Iterator[set[signal.Signals]]:
    """Block the handled signals, yield the previous mask, and restore it at the end.

    Ignored signals stay ignored (`nohup`, background jobs of a shell), and the program inherits that.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it were ignored, the exit status would be lost
    handled_signals = {
        number for number in _HANDLED_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
    }
    # Without SIGTTOU, setting the modes of a terminal from the background would stop this process.
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, handled_signals | {signal.SIGTTOU})
    try:
        yield {signal.Signals(number) for number in previous_mask}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


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

        `mask` is the signal mask of the program. `tap` is called from several threads with the number of the stream
        (1 or 2 for standard output or error) and the bytes that were forwarded.
        """
        self._argv = list(argv)
        self._env = dict(env)
        self._mask = mask
        self._tap = tap
        self._program_pid = 0
        self._program: subprocess.Popen[bytes] | None = None
        self._leader_pid = 0
        """The process id of the session leader; 0 if there is none."""
        self._leader_pipe = -1
        self._pty = -1
        """The descriptor of the master side of the pty; -1 if there is no pty."""
        self._pty_slave = -1
        """The descriptor of the slave side of the pty, which the program uses; -1 if it is not open."""
        self._terminal = -1
        """The descriptor of the real terminal from which the pty takes its size."""
        self._original_modes: list[object] = []
        """The modes of the real terminal before it was set to raw mode; empty if it is not in raw mode."""
        self._leader_saved_modes: list[object] = []
        """The modes that the session leader restores."""
        self._copied_streams: list[tuple[int, int]] = []
        """(descriptor to read, descriptor to write) of each stream."""
        self._last_byte = {1: b"\n", 2: b"\n"}
        self._write_locks = {1: threading.Lock(), 2: threading.Lock()}
        self._waiting_line = b""
        """A line of tfdoctor that waits for the end of a line of the program."""
        self._has_ended = False
        self._wake_read, self._wake_write = os.pipe()
        """The ends of the pipe through which the signal thread wakes the event loop."""
        self._end_read, self._end_write = os.pipe()
        """The ends of the pipe that tells the copying threads that the program has ended."""
        self.failures: list[str] = []
        """The errors that stopped the forwarding of a stream. A stream that its reader closed is not an error."""

    # ------------------------------------------------------------ start

    def start(self) -> None:
        """Start the program. Raise OSError if it cannot be started."""
        is_output_terminal, is_error_terminal = os.isatty(1), os.isatty(2)
        needs_leader = is_output_terminal and os.isatty(0)
        program_streams = {1: -1, 2: -1}
        if is_output_terminal or is_error_terminal:
            self._terminal = 1 if is_output_terminal else 2
            self._pty, self._pty_slave = os.openpty()
            self._copy_size()
            attributes = termios.tcgetattr(self._terminal)
            if not needs_leader:  # the bytes come out unchanged; the real terminal processes them
                attributes[1] &= ~termios.OPOST
            termios.tcsetattr(self._pty_slave, termios.TCSANOW, attributes)
            for number in (1, 2):
                if is_output_terminal if number == 1 else is_error_terminal:
                    program_streams[number] = self._pty_slave
            self._copied_streams.append((self._pty, self._terminal))
        write_ends: list[int] = []
        for number in (1, 2):
            if program_streams[number] >= 0:
                continue
            # one pipe for both streams keeps the order of their output
            if number == 2 and program_streams[1] != self._pty_slave and _is_same_file(1, 2):
                program_streams[2] = program_streams[1]
                continue
            read_end, program_streams[number] = os.pipe()
            write_ends.append(program_streams[number])
            with contextlib.suppress(OSError):
                fcntl.fcntl(read_end, _F_SETPIPE_SZ, COPY_BYTES)
            self._copied_streams.append((read_end, number))
        try:
            if needs_leader:
                self._start_leader(program_streams[1], program_streams[2])
            else:
                self._program = self._spawn(None, program_streams[1], program_streams[2], self._restore_mask)
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

        def start_argv(argv: Sequence[str]) -> subprocess.Popen[bytes]:
            return self._open_process(argv, stdin, stdout, stderr, prepare)

        try:
            return start_argv(self._argv)
        except OSError as error:
            script = self._find_script() if error.errno == errno.ENOEXEC else None
            if script is None:
                raise
            return start_argv(["/bin/sh", script, *self._argv[1:]])

    def _find_script(self) -> str | None:
        """Return the path of the program if it is a text file, which `sh` can run, else None."""
        path = shutil.which(self._argv[0], path=self._env.get("PATH", os.defpath))
        if path is None:
            return None
        with open(path, "rb") as file:  # noqa: PTH123 - the name may not be expressible as a Path
            return path if b"\0" not in file.read(256) else None

    def _open_process(
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
        self._leader_saved_modes = termios.tcgetattr(0)
        self._leader_pipe, write_end = os.pipe()
        parent_pid = os.getpid()
        self._leader_pid = os.fork()
        if self._leader_pid == 0:
            self._run_leader(write_end, parent_pid, stdout, stderr)
        os.close(write_end)
        kind, value = self._read_leader_message()
        if kind == _START_FAILED:
            os.waitpid(self._leader_pid, 0)
            raise OSError(value, os.strerror(value), self._argv[0])
        self._program_pid = value
        os.close(self._pty_slave)
        self._pty_slave = -1

    def _read_leader_message(self) -> tuple[int, int]:
        """Return the kind and the value of the session leader's next message."""
        data = os.read(self._leader_pipe, _MESSAGE_FORMAT.size)
        if len(data) < _MESSAGE_FORMAT.size:  # the session leader was killed
            return _PROGRAM_STATUS, int(signal.SIGKILL)
        kind, value = _MESSAGE_FORMAT.unpack(data)
        return int(kind), int(value)

    def _run_leader(self, write_end: int, parent_pid: int, stdout: int, stderr: int) -> NoReturn:
        """Run the session leader in the forked child process, which then exits."""
        exit_status = 1
        try:
            for descriptor in {self._pty, *(source for source, _ in self._copied_streams)}:
                os.close(descriptor)
            os.setsid()
            fcntl.ioctl(self._pty_slave, termios.TIOCSCTTY, 0)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGCHLD, signal.SIGTTOU})

            def enter_foreground() -> None:
                os.setpgid(0, 0)
                os.tcsetpgrp(self._pty_slave, os.getpid())
                self._restore_mask()

            try:
                program = self._spawn(self._pty_slave, stdout, stderr, enter_foreground)
            except OSError as error:
                os.write(write_end, _MESSAGE_FORMAT.pack(_START_FAILED, error.errno or errno.EIO))
                os._exit(1)
            for descriptor in {stdout, stderr} - {self._pty_slave}:
                os.close(descriptor)
            os.write(write_end, _MESSAGE_FORMAT.pack(_PROGRAM_STARTED, program.pid))
            while True:
                signal_number = signal.sigwait({signal.SIGHUP, signal.SIGCHLD})
                if signal_number == signal.SIGHUP and _is_orphan(parent_pid):
                    self._restore_terminal()
                    break
                pid, wait_status = os.waitpid(program.pid, os.WNOHANG | os.WUNTRACED)
                if not pid:
                    continue
                if not os.WIFSTOPPED(wait_status):
                    # When a session leader ends, the kernel sends SIGHUP to the foreground group. Background processes
                    # in the program's group must survive that.
                    os.tcsetpgrp(self._pty_slave, os.getpgrp())
                    os.write(write_end, _MESSAGE_FORMAT.pack(_PROGRAM_STATUS, wait_status))
                    break
                os.write(write_end, _MESSAGE_FORMAT.pack(_PROGRAM_STATUS, wait_status))
            exit_status = 0
        except BrokenPipeError:  # the parent was killed before it read the status
            self._restore_terminal()
            exit_status = 0
        finally:
            os._exit(exit_status)

    def _restore_terminal(self) -> None:
        """Restore the modes of the real terminal. The session leader does this if its parent was killed."""
        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, self._leader_saved_modes)  # type: ignore[arg-type]

    # ------------------------------------------------------------ waiting

    def wait(self, callbacks: Mapping[int, Callable[[], bool]], on_idle: Callable[[], None]) -> int:
        """Forward everything, and return the program's exit status, or -N if signal N ended it.

        `callbacks` has callbacks by descriptor. A callback is called when its descriptor is readable, until it returns False.
        `on_idle` is called several times a second.
        """
        needs_raw_mode = self._leader_pid != 0
        signal_thread = threading.Thread(target=self._listen_for_signals, daemon=True)
        copy_threads = [
            threading.Thread(target=self._copy_stream, args=descriptors, daemon=True)
            for descriptors in self._copied_streams
        ]
        try:
            if needs_raw_mode:
                self._enter_raw_mode()
                threading.Thread(target=self._copy_keys, daemon=True).start()
            for thread in (signal_thread, *copy_threads):
                thread.start()
            status = self._run_event_loop(dict(callbacks), on_idle)
        except BaseException:  # the program must not continue without its streams
            with contextlib.suppress(OSError):
                os.kill(self._program_pid, signal.SIGTERM)
            raise
        finally:
            self._has_ended = True
            if signal_thread.ident is not None and signal_thread.is_alive():
                # any handled signal ends the wait in the thread
                signal.pthread_kill(signal_thread.ident, signal.SIGCHLD)
                signal_thread.join()
            # From here on signals end tfdoctor. Otherwise a reader that does not read could block it forever.
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            try:
                if self._pty_slave >= 0:
                    os.close(self._pty_slave)
                os.write(self._end_write, b"x")
                for thread in copy_threads:
                    if thread.ident is not None:
                        thread.join()
            finally:
                self._leave_raw_mode()
        return status

    def _run_event_loop(self, callbacks: dict[int, Callable[[], bool]], on_idle: Callable[[], None]) -> int:
        """Handle signals, the session leader's messages and the extra descriptors, and return the exit status."""
        watched_descriptors = [self._wake_read, *callbacks] + (
            [self._leader_pipe] if self._leader_pid else []
        )
        while True:
            ready, _, _ = select.select(watched_descriptors, [], [], 0.2)
            on_idle()
            if self._leader_pid:  # `fg` of a job that is already running sends no signal
                self._enter_raw_mode()
            for descriptor in ready:
                status: int | None = None
                if descriptor == self._wake_read:
                    data = os.read(self._wake_read, _MESSAGE_FORMAT.size)
                    number, code = _MESSAGE_FORMAT.unpack(data)
                    status = self._handle_signal(number, code)
                elif descriptor == self._leader_pipe:
                    _, wait_status = self._read_leader_message()
                    status = self._handle_status(wait_status)
                elif not callbacks[descriptor]():
                    watched_descriptors.remove(descriptor)
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
        self._copy_size()
        if self._leader_pid:
            self._send_signal(signal.SIGCONT)

    def _handle_signal(self, number: int, code: int) -> int | None:
        """Handle or forward a signal. Return the program's exit status, or None if it is still running."""
        if number == signal.SIGCHLD:
            return self._program.poll() if self._program is not None else None
        if number == signal.SIGWINCH:
            self._copy_size()
            # the program's own SIGWINCH came before the size was set
            if not self._leader_pid and self._pty >= 0:
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

    def _listen_for_signals(self) -> None:
        """Write the number and the code of each signal to the wake pipe. This runs in a thread.

        A code above 0 means that the kernel sent the signal.
        """
        handled_signals = {
            number for number in _HANDLED_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
        }
        while True:
            if hasattr(signal, "sigwaitinfo"):
                info = signal.sigwaitinfo(handled_signals)
                number, code = info.si_signo, info.si_code
            else:  # macOS has no codes: assume that the terminal sent the signals that it can send
                number = int(signal.sigwait(handled_signals))
                code = int(number in (signal.SIGINT, signal.SIGQUIT))
            if self._has_ended:
                return
            os.write(self._wake_write, _MESSAGE_FORMAT.pack(number, code))

    # ------------------------------------------------------------ the terminal

    def _is_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(0) == os.getpgrp()
        except OSError:
            return False

    def _enter_raw_mode(self) -> None:
        """Set the real terminal to raw mode, unless it is in raw mode or tfdoctor is in the background."""
        if self._original_modes or not self._is_foreground():
            return
        with contextlib.suppress(termios.error):
            modes = termios.tcgetattr(0)
            tty.setraw(0, termios.TCSANOW)
            self._original_modes = modes
            self._copy_size()

    def _leave_raw_mode(self) -> None:
        """Restore the modes of the real terminal if it is in raw mode."""
        if self._original_modes:
            modes, self._original_modes = self._original_modes, []
            with contextlib.suppress(termios.error):
                termios.tcsetattr(0, termios.TCSANOW, modes)  # type: ignore[arg-type]

    def _copy_size(self) -> None:
        """Copy the size of the real terminal to the pty. The kernel sends SIGWINCH to its foreground group."""
        if self._pty >= 0:
            with contextlib.suppress(OSError):
                size = fcntl.ioctl(self._terminal, termios.TIOCGWINSZ, b"\0" * 8)
                fcntl.ioctl(self._pty, termios.TIOCSWINSZ, size)

    def _copy_keys(self) -> None:
        """Copy keyboard input to the pty while tfdoctor is in the foreground. This runs in a thread."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._end_read, select.POLLIN)
        while not self._has_ended:
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
        remaining_bytes = -1  # unlimited until the program ends
        try:
            while remaining_bytes:
                ready = dict(poll.poll(None if remaining_bytes < 0 else LINGER_S * 1000))
                if self._end_read in ready:
                    poll.unregister(self._end_read)
                    remaining_bytes = MAX_LINGER_BYTES
                    continue
                if not ready:
                    return
                try:
                    data = os.read(source, COPY_BYTES)
                except OSError:  # no process has the pty open any more
                    return
                if not data:
                    return
                if remaining_bytes > 0:
                    remaining_bytes = max(remaining_bytes - len(data), 0)
                if not self._write_output(target, data):
                    return
        finally:
            # From now on the program gets SIGPIPE or EIO, as it would without tfdoctor.
            if source != self._pty or not self._leader_pid:
                os.close(source)

    def _write_output(self, target: int, data: bytes) -> bool:
        """Write data to the target, and pass them to the tap. Return False if the target cannot be written."""
        with self._write_locks[target]:
            try:
                _write_all(target, data)
                self._last_byte[target] = data[-1:]
                if target == 2 and self._waiting_line and data.endswith(b"\n"):
                    notice, self._waiting_line = self._waiting_line, b""
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
        stream = 1 if is_terminal and self._terminal == 1 else 2
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
                self._waiting_line = line + b"\n"
        finally:
            lock.release()

    @property
    def has_open_line(self) -> bool:
        """Whether the last text on standard error (or its terminal) is an unfinished line."""
        return self._last_byte[1 if os.isatty(2) and self._terminal == 1 else 2] != b"\n"


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


def _is_orphan(parent_pid: int) -> bool:
    """Return whether the parent has died. Wait up to 0.5 s, as orphans are reparented after the SIGHUP."""
    for _ in range(50):
        if os.getppid() != parent_pid:
            return True
        time.sleep(0.01)
    return False
