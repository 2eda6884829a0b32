"""Run a program as if it had its terminal, pipes and signals to itself, and read what it prints. POSIX only.

There are two cases:

* If input and output are a terminal, the program gets its own terminal (a pty), as with `script` or `sudo`. A
  keeper process leads its session. It lets Ctrl-Z stop the program, which the kernel ignores in a process group
  whose parents are all in another session, and it restores the real terminal's modes if we are killed.

* Otherwise the program stays in our process group and keeps our standard input, so that Ctrl-C and Ctrl-Z reach it
  directly. Output that is not a terminal goes through pipes. If only one output stream is a terminal, that one
  becomes a pty, which is used for writing only.

A thread copies each stream, so a slow reader of one stream delays only that stream. The bytes are not changed, and
two streams that go to the same file keep their order.
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
"""Bytes that are copied at once; also the requested size of the pipes."""
LINGER_S = 0.2
"""Seconds of silence after which a stream that another process keeps open is given up, once the program has ended."""
MAX_LINGER_BYTES = 2 << 20
"""Most bytes that are copied from such a stream after the program's end: more than any pipe holds."""

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
    # SIGTTOU: setting a terminal's modes from the background must not stop us.
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, handled | {signal.SIGTTOU})
    try:
        yield {signal.Signals(number) for number in previous}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


