"""Run a program as if nobody were between it and its terminal, pipes and signals, and see what it prints. POSIX.

Two ways, after what the standard streams are:

* Input and output are a terminal: the program gets a terminal of its own (a pty), as from `script` or `sudo`. A
  keeper process leads that session, so that Ctrl-Z can stop the program (the kernel ignores it in a group whose
  parents are all in another session), and gives the real terminal back its modes should we be killed.
* Else the program stays in our process group and keeps standard input as it is: Ctrl-C and Ctrl-Z of a terminal
  reach it by themselves. Output that is no terminal goes through pipes; where one of the two is a terminal, that
  one is a pty, for its writing side alone.

A thread copies each stream; a slow reader of one holds up nobody but its writer. Exactly the bytes that were
written come out, and two streams that lead into the same file stay in one order.
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
"""Bytes that are copied at once, and that a pipe to the program holds where the system allows it."""
LINGER = 0.2
"""Seconds of silence after which a stream that somebody else still holds is left, once the program has ended."""
AFTERWARDS = 2 << 20
"""Bytes that are copied at most from such a stream after the end: more than any pipe holds."""

FORWARDED = frozenset(
    {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
)
_HEARD = FORWARDED | {signal.SIGWINCH, signal.SIGCHLD, signal.SIGCONT}
_SET_PIPE_SIZE = getattr(fcntl, "F_SETPIPE_SZ", 1031)
_EVENT = struct.Struct("ii")
_STARTED, _STATUS, _FAILED = range(3)


@contextlib.contextmanager
def hold_signals() -> Iterator[set[signal.Signals]]:
    """Hold signals until they are asked for; yield those that were held before, and hold only them at the end.

    Those that are ignored stay ignored (`nohup`, a shell's background): the program inherits that.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would lose us the exit status
    heard = {number for number in _HEARD if signal.getsignal(number) is not signal.SIG_IGN}
    # SIGTTOU: setting a terminal's modes from the background must not stop us.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heard | {signal.SIGTTOU})
    try:
        yield {signal.Signals(number) for number in before}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Passthrough:
    """One program, from its start to its end. Use it within `hold_signals`, before any thread was started."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        mask: set[signal.Signals],
        tap: Callable[[int, bytes], None],
    ) -> None:
        """Prepare the start. `tap` gets (1 or 2, bytes) of what was passed on, from several threads; `mask`: the
        program's.
        """
        self._argv = list(argv)
        self._env = dict(env)
        self._mask = mask
        self._tap = tap
        self._pid = 0
        self._program: subprocess.Popen[bytes] | None = None
        self._keeper = 0
        self._keeper_says = -1
        self._pty = -1
        """The pty's side that is ours; -1 where there is none."""
        self._slave = -1
        self._screen = -1
        """The descriptor of the real terminal whose size the pty has."""
        self._modes: list[object] = []
        """The real terminal's, while it is in raw mode."""
        self._saved: list[object] = []
        self._pumps: list[tuple[int, int]] = []
        self._last = {1: b"\n", 2: b"\n"}
        self._writing = {1: threading.Lock(), 2: threading.Lock()}
        self._notice = b""
        self._over = False
        self._woken, self._wake = os.pipe()
        self._ended, self._end = os.pipe()
        self.failures: list[str] = []
        """Why output could not be passed on to its end, other than that its reader has left."""

    # ------------------------------------------------------------ start

    def start(self) -> None:
        """Start the program. Raises OSError where it cannot be."""
        output, errors = os.isatty(1), os.isatty(2)
        own_terminal = output and os.isatty(0)
        streams = {1: -1, 2: -1}
        if output or errors:
            self._screen = 1 if output else 2
            self._pty, self._slave = os.openpty()
            self._resize()
            attributes = termios.tcgetattr(self._screen)
            if not own_terminal:  # what is written comes out as it is; the real terminal does the rest
                attributes[1] &= ~termios.OPOST
            termios.tcsetattr(self._slave, termios.TCSANOW, attributes)
            for number in (1, 2):
                if (output, errors)[number - 1]:
                    streams[number] = self._slave
            self._pumps.append((self._pty, self._screen))
        ours: list[int] = []
        for number in (1, 2):
            if streams[number] >= 0:
                continue
            if number == 2 and streams[1] != self._slave and _is_same_file(1, 2):
                streams[2] = streams[1]
                continue
            reading, streams[number] = os.pipe()
            ours.append(streams[number])
            with contextlib.suppress(OSError):
                fcntl.fcntl(reading, _SET_PIPE_SIZE, COPY_BYTES)
            self._pumps.append((reading, number))
        try:
            if own_terminal:
                self._start_keeper(streams[1], streams[2])
            else:
                self._program = self._spawn(None, streams[1], streams[2], self._unhold)
                self._pid = self._program.pid
        finally:
            for descriptor in ours:
                os.close(descriptor)

    def _spawn(
        self, stdin: int | None, stdout: int, stderr: int, prepare: Callable[[], None]
    ) -> subprocess.Popen[bytes]:
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
        """Return the program if it is a text without a line that names its interpreter: `sh` runs it, as a shell
        would.
        """
        path = shutil.which(self._argv[0], path=self._env.get("PATH", os.defpath))
        if path is None:
            return None
        with open(path, "rb") as file:  # noqa: PTH123 - a name that may have no Path's form
            return path if b"\0" not in file.read(256) else None

    def _popen(
        self,
        argv: Sequence[str],
        stdin: int | None,
        stdout: int,
        stderr: int,
        prepare: Callable[[], None],
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=self._env,
            close_fds=False,  # what the user opened for it (3>file) is its own; ours are not inherited
            preexec_fn=prepare,  # noqa: PLW1509 - there are no threads yet
        )

    def _unhold(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _start_keeper(self, stdout: int, stderr: int) -> None:
        """Fork the keeper, which starts the program in the pty's session, and wait until it reports."""
        self._saved = termios.tcgetattr(0)
        self._keeper_says, says = os.pipe()
        us = os.getpid()
        self._keeper = os.fork()
        if self._keeper == 0:
            self._run_keeper(says, us, stdout, stderr)
        os.close(says)
        kind, value = self._hear()
        if kind == _FAILED:
            os.waitpid(self._keeper, 0)
            raise OSError(value, os.strerror(value), self._argv[0])
        self._pid = value
        os.close(self._slave)
        self._slave = -1

    def _hear(self) -> tuple[int, int]:
        data = os.read(self._keeper_says, _EVENT.size)
        if len(data) < _EVENT.size:  # the keeper was killed
            return _STATUS, int(signal.SIGKILL)
        kind, value = _EVENT.unpack(data)
        return int(kind), int(value)

    def _run_keeper(self, says: int, us: int, stdout: int, stderr: int) -> NoReturn:
        """Run the keeper. It never returns into the code of its parent."""
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
                self._unhold()

            try:
                program = self._spawn(self._slave, stdout, stderr, foreground)
            except OSError as error:
                os.write(says, _EVENT.pack(_FAILED, error.errno or errno.EIO))
                os._exit(1)
            for descriptor in {stdout, stderr} - {self._slave}:
                os.close(descriptor)
            os.write(says, _EVENT.pack(_STARTED, program.pid))
            while True:
                number = signal.sigwait({signal.SIGHUP, signal.SIGCHLD})
                if number == signal.SIGHUP and _is_orphan(us):
                    self._restore_terminal()
                    break
                pid, wait_status = os.waitpid(program.pid, os.WNOHANG | os.WUNTRACED)
                if not pid:
                    continue
                if not os.WIFSTOPPED(wait_status):
                    # The end of a session's leader hangs up on its foreground: what the program left running
                    # in its own group is not ours to kill.
                    os.tcsetpgrp(self._slave, os.getpgrp())
                    os.write(says, _EVENT.pack(_STATUS, wait_status))
                    break
                os.write(says, _EVENT.pack(_STATUS, wait_status))
            status = 0
        except BrokenPipeError:  # our parent was killed before it heard of the end
            self._restore_terminal()
            status = 0
        finally:
            os._exit(status)

    def _restore_terminal(self) -> None:
        """Restore the terminal from the keeper if its parent was killed: nobody else does."""
        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, self._saved)  # type: ignore[arg-type]

    # ------------------------------------------------------------ while it runs

    def wait(self, also: Mapping[int, Callable[[], bool]], idle: Callable[[], None]) -> int:
        """Pass everything on until the program has ended. Returns its exit status, -N where signal N ended it.

        `also` are further descriptors to look at, and what to call when one is readable (False: never again);
        `idle` is called several times a second.
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
            status = self._attend(dict(also), idle)
        except BaseException:  # a defect of ours: the program must not be left without its streams
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGTERM)
            raise
        finally:
            self._over = True
            if listener.ident is not None and listener.is_alive():
                signal.pthread_kill(listener.ident, signal.SIGCHLD)
                listener.join()
            # From here on signals end us: whoever does not read our output cannot hold us for ever.
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            try:
                if self._slave >= 0:
                    os.close(self._slave)
                os.write(self._end, b"x")
                for thread in pumps:
                    if thread.ident is not None:
                        thread.join()
            finally:
                self._leave_raw()
        return status

    def _attend(self, also: dict[int, Callable[[], bool]], idle: Callable[[], None]) -> int:
        watched = [self._woken, *also] + ([self._keeper_says] if self._keeper else [])
        while True:
            ready = select.select(watched, [], [], 0.2)[0]
            idle()
            if self._keeper:  # a shell's `fg` of a job that runs already says nothing
                self._enter_raw()
            for descriptor in ready:
                status: int | None = None
                if descriptor == self._woken:
                    status = self._handle_signal(*_EVENT.unpack(os.read(self._woken, _EVENT.size)))
                elif descriptor == self._keeper_says:
                    status = self._handle_status(self._hear()[1])
                elif not also[descriptor]():
                    watched.remove(descriptor)
                if status is not None:
                    return status

    def _handle_status(self, wait_status: int) -> int | None:
        """Handle what the keeper reports: the program has ended, or was stopped and we with it."""
        if not os.WIFSTOPPED(wait_status):
            os.waitpid(self._keeper, 0)
            return os.waitstatus_to_exitcode(wait_status)
        time.sleep(0.02)  # for what it still wrote
        self._leave_raw()
        os.kill(0, signal.SIGTSTP)  # the whole job, as Ctrl-Z does; here we go on once somebody says so
        self._resume()
        return None

    def _resume(self) -> None:
        if self._keeper:
            self._enter_raw()
        self._resize()
        if self._keeper:
            self._send(signal.SIGCONT)

    def _handle_signal(self, number: int, code: int) -> int | None:
        if number == signal.SIGCHLD:
            return self._program.poll() if self._program is not None else None
        if number == signal.SIGWINCH:
            self._resize()
            if not self._keeper and self._pty >= 0:  # its own came before the size was right
                self._send(number)
        elif number == signal.SIGCONT:
            self._resume()
        elif (
            self._keeper or code <= 0
        ):  # not in its group, or sent by somebody to us alone: not by the terminal
            self._send(number)
        return None

    def _send(self, number: int) -> None:
        """Give it a signal: its group where it is a job of its own, and there those in front when it hangs up."""
        with contextlib.suppress(OSError):
            if self._keeper and number == signal.SIGCONT:
                os.killpg(self._pid, number)
            else:
                os.kill(self._pid, number)
            if self._keeper and number == signal.SIGHUP:
                os.killpg(os.tcgetpgrp(self._pty), number)

    def _listen(self) -> None:
        """Turn signals into events, in a thread: (number, code); a code above 0 means: from the kernel."""
        heard = {number for number in _HEARD if signal.getsignal(number) is not signal.SIG_IGN}
        while True:
            if hasattr(signal, "sigwaitinfo"):
                info = signal.sigwaitinfo(heard)
                number, code = info.si_signo, info.si_code
            else:  # macOS: take what a terminal can send as sent by it
                number = int(signal.sigwait(heard))
                code = int(number in (signal.SIGINT, signal.SIGQUIT))
            if self._over:
                return
            os.write(self._wake, _EVENT.pack(number, code))

    # ------------------------------------------------------------ the terminal

    def _foreground(self) -> bool:
        try:
            return os.tcgetpgrp(0) == os.getpgrp()
        except OSError:
            return False

    def _enter_raw(self) -> None:
        if self._modes or not self._foreground():
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
        """Give the pty the real terminal's size; the kernel tells those in front of it."""
        if self._pty >= 0:
            with contextlib.suppress(OSError):
                size = fcntl.ioctl(self._screen, termios.TIOCGWINSZ, b"\0" * 8)
                fcntl.ioctl(self._pty, termios.TIOCSWINSZ, size)

    def _copy_keys(self) -> None:
        """Copy what is typed, in a thread. In the background the keys are not ours."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._ended, select.POLLIN)
        while not self._over:
            ready = dict(poll.poll())
            if self._ended in ready:
                return
            if not self._modes or not self._foreground():
                select.select([self._ended], [], [], 0.2)
                continue
            try:
                data = os.read(0, 4096)
                if not data:
                    return
                _write_all(self._pty, data)
            except OSError:  # the terminal is gone: SIGHUP says the rest
                return

    # ------------------------------------------------------------ output

    def _copy_stream(self, source: int, target: int) -> None:
        """Copy one stream until its end, or a little beyond the program's, in a thread."""
        poll = select.poll()
        poll.register(source, select.POLLIN)
        poll.register(self._ended, select.POLLIN)
        left = -1
        try:
            while left:
                ready = dict(poll.poll(None if left < 0 else LINGER * 1000))
                if self._ended in ready:
                    poll.unregister(self._ended)
                    left = AFTERWARDS
                    continue
                if not ready:
                    return
                try:
                    data = os.read(source, COPY_BYTES)
                except OSError:  # a pty that nobody has open any more
                    return
                if not data:
                    return
                if left > 0:
                    left = max(left - len(data), 0)
                if not self._pass_on(target, data):
                    return
        finally:
            # The program is told as it would be without us: by SIGPIPE, by EIO.
            if source != self._pty or not self._keeper:
                os.close(source)

    def _pass_on(self, target: int, data: bytes) -> bool:
        with self._writing[target]:
            try:
                _write_all(target, data)
                self._last[target] = data[-1:]
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
        """Write one line of ours to standard error, between two lines of the program's."""
        line = text.encode(errors="replace")
        screen = os.isatty(2)
        # Where both are terminals, they are one.
        stream = 1 if screen and self._screen == 1 else 2
        lock = self._writing[stream]
        if not lock.acquire(timeout=0.5):  # nobody reads: the whole answer at the end must do
            return
        try:
            if self._last[stream] == b"\n" or screen:
                start = b"" if self._last[stream] == b"\n" else b"\r\n"
                with contextlib.suppress(OSError):
                    _write_all(2, start + line + (b"\r\n" if self._modes else b"\n"))
                    self._last[stream] = b"\n"
            else:
                self._notice = line + b"\n"
        finally:
            lock.release()

    @property
    def has_open_line(self) -> bool:
        """Return whether the last text on standard error (or its terminal) is an unfinished line."""
        return self._last[1 if os.isatty(2) and self._screen == 1 else 2] != b"\n"


def _is_same_file(first: int, second: int) -> bool:
    one, other = os.fstat(first), os.fstat(second)
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all of it. A descriptor that somebody made non-blocking is waited for."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


def _is_orphan(parent: int) -> bool:
    """Return whether the parent is dead. The kernel hangs up first and reparents orphans a moment later."""
    for _ in range(50):
        if os.getppid() != parent:
            return True
        time.sleep(0.01)
    return False
