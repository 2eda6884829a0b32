# What TensorFlow really does with its GPUs, in stages: import, visible, compute, cudnn, nccl (tfdoctor verify).
# Runs on Python 2.7 and 3.5 to 3.14 and on TensorFlow 1.4 to 2.x. The only argument is a JSON object:
#   stages    which of STAGES to run; `import` and `visible` are always run, the others need them
#   device    "GPU", or "CPU": the same computations on the CPU (a test of this test)
#   limits    {stage: seconds}: SIGALRM ends the process at a stage's deadline, also where C code hangs
#   expected  {"0": GFLOP/s} or {"0": {"float32": GFLOP/s}}: what such a card should give, where it is known
#   size      rows of the matrices that are compared
#   timed     seconds that each timed thing is repeated for
# A line for each thing as soon as it is known, so that a crash or a hang costs only what comes after it. Nothing is
# judged here but whether a result is right.
# A Session computes on every TensorFlow: 2.x still has it, and there is one way to be right or wrong. What goes in is
# fed, never constant: constants are folded, and folding is done on the CPU.
from __future__ import print_function

import sys

if sys.path:
    sys.path.pop(0)

import json  # noqa: E402
import math  # noqa: E402
import os  # noqa: E402
import re  # noqa: E402
import signal  # noqa: E402
import subprocess  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402

MARKER = "tfdoctor-payload:"
STAGES = ("import", "visible", "compute", "cudnn", "nccl")
SIZE = {"GPU": 1024, "CPU": 256}
BIG = 4096  # rows of the matrices that are timed: 64 MiB each in float32
CHAIN = 4  # products a run: what starting one costs is small beside it
TIMED = 0.3  # seconds
LONGEST = 2000  # characters of an error
PULSE = 10.0  # seconds between two signs of life
SLOW_COPY = 1.2  # GB/s; one lane of PCIe 3.0 carries 0.98, sixteen from pageable memory 3 and more
UNIT = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
TF32 = 2.0**-10
# Of TensorFlow 2's errors: the lines that only say where, and those that say nothing.
FRAME = re.compile(
    r"\t| {4}|Graph execution error|\d+ root error|Detected at|Node: |  File |Stack trace|Original stack|\s*\[\["
)
NO_KERNEL = re.compile(r"[Nn]o (OpKernel|supported kernel|registered)|not in list of allowed values")
# bfloat16 on GPUs is added up in float32 by the hardware; float16 in either, by card and release.
ADDED_UP = {"GPU": dict(UNIT, bfloat16=2.0**-24), "CPU": UNIT}
# The convolution: images, height and width, channels in and out; the filter is 3x3.
N, H, W, CIN, COUT = 8, 32, 32, 16, 32
SUMMED, SUMS = 1 << 22, 16  # floats a GPU in the all-reduce (16 MiB), and how many in a row are timed


class Wrong(Exception):
    """A result is not what it has to be."""


class Missing(Exception):
    """This TensorFlow does not have it."""


# ---------------------------------------------------------------- speaking


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
    """The error with its type, cut; OpError.message is without the stack of the graph."""
    said = getattr(error, "message", None) or error
    try:
        said = "%s" % (said,)
        if isinstance(said, bytes):
            said = said.decode("utf-8", "replace")
    except Exception:
        said = repr(error)
    return ("%s: %s" % (type(error).__name__, said))[:LONGEST]


def short(error):
    """The line of it that says what is wrong: TensorFlow 2 begins with "Graph execution error:" and where it was."""
    kind, _, said = error.partition(": ")
    rows = [row.strip() for row in said.splitlines() if row.strip() and not FRAME.match(row)]
    row = ([row[4:] for row in rows if row.startswith("(0) ")] or rows or [said.strip() or "no error text"])[0]
    return ("%s: %s" % (kind, row))[:300]


def together(failed, count, kind):
    """A Wrong of [(card, what failed, its whole error)]; what several cards have in common is said once."""
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


# ---------------------------------------------------------------- TensorFlow, whichever it is


class Card(object):
    """One device that is tried."""

    def __init__(self, index, kind, name):
        self.index, self.kind, self.name = index, kind, name
        self.details = {}

    @property
    def device(self):
        return "/device:%s:%d" % (self.kind, self.index)

    @property
    def capability(self):
        """(8, 0); None where it is not known."""
        match = re.match(r"(\d+)\.(\d+)$", str(self.details.get("compute_capability", "")))
        return (int(match.group(1)), int(match.group(2))) if match else None