class Passthrough:
    """One program from start to end. Use it within `hold_signals`, before any thread is started."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        mask: set[signal.Signals],
        tap: Callable[[int, bytes], None],
    ) -> None:
        """Prepare the start.

        `mask` is the program's signal mask. `tap` is called with (1 or 2, bytes) for everything that was passed on,
        from several threads.
        """
        self._argv = list(argv)
        self._env = dict(env)
        self._mask = mask
        self._tap = tap
        self._program_pid = 0
        self._program: subprocess.Popen[bytes] | None = None
        self._keeper = 0
        self._keeper_pipe = -1
        self._pty = -1
        """Our side of the pty; -1 if there is none."""
        self._slave = -1
        self._screen = -1
        """Descriptor of the real terminal from which the pty takes its size."""
        self._modes: list[object] = []
        """Modes of the real terminal before it was set to raw mode; empty if it is not in raw mode."""
        self._saved: list[object] = []
        self._pumps: list[tuple[int, int]] = []
        self._last_byte = {1: b"\n", 2: b"\n"}
        self._write_locks = {1: threading.Lock(), 2: threading.Lock()}
        self._notice = b""
        self._is_over = False
        self._wake_read, self._wake_write = os.pipe()
        self._end_read, self._end_write = os.pipe()
        self.failures: list[str] = []
        """Errors that stopped a stream's forwarding, except that its reader has closed it."""

    # ------------------------------------------------------------ start

    def start(self) -> None:
        """Start the program. Raise OSError if it cannot be started."""
        output, errors = os.isatty(1), os.isatty(2)
        needs_keeper = output and os.isatty(0)
        streams = {1: -1, 2: -1}
        if output or errors:
            self._screen = 1 if output else 2
            self._pty, self._slave = os.openpty()
            self._resize()
            attributes = termios.tcgetattr(self._screen)
            if not needs_keeper:  # the bytes come out unchanged; the real terminal processes them
                attributes[1] &= ~termios.OPOST
            termios.tcsetattr(self._slave, termios.TCSANOW, attributes)
            for number in (1, 2):
                if (output, errors)[number - 1]:
                    streams[number] = self._slave
            self._pumps.append((self._pty, self._screen))
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
            self._pumps.append((read_end, number))
        try:
            if needs_keeper:
                self._start_keeper(streams[1], streams[2])
            else:
                self._program = self._spawn(None, streams[1], streams[2], self._restore_mask)
                self._program_pid = self._program.pid
        finally:
            for descriptor in write_ends:
                os.close(descriptor)

    def _spawn(
        self, stdin: int | None, stdout: int, stderr: int, prepare: Callable[[], None]
    ) -> subprocess.Popen[bytes]:
        """Start the program, with /bin/sh if it is a script without an interpreter line."""

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
        """Return the path of the program if it is a text that the kernel cannot run; `sh` runs it, as in a shell."""
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
        """Start a command with these streams; `prepare` runs in the child before the command."""
        return subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=self._env,
            close_fds=False,  # descriptors that the user opened (3>file) are inherited; ours are not
            preexec_fn=prepare,  # noqa: PLW1509 - there are no threads yet
        )

    def _restore_mask(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _start_keeper(self, stdout: int, stderr: int) -> None:
        """Fork the keeper, which starts the program in the pty's session, and wait for its first message."""
        self._saved = termios.tcgetattr(0)
        self._keeper_pipe, write_end = os.pipe()
        parent = os.getpid()
        self._keeper = os.fork()
        if self._keeper == 0:
            self._run_keeper(write_end, parent, stdout, stderr)
        os.close(write_end)
        kind, value = self._read_keeper_message()
        if kind == _FAILED:
            os.waitpid(self._keeper, 0)
            raise OSError(value, os.strerror(value), self._argv[0])
        self._program_pid = value
        os.close(self._slave)
        self._slave = -1

    def _read_keeper_message(self) -> tuple[int, int]:
        """Return the keeper's next message as (kind, value)."""
        data = os.read(self._keeper_pipe, _MESSAGE.size)
        if len(data) < _MESSAGE.size:  # the keeper was killed
            return _STATUS, int(signal.SIGKILL)
        kind, value = _MESSAGE.unpack(data)
        return int(kind), int(value)

    def _run_keeper(self, write_end: int, parent: int, stdout: int, stderr: int) -> NoReturn:
        """Run the keeper in the forked child, and exit."""
        status = 1
        try:
            for descriptor in {self._pty, *(source for source, _ in self._pumps)}:
                os.close(descriptor)
            os.setsid()
            fcntl.ioctl(self._slave, termios.TIOCSCTTY, 0)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGCHLD, signal.SIGTTOU})

            def foreground() -> None:
                os.setpgid(0, 0)
                os.tcsetpgrp(self._slave, os.getpid())
                self._restore_mask()

            try:
                program = self._spawn(self._slave, stdout, stderr, foreground)
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
                    # When a session's leader ends, the kernel hangs up on the foreground group. Processes that the
                    # program left running in its own group must survive that.
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
        """Restore the terminal's modes from the keeper, after its parent was killed."""
        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, self._saved)  # type: ignore[arg-type]

    # ------------------------------------------------------------ waiting

    def wait(self, extra: Mapping[int, Callable[[], bool]], idle: Callable[[], None]) -> int:
        """Pass everything on until the program has ended, and return its exit status, -N if signal N ended it.

        `also` maps further descriptors to the callbacks to call when they are readable; a callback that returns False
        is not called again. `idle` is called several times a second.
        """
        raw = self._keeper != 0
        listener = threading.Thread(target=self._listen, daemon=True)
        pumps = [threading.Thread(target=self._copy_stream, args=pair, daemon=True) for pair in self._pumps]
        try:
            if raw:
                self._enter_raw()
                threading.Thread(target=self._copy_keys, daemon=True).start()
            for thread in (listener, *pumps):
                thread.start()
            status = self._run_event_loop(dict(extra), idle)
        except BaseException:  # a bug of ours: the program must not keep running without its streams
            with contextlib.suppress(OSError):
                os.kill(self._program_pid, signal.SIGTERM)
            raise
        finally:
            self._is_over = True
            if listener.ident is not None and listener.is_alive():
                signal.pthread_kill(listener.ident, signal.SIGCHLD)
                listener.join()
            # From here on signals end us, so that a reader that does not read our output cannot block us forever.
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            try:
                if self._slave >= 0:
                    os.close(self._slave)
                os.write(self._end_write, b"x")
                for thread in pumps:
                    if thread.ident is not None:
                        thread.join()
            finally:
                self._leave_raw()
        return status

    def _run_event_loop(self, also: dict[int, Callable[[], bool]], idle: Callable[[], None]) -> int:
        """Handle signals, the keeper's messages and the further descriptors until the program has ended."""
        watched = [self._wake_read, *also] + ([self._keeper_pipe] if self._keeper else [])
        while True:
            ready = select.select(watched, [], [], 0.2)[0]
            idle()
            if self._keeper:  # a shell's `fg` of a job that is already running sends no signal
                self._enter_raw()
            for descriptor in ready:
                status: int | None = None
                if descriptor == self._wake_read:
                    status = self._handle_signal(*_MESSAGE.unpack(os.read(self._wake_read, _MESSAGE.size)))
                elif descriptor == self._keeper_pipe:
                    status = self._handle_status(self._read_keeper_message()[1])
                elif not also[descriptor]():
                    watched.remove(descriptor)
                if status is not None:
                    return status

    def _handle_status(self, wait_status: int) -> int | None:
        """Handle the keeper's message that the program has ended (return its status) or was stopped (stop, too)."""
        if not os.WIFSTOPPED(wait_status):
            os.waitpid(self._keeper, 0)
            return os.waitstatus_to_exitcode(wait_status)
        time.sleep(0.02)  # for the rest of its output
        self._leave_raw()
        os.kill(0, signal.SIGTSTP)  # stop the whole job, as Ctrl-Z does; this continues at SIGCONT
        self._continue_program()
        return None

    def _continue_program(self) -> None:
        """Restore raw mode and the size after a stop, and continue the program."""
        if self._keeper:
            self._enter_raw()
        self._resize()
        if self._keeper:
            self._send_signal(signal.SIGCONT)

    def _handle_signal(self, number: int, code: int) -> int | None:
        """Handle or forward a signal. Return the program's exit status if it has ended."""
        if number == signal.SIGCHLD:
            return self._program.poll() if self._program is not None else None
        if number == signal.SIGWINCH:
            self._resize()
            if not self._keeper and self._pty >= 0:  # the program's own SIGWINCH came before the size was set
                self._send_signal(number)
        elif number == signal.SIGCONT:
            self._continue_program()
        elif (
            self._keeper or code <= 0
        ):  # the program is in another group, or a process sent the signal to us alone (the terminal sends it to both)
            self._send_signal(number)
        return None

    def _send_signal(self, number: int) -> None:
        """Send the program a signal: to its group to continue it, and to the foreground group as well at a hangup."""
        with contextlib.suppress(OSError):
            if self._keeper and number == signal.SIGCONT:
                os.killpg(self._program_pid, number)
            else:
                os.kill(self._program_pid, number)
            if self._keeper and number == signal.SIGHUP:
                os.killpg(os.tcgetpgrp(self._pty), number)

    def _listen(self) -> None:
        """Write each signal to the wake pipe as (number, code), in a thread.

        A code above 0 means that the kernel sent it.
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

    def _enter_raw(self) -> None:
        if self._modes or not self._is_foreground():
            return
        with contextlib.suppress(termios.error):
            modes = termios.tcgetattr(0)
            tty.setraw(0, termios.TCSANOW)
            self._modes = modes
            self._resize()

    def _leave_raw(self) -> None:
        if self._modes:
            modes, self._modes = self._modes, []
            with contextlib.suppress(termios.error):
                termios.tcsetattr(0, termios.TCSANOW, modes)  # type: ignore[arg-type]

    def _resize(self) -> None:
        """Copy the real terminal's size to the pty; the kernel signals the processes in its foreground."""
        if self._pty >= 0:
            with contextlib.suppress(OSError):
                size = fcntl.ioctl(self._screen, termios.TIOCGWINSZ, b"\0" * 8)
                fcntl.ioctl(self._pty, termios.TIOCSWINSZ, size)

    def _copy_keys(self) -> None:
        """Copy typed keys to the pty, in a thread. In the background the keys belong to other programs."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._end_read, select.POLLIN)
        while not self._is_over:
            ready = dict(poll.poll())
            if self._end_read in ready:
                return
            if not self._modes or not self._is_foreground():
                select.select([self._end_read], [], [], 0.2)
                continue
            try:
                data = os.read(0, 4096)
                if not data:
                    return
                _write_all(self._pty, data)
            except OSError:  # the terminal is gone: SIGHUP ends the rest
                return

    # ------------------------------------------------------------ output

    def _copy_stream(self, source: int, target: int) -> None:
        """Copy one stream until its end, in a thread; after the program's end at most AFTERWARDS bytes."""
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
                if not self._pass_on(target, data):
                    return
        finally:
            # The program sees the same as without us: SIGPIPE or EIO.
            if source != self._pty or not self._keeper:
                os.close(source)

    def _pass_on(self, target: int, data: bytes) -> bool:
        """Write data to the target and to the tap. Return False if the target cannot be written."""
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
        """Write one of our own lines to standard error, between two lines of the program."""
        line = text.encode(errors="replace")
        is_terminal = os.isatty(2)
        # If both streams are terminals, they are the same one.
        stream = 1 if is_terminal and self._screen == 1 else 2
        lock = self._write_locks[stream]
        if not lock.acquire(timeout=0.5):  # the output is not read: the full answer at the end is enough
            return
        try:
            if self._last_byte[stream] == b"\n" or is_terminal:
                start = b"" if self._last_byte[stream] == b"\n" else b"\r\n"
                with contextlib.suppress(OSError):
                    _write_all(2, start + line + (b"\r\n" if self._modes else b"\n"))
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
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


def _is_orphan(parent: int) -> bool:
    """Return whether the parent is dead, within half a second: orphans are reparented a moment after the hangup."""
    for _ in range(50):
        if os.getppid() != parent:
            return True
        time.sleep(0.01)
    return False
