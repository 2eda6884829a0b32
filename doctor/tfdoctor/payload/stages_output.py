# Part of stages.py: the lines that it prints, and what is wrong in few words.
import json
import math
import os
import re
import threading
import time

MARKER = "tfdoctor-payload:"
LONGEST = 2000  # characters of an error
PULSE = 10.0  # seconds between two signs of life
# Of TensorFlow 2's errors: the lines that only say where, and those that say nothing.
FRAME = re.compile(
    r"\t| {4}|Graph execution error|\d+ root error|Detected at|Node: |  File |Stack trace|Original stack|\s*\[\["
)


class Wrong(Exception):
    """A result is not what it has to be."""


class Missing(Exception):
    """This TensorFlow does not have it."""


class Mouth(object):
    """Where the lines go. Standard output is ours alone: what others print there goes to standard error."""

    def __init__(self):
        self.lock = threading.Lock()
        self.descriptor = 1

    def keep_for_us(self):
        try:
            mine = os.dup(1)
            os.dup2(2, 1)
            self.descriptor = mine
        except OSError:
            pass

    def say(self, **facts):
        # The newline before: something may have been printed without one.
        line = ("\n" + MARKER + json.dumps(facts) + "\n").encode("ascii")
        with self.lock:
            while line:
                line = line[os.write(self.descriptor, line) :]


MOUTH = Mouth()
say = MOUTH.say


class Pulse(threading.Thread):
    """Says how busy the process was: compiling PTX is work, a hang often is none."""

    def __init__(self, stage, limit):
        threading.Thread.__init__(self)
        self.daemon = True
        self.stage, self.over = stage, threading.Event()
        self.every = max(0.2, min(PULSE, limit / 6.0)) if limit else PULSE

    def run(self):
        before, began = busy(), time.time()
        while not self.over.wait(self.every):
            now, at = busy(), time.time()
            share = (now - before) / max(at - began, 0.01)
            say(stage=self.stage, status="running", busy=round(share, 3))
            before, began = now, at


def busy():
    return sum(os.times()[:2])


def text(error):
    """Return the error with its type, cut; OpError.message is without the stack of the graph."""
    said = getattr(error, "message", None) or error
    try:
        said = "%s" % (said,)
        if isinstance(said, bytes):
            said = said.decode("utf-8", "replace")
    except Exception:
        said = repr(error)
    if len(said) > LONGEST:  # where in the program it was stands before what is wrong, and is longer
        said = "\n".join(row for row in said.split("\n") if row.strip() and not FRAME.match(row)) or said
    return ("%s: %s" % (type(error).__name__, said))[:LONGEST]


def short(error):
    """Return the line of it that says what is wrong: TensorFlow 2 begins with "Graph execution error:" and where it
    was.
    """
    kind, _, said = error.partition(": ")
    rows = [row.strip() for row in said.splitlines() if row.strip() and not FRAME.match(row)]
    row = ([row[4:] for row in rows if row.startswith("(0) ")] or rows or [said.strip() or "no error text"])[0]
    return ("%s: %s" % (kind, row))[:300]


def merge_failures(failed, count, kind):
    """Return a Wrong of [(card, what failed, its whole error)].

    What several cards have in common is said once.
    """
    said = []
    for _, what, _ in failed:
        if what not in said:
            said.append(what)
    parts = [
        "%s %s" % (", ".join("%s:%d" % (kind, card.index) for card, other, _ in failed if other == what), what)
        for what in said
    ]
    error = Wrong("%d of %s failed: %s" % (len(failed), plural(count, kind), "; ".join(parts)))
    error.raw = failed[0][2]
    return error


def finite(number):
    """As JSON can carry it."""
    return None if math.isnan(number) or math.isinf(number) else float("%.3g" % number)


def plural(count, noun):
    return "%d %s%s" % (count, noun, "" if count == 1 else "s")


def measure_since(began):
    return round(time.time() - began, 3)