class Run(object):
    """What the stages share."""

    def __init__(self, wish):
        self.kind = wish.get("device") or "GPU"
        self.expected = wish.get("expected") or {}
        self.size = int(wish.get("size") or SIZE.get(self.kind, 256))
        self.timed = float(wish.get("timed", TIMED))
        self.tf = None
        self.opened = False
        self.cards = []

    @property
    def v1(self):
        """The names of TensorFlow 1, on 1.13 and later under compat.v1."""
        return getattr(getattr(self.tf, "compat", None), "v1", None) or self.tf

    def config(self):
        """For a session: memory as it is needed, and an error where a device has no kernel rather than the CPU's."""
        return self.v1.ConfigProto(
            gpu_options=self.v1.GPUOptions(allow_growth=True), allow_soft_placement=False
        )

    def session(self):
        return self.v1.Session(config=self.config())

    def open(self):
        """Make the devices, all of them: TensorFlow cannot do less. Raises Wrong: no card can be used then.

        It is tried once: TensorFlow 2.21 hangs the second time.
        """
        if self.opened:
            return
        try:
            with self.v1.Graph().as_default():
                with self.session():
                    self.opened = True
        except Exception as error:
            raw = text(error)
            failed = Wrong("TensorFlow cannot make its devices: %s" % short(raw))
            failed.raw = raw
            raise failed


def public_config(tf, name):
    """tf.config's function of this name, else tf.config.experimental's; None before 1.14."""
    config = getattr(tf, "config", None)
    for owner in (config, getattr(config, "experimental", None)):
        if hasattr(owner, name):
            return getattr(owner, name)
    return None


def listed_by_creating(run):
    """[(index, description)] of the devices by device_lib, the only way before 1.14; it makes a context."""
    from tensorflow.python.client import device_lib

    try:
        found = device_lib.list_local_devices(session_config=run.config())
    except TypeError:
        found = device_lib.list_local_devices()
    return [
        (int(one.name.rsplit(":", 1)[1]), one.name, str(one.physical_device_desc))
        for one in found
        if one.device_type == run.kind
    ]


def described(card, description):
    """Fill in what device_lib says: "device: 0, name: Tesla T4, pci bus id: 0000:00:04.0, compute capability: 7.5"."""
    for key, label in (("device_name", "name"), ("compute_capability", "compute capability")):
        match = re.search(r"(?:^|, )%s: ([^,]{1,100})" % label, description)
        if match:
            card.details.setdefault(key, match.group(1))


# ---------------------------------------------------------------- the stages: each gives the facts of its last line


class no_keras_settings(object):
    """Importing TensorFlow imports Keras, which writes its settings where there are none: they are taken away again."""

    def __enter__(self):
        folders = [os.path.join(folder, ".keras") for folder in (os.path.expanduser("~"), "/tmp")]
        if os.environ.get("KERAS_HOME"):
            folders.append(os.environ["KERAS_HOME"])
        self.new = [folder for folder in folders if not os.path.exists(os.path.join(folder, "keras.json"))]
        self.empty = [folder for folder in folders if not os.path.exists(folder)]

    def __exit__(self, *_):
        try:
            for folder in self.new:
                if os.path.exists(os.path.join(folder, "keras.json")):
                    os.remove(os.path.join(folder, "keras.json"))
                    if folder in self.empty:
                        os.rmdir(folder)
        except OSError:  # it is somebody else's by now
            pass


def do_import(run):
    with no_keras_settings():
        import tensorflow as tf

    run.tf = tf
    version = str(getattr(tf, "__version__", ""))
    if not hasattr(run.v1, "Session"):
        raise Wrong("what was imported is no TensorFlow: %s" % getattr(tf, "__path__", "?"))
    say(stage="import", tensorflow=version)
    return "TensorFlow %s on Python %s" % (version, sys.version.split()[0]), {"tensorflow": version}


