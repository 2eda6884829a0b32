# Part of stages.py: the lines that it prints, and short error messages.
import json
import math
import os
import re
import threading
import time

MARKER = "tfdoctor-payload:"
MAX_ERROR_CHARS = 2000
PROGRESS_INTERVAL_S = 10.0  # time between two "running" lines
# Lines of TensorFlow 2 errors that are only headings or source locations.
NOISE_LINE = re.compile(
    r"\t| {4}|Graph execution error|\d+ root error|Detected at|Node: |  File |Stack trace|Original stack|\s*\[\["
)


class StageError(Exception):
    """A result is wrong, or a stage cannot run."""


class MissingFeature(Exception):
    """TensorFlow or the machine lacks something that a stage needs."""


class LineWriter(object):
    """A writer of JSON lines to standard output. The output of other code is redirected to standard error."""

    def __init__(self):
        self.lock = threading.Lock()
        self.descriptor = 1

    def reserve_stdout(self):
        """Reserve standard output for the JSON lines, and redirect the output of other code to standard error."""
        try:
            saved_stdout = os.dup(1)
            os.dup2(2, 1)
            self.descriptor = saved_stdout
        except OSError:
            pass

    def say(self, **facts):
        """Print a JSON line."""
        # The leading newline is needed because other output may not end in one.
        line = ("\n" + MARKER + json.dumps(facts) + "\n").encode("ascii")
        with self.lock:
            while line:
                line = line[os.write(self.descriptor, line) :]


WRITER = LineWriter()
say = WRITER.say


class ProgressReporter(threading.Thread):
    """A thread that reports how busy the process is. Compiling PTX uses the CPU, but most hangs do not."""

    def __init__(self, stage, limit):
        threading.Thread.__init__(self)
        self.daemon = True
        self.stage, self.stop_event = stage, threading.Event()
        self.interval_s = max(0.2, min(PROGRESS_INTERVAL_S, limit / 6.0)) if limit else PROGRESS_INTERVAL_S

    def run(self):
        cpu_before, interval_start = get_cpu_seconds(), time.time()
        while not self.stop_event.wait(self.interval_s):
            cpu_now, now = get_cpu_seconds(), time.time()
            busy_share = (cpu_now - cpu_before) / max(now - interval_start, 0.01)
            say(stage=self.stage, status="running", busy=round(busy_share, 3))
            cpu_before, interval_start = cpu_now, now


def get_cpu_seconds():
    """Return the CPU time of this process in seconds."""
    return sum(os.times()[:2])


def format_error(error):
    """Return an error's type and message, shortened to MAX_ERROR_CHARS."""
    # Unlike str(error), OpError.message does not contain the graph's stack.
    message = getattr(error, "message", None) or error
    try:
        message = "%s" % (message,)
        if isinstance(message, bytes):
            message = message.decode("utf-8", "replace")
    except Exception:
        message = repr(error)
    if len(message) > MAX_ERROR_CHARS:  # a long list of source locations precedes the message
        message = "\n".join(line for line in message.split("\n") if line.strip() and not NOISE_LINE.match(line)) or message
    return ("%s: %s" % (type(error).__name__, message))[:MAX_ERROR_CHARS]


def summarize_error(error):
    """Return the type of an error and the line that names the problem.

    Errors of TensorFlow 2 begin with "Graph execution error:" and the location.
    """
    kind, _, message = error.partition(": ")
    lines = [line.strip() for line in message.splitlines() if line.strip() and not NOISE_LINE.match(line)]
    # "(0)" marks the first of several root errors.
    line = ([line[4:] for line in lines if line.startswith("(0) ")] or lines or [message.strip() or "no error text"])[0]
    return ("%s: %s" % (kind, line))[:300]


def merge_failures(failures, count, kind):
    """Return one WrongResult for several failures, each (device, message, full error)."""
    messages = []
    for _, message, _ in failures:
        if message not in messages:
            messages.append(message)
    parts = [
        "%s %s"
        % (
            ", ".join("%s:%d" % (kind, device.index) for device, text, _ in failures if text == message),
            message,
        )
        for message in messages
    ]
    error = StageError("%d of %s failed: %s" % (len(failures), format_count(count, kind), "; ".join(parts)))
    _, _, error.raw = failures[0]
    return error


def round_finite(number):
    """Return a number rounded for JSON; None for NaN and infinity."""
    return None if math.isnan(number) or math.isinf(number) else float("%.3g" % number)


def format_count(count, noun):
    return "%d %s%s" % (count, noun, "" if count == 1 else "s")


def measure_seconds_since(start_time):
    return round(time.time() - start_time, 3)