def do_visible(run):
    lists = public_config(run.tf, "list_physical_devices")
    notes = []
    if lists is not None:
        devices = list(lists(run.kind))
        run.cards = [Card(index, run.kind, device.name) for index, device in enumerate(devices)]
        growth = public_config(run.tf, "set_memory_growth")
        details = public_config(run.tf, "get_device_details")
        for card, device in zip(run.cards, devices):
            if run.kind == "GPU":
                try:
                    growth(device, True)
                except Exception as error:
                    notes.append("memory growth: " + short(text(error)))
                try:
                    found = details(device) if details is not None else {}
                except Exception:
                    found = {}
                card.details = dict((key, version_text(value)) for key, value in found.items())
    else:
        for index, name, description in listed_by_creating(run):
            run.cards.append(Card(index, run.kind, name))
            described(run.cards[-1], description)
    facts = {
        "devices": [card.name for card in run.cards],
        "details": [card.details for card in run.cards],
    }
    if not run.cards:
        say(stage="visible", **facts)
        raise Wrong("TensorFlow lists no %s" % run.kind)
    names = sorted(set(str(card.details.get("device_name", "")) for card in run.cards) - set([""]))
    detail = "TensorFlow lists %s" % plural(len(run.cards), run.kind)
    return ": ".join([detail] + ([", ".join(names)] if names else [])) + "".join("; " + n for n in notes), facts


def version_text(value):
    return ".".join(str(part) for part in value) if isinstance(value, tuple) else str(value)


def do_compute(run):
    try:
        run.open()
    except Wrong as error:
        for card in run.cards:
            say(stage="compute", gpu=card.index, ok=False, error=error.raw)
        raise
    if run.kind == "GPU" and all(card.capability is None for card in run.cards):
        try:
            descriptions = dict((index, said) for index, _, said in listed_by_creating(run))
        except Exception:  # then half precision is not tried
            descriptions = {}
        for card in run.cards:
            described(card, descriptions.get(card.index, ""))
    good, bad = [], []
    for card in run.cards:
        said, error = compute_on(run, card)
        if error:
            bad.append((card, said, error))
        else:
            good.append("%s:%d %s" % (card.kind, card.index, said))
    if bad:
        raise together(bad, len(run.cards), run.kind)
    return "; ".join(good), {}


def compute_on(run, card):
    """(a summary, the first error or "") of all dtypes on one card."""
    done = []
    for dtype in ("float32", "float16", "bfloat16"):
        if not has_dtype(run, card, dtype):
            continue
        say(stage="compute", computing=card.index, dtype=dtype)
        began = time.time()
        try:
            modes = compare(run, card, dtype)
        except Missing:
            continue
        except Exception as error:
            raw = text(error)
            say(stage="compute", gpu=card.index, dtype=dtype, ok=False, error=raw, seconds=since(began))
            return "%s: %s" % (dtype, short(raw)), raw
        for mode, deviation, limit in modes:
            line = dict(stage="compute", gpu=card.index, dtype=mode, deviation=finite(deviation), limit=finite(limit))
            if not deviation <= limit:
                raw = "the product is off by %.3g, and rounding explains at most %.3g" % (deviation, limit)
                say(ok=False, error=raw, seconds=since(began), **line)
                return "%s: %s" % (mode, raw), raw
            speed, note = {}, ""
            if run.kind == "GPU":
                try:
                    speed, note = measure(run, card, dtype, mode, not done)
                except Exception as error:  # most often the memory that others left over
                    speed, note = {}, "not timed: " + short(text(error))
            line.update(speed)
            said = mode.replace("tf32", "float32 as TF32")
            if speed:
                said += " at %.0f GFLOP/s" % speed["gflops"]
            done.append(said + (" (%s)" % note if note else ""))
            say(ok=True, seconds=since(began), note=note, **line)
    return "computes right: " + ", ".join(done), ""


def has_dtype(run, card, dtype):
    """Half precision is for cards that have it; bfloat16 also for TensorFlows that have it."""
    if dtype == "float32":
        return True
    if dtype == "bfloat16" and not hasattr(run.tf, "bfloat16"):
        return False
    if run.kind != "GPU":
        return True
    return card.capability is not None and card.capability >= ((5, 3) if dtype == "float16" else (8, 0))


def compare(run, card, dtype):
    """[(mode, largest deviation, its limit)] of a product on the card against numpy's in float64.

    Factors are independent, of mean 0 and variance 1/3, so a running sum of k products has the rms sqrt(k)/3. Each of
    n additions is off by at most u times that sum: together (they are independent) u * n / (3 * sqrt(2)). The largest
    of a million results, added up one by one, was seen at 5 times that; 12 times is allowed. TF32 cuts both factors
    to 10 bits: each product is off by up to 2**-10 of either, together 2**-10 * sqrt(2 * n) / 3; the largest was seen
    at 2.4 times that, 6 times is allowed. float16 and bfloat16 get factors that they hold exactly (64ths), and their
    result is rounded to u, or a few times where a sum is put together from parts.
    """
    import numpy

    n = run.size
    random = numpy.random.RandomState(7)
    if dtype == "float32":
        left, right = (random.uniform(-1.0, 1.0, (n, n)).astype("float32") for _ in range(2))
    else:
        left, right = ((random.randint(-64, 65, (n, n)) / 64.0).astype("float32") for _ in range(2))
    exact = left.astype("float64").dot(right.astype("float64"))
    limit = sum_limit(n, ADDED_UP[run.kind][dtype])
    if dtype != "float32":
        limit += 4 * UNIT[dtype] * float(numpy.abs(exact).max())
    worst = float(numpy.abs(product(run, card, dtype, left, right) - exact).max())
    if dtype != "float32" or not limit < worst <= tf32_limit(n):
        return [(dtype, worst, limit)]
    modes = [("tf32", worst, tf32_limit(n))]
    with tf32_switch(run, True) as could:
        if could:
            worst = float(numpy.abs(product(run, card, dtype, left, right) - exact).max())
            modes.append((dtype, worst, limit))
    return modes


def sum_limit(n, unit):
    return 12 * unit * n / (3 * math.sqrt(2.0))


def tf32_limit(n):
    return 6 * TF32 * math.sqrt(2.0 * n) / 3


class tf32_switch(object):
    """TF32 switched off for a while where that is wanted and this TensorFlow can."""

    def __init__(self, run, off):
        experimental = getattr(getattr(run.tf, "config", None), "experimental", None)
        self.switch = getattr(experimental, "enable_tensor_float_32_execution", None) if off else None
        if self.switch is not None:
            self.before = experimental.tensor_float_32_execution_enabled()

    def __enter__(self):
        if self.switch is not None:
            self.switch(False)
        return self.switch is not None

    def __exit__(self, *_):
        if self.switch is not None:
            self.switch(self.before)


def product(run, card, dtype, left, right):
    try:
        return multiply(run, card, dtype, left, right)
    except Exception as error:
        # Half precision is younger than TensorFlow; on a GPU only bfloat16's kernels are missing anywhere.
        optional = dtype == "bfloat16" or (run.kind == "CPU" and dtype == "float16")
        if optional and NO_KERNEL.search(text(error)):
            raise Missing(dtype)
        raise


def multiply(run, card, dtype, left, right):
    v1 = run.v1
    with v1.Graph().as_default():
        with v1.device(card.device):
            fed = [v1.placeholder(v1.float32, left.shape) for _ in range(2)]
            factors = [v1.cast(one, getattr(run.tf, dtype)) for one in fed] if dtype != "float32" else fed
            answer = v1.cast(v1.matmul(*factors), v1.float32)
        with run.session() as session:
            return session.run(answer, {fed[0]: left, fed[1]: right}).astype("float64")


def measure(run, card, dtype, mode, first):
    """({"gflops", "expected_gflops", "slow", "copy_gbps"}, a note): large products, and at first the way in."""
    import numpy

    v1 = run.v1
    random = numpy.random.RandomState(8)
    start = random.uniform(-1.0, 1.0, (BIG, BIG)).astype("float32")
    with v1.Graph().as_default():
        with v1.device(card.device):
            fed = v1.placeholder(v1.float32, (BIG, BIG))
            copied = v1.reduce_sum(fed)
            kept = v1.Variable(fed, trainable=False)
            factor = v1.cast(kept * math.sqrt(3.0 / BIG), getattr(run.tf, dtype))  # keeps the variance
            result = v1.cast(kept, getattr(run.tf, dtype))
            for _ in range(CHAIN):
                result = v1.matmul(result, factor)
            ended = v1.reduce_sum(v1.cast(result, v1.float32))
        with run.session() as session:
            session.run(kept.initializer, {fed: start})
            copies = []
            for _ in range(4 if first else 0):
                began = time.time()
                session.run(copied, {fed: start})
                copies.append(time.time() - began)
            with tf32_switch(run, mode == "float32"):
                seconds = timed(run.timed, lambda: session.run(ended))
    facts = {"gflops": finite(2.0 * BIG**3 * CHAIN / seconds / 1e9), "expected_gflops": None}
    notes = []
    expected = run.expected.get(str(card.index))
    expected = expected.get(mode) if isinstance(expected, dict) else expected if mode == "float32" else None
    if expected:
        facts["expected_gflops"] = expected
        facts["slow"] = facts["gflops"] < expected / 10.0
        if facts["slow"]:
            notes.append("slow: such a card should give %.0f GFLOP/s; is it throttled, or shared?" % expected)
    if copies:
        facts["copy_gbps"] = finite(4e-9 * BIG**2 / max(min(copies), 1e-9))
        if facts["copy_gbps"] < SLOW_COPY:
            notes.append(
                "slow: data comes to it at %.2f GB/s, as over a single PCIe lane" % facts["copy_gbps"]
            )
    return facts, "; ".join(notes)


def timed(wanted, call):
    """Seconds of one call: the mean of as many as take so long, after one that is not counted."""
    call()
    began, count = time.time(), 0
    while not count or time.time() - began < wanted:
        call()
        count += 1
    return max((time.time() - began) / count, 1e-9)


def since(began):
    return round(time.time() - began, 3)


# ---------------------------------------------------------------- cudnn


def do_cudnn(run):
    run.open()
    bad = []
    for card in run.cards:
        say(stage="cudnn", computing=card.index)
        began = time.time()
        try:
            worst = convolve_on(run, card)
        except Exception as error:
            raw = text(error)
            say(stage="cudnn", gpu=card.index, ok=False, error=raw, seconds=since(began))
            bad.append((card, short(raw), raw))
        else:
            say(stage="cudnn", gpu=card.index, ok=True, seconds=since(began), of_limit=finite(worst))
    if bad:
        raise together(bad, len(run.cards), run.kind)
    return "a convolution, forward and backward, is right on %s" % plural(len(run.cards), run.kind), {}


def convolve_on(run, card):
    """The largest deviation as a part of its limit; Wrong where it is more."""
    import numpy

    random = numpy.random.RandomState(9)
    image, kernel, back = (
        random.uniform(-1.0, 1.0, shape).astype("float32")
        for shape in ((N, H, W, CIN), (3, 3, CIN, COUT), (N, H, W, COUT))
    )
    exact = convolution(numpy, *(one.astype("float64") for one in (image, kernel, back)))
    v1 = run.v1
    with v1.Graph().as_default():
        with v1.device(card.device):
            fed = [v1.placeholder(v1.float32, one.shape) for one in (image, kernel, back)]
            forward = v1.nn.conv2d(fed[0], fed[1], strides=[1, 1, 1, 1], padding="SAME")
            answers = [forward] + list(v1.gradients([forward], fed[:2], grad_ys=[fed[2]]))
        with run.session() as session:
            got = session.run(answers, dict(zip(fed, (image, kernel, back))))
    worst = 0.0
    # How many products go into one number of each; cuDNN may use TF32, and Winograd's sums are no better.
    for name, one, right, n in zip(
        ("the result", "the gradient of the input", "the gradient of the filter"),
        got,
        exact,
        (9 * CIN, 9 * COUT, N * H * W),
    ):
        off = float(numpy.abs(one.astype("float64") - right).max())
        if not off <= tf32_limit(n):
            raise Wrong("%s is off by %.3g, and rounding explains at most %.3g" % (name, off, tf32_limit(n)))
        worst = max(worst, off / tf32_limit(n))
    return worst


def convolution(numpy, image, kernel, back):
    """(result, gradient of the image, gradient of the kernel) of a 3x3 convolution, NHWC, SAME, in plain numpy."""
    padded = numpy.zeros((N, H + 2, W + 2, CIN))
    padded[:, 1:-1, 1:-1, :] = image
    result = numpy.zeros((N, H, W, COUT))
    of_image = numpy.zeros((N, H + 2, W + 2, CIN))
    of_kernel = numpy.zeros((3, 3, CIN, COUT))
    for i in range(3):
        for j in range(3):
            part = padded[:, i : i + H, j : j + W, :]
            result += part.dot(kernel[i, j])
            of_image[:, i : i + H, j : j + W, :] += back.dot(kernel[i, j].T)
            of_kernel[i, j] = part.reshape(-1, CIN).T.dot(back.reshape(-1, COUT))
    return result, of_image[:, 1:-1, 1:-1, :], of_kernel


# ---------------------------------------------------------------- nccl


def do_nccl(run):
    count = len(run.cards)
    if run.kind != "GPU" or count < 2:
        raise Missing("an all-reduce takes at least two GPUs; there %s %d" % ("is" if count == 1 else "are", count))
    run.open()
    all_sum = find_all_sum(run)
    topology = ask_topology()
    if topology:
        say(stage="nccl", topology=topology)
    import numpy

    v1 = run.v1
    random = numpy.random.RandomState(10)
    # Whole numbers: their sums are exact in float32, in whatever order.
    parts = [random.randint(-1000, 1001, SUMMED).astype("float32") for _ in run.cards]
    exact = sum(parts)
    with v1.Graph().as_default():
        fed, kept = [], []
        for card in run.cards:
            with v1.device(card.device):
                fed.append(v1.placeholder(v1.float32, (SUMMED,)))
                kept.append(v1.Variable(fed[-1], trainable=False))
        sums = summed(run, all_sum, kept)
        last = sums
        for _ in range(SUMS - 1):
            last = summed(run, all_sum, last)
        ended = v1.group(*[one.op for one in last])
        with run.session() as session:
            for one, placeholder, part in zip(kept, fed, parts):
                session.run(one.initializer, {placeholder: part})
            for index, got in enumerate(session.run(sums)):
                off = float(numpy.abs(got - exact).max())
                if not off <= 0:
                    raise Wrong("the sum that GPU:%d got is off by %.3g" % (index, off))
            seconds = timed(run.timed, lambda: session.run(ended)) / SUMS
    algorithm = SUMMED * 4 / seconds / 1e9
    bus = algorithm * 2 * (count - 1) / count
    return "an all-reduce over %d GPUs is right: %.1f GB/s (%.1f GB/s on the bus)" % (count, algorithm, bus), {
        "gbps": finite(algorithm),
        "bus_gbps": finite(bus),
    }


def summed(run, all_sum, tensors):
    """The sum of the tensors, on each card. All of them have to be run together: NCCL waits for the last."""
    copies = []
    for card, one in zip(run.cards, tensors):
        with run.v1.device(card.device):
            copies.append(run.v1.identity(one))
    return all_sum(copies)


def find_all_sum(run):
    """NCCL's all-reduce, wherever this TensorFlow keeps it."""
    try:
        from tensorflow.python.ops import nccl_ops
    except ImportError:
        try:
            from tensorflow.contrib.nccl import all_sum
        except Exception as error:
            raise Missing("this TensorFlow has no NCCL: %s" % short(text(error)))
        return all_sum
    return nccl_ops.all_sum


def ask_topology():
    """nvidia-smi's matrix of how the GPUs reach each other; "" where it is not to be had."""
    try:
        process = subprocess.Popen(
            ["nvidia-smi", "topo", "-m"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=open(os.devnull)
        )
    except OSError:
        return ""
    watch = threading.Timer(20, process.kill)
    watch.daemon = True
    watch.start()
    out = process.communicate()[0]
    watch.cancel()
    return re.sub(r"\x1b\[[0-9;]*m", "", out.decode("utf-8", "replace"))[:4000] if process.returncode == 0 else ""


# ---------------------------------------------------------------- all of it

WORK = {"import": do_import, "visible": do_visible, "compute": do_compute, "cudnn": do_cudnn, "nccl": do_nccl}


def set_alarm(seconds):
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        signal.alarm(int(math.ceil(seconds)))


def work(run, stage, limit):
    """Whether the next may be tried."""
    say(stage=stage, status="begin")
    set_alarm(limit)
    began = time.time()
    pulse = Pulse(stage, limit)
    pulse.start()
    status, raw, facts = "passed", "", {}
    try:
        detail, facts = WORK[stage](run)
    except Missing as error:
        # Only NCCL can be missing and nothing be wrong.
        status, detail = ("skipped" if stage == "nccl" else "failed"), "%s" % error
        raw = detail if status == "failed" else ""
    except Wrong as error:
        status, detail = "failed", "%s" % error
        raw = getattr(error, "raw", "") or detail
    except BaseException as error:
        status, raw = "failed", text(error)
        detail = short(raw)
    finally:
        pulse.over.set()
        set_alarm(0)
    say(stage=stage, status=status, detail=detail[:LONGEST], seconds=since(began), error=raw, **facts)
    return status != "failed"


def main():
    MOUTH.keep_for_us()
    wish = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    # Whatever the user's environment says: never the whole memory of a card.
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    asked = set(wish.get("stages") or STAGES) | set(STAGES[:2])
    limits = wish.get("limits") or {}
    run = Run(wish)
    for stage in STAGES:
        if stage in asked and not work(run, stage, float(limits.get(stage) or 0)):
            break
    say(end=True)
    # Past what TensorFlow and the driver do on their way out: it can crash or hang, and is not what was asked.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
