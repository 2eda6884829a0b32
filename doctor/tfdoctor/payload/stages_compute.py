# Part of stages.py: computations whose results are compared with numpy's (compute, cudnn), on each card by itself.
import math
import re
import time

from stages_devices import fill_description, list_by_creating
from stages_output import Missing, Wrong, finite, plural, say, short, measure_since, text, merge_failures

BIG = 4096  # rows of the matrices that are timed: 64 MiB each in float32
CHAIN = 4  # products a run: what starting one costs is small beside it
SMALL = 512  # rows of the product by which it is guessed how long the large ones take
LONG, SHORT = 30.0, 3.0  # seconds: where a run of the large ones would take longer than the first, rows for the second
SLOW_COPY = 1.2  # GB/s; one lane of PCIe 3.0 carries 0.98, sixteen from pageable memory 3 and more
UNIT = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
TF32 = 2.0**-10
NO_KERNEL = re.compile(r"[Nn]o (OpKernel|supported kernel|registered)|not in list of allowed values")
# bfloat16 on GPUs is added up in float32 by the hardware; float16 in either, by card and release.
ADDED_UP = {"GPU": dict(UNIT, bfloat16=2.0**-24), "CPU": UNIT}
# The convolution: images, height and width, channels in and out; the filter is 3x3.
CONVOLUTION = (8, 32, 32, 16, 32)
SMALL_CONVOLUTION = (2, 6, 6, 4, 8)


def do_compute(run):
    try:
        run.open()
    except Wrong as error:
        for card in run.cards:
            say(stage="compute", gpu=card.index, ok=False, error=error.raw)
        raise
    if run.kind == "GPU" and all(card.capability is None for card in run.cards):
        try:
            descriptions = dict((index, said) for index, _, said in list_by_creating(run))
        except Exception:  # then half precision is not tried
            descriptions = {}
        for card in run.cards:
            fill_description(card, descriptions.get(card.index, ""))
    good, bad = [], []
    for card in run.cards:
        said, error = compute_on(run, card)
        if error:
            bad.append((card, said, error))
        else:
            good.append("%s:%d %s" % (card.kind, card.index, said))
    if bad:
        raise merge_failures(bad, len(run.cards), run.kind)
    return "; ".join(good), {}


def compute_on(run, card):
    """Return (a summary, the first error or "") of all dtypes on one card."""
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
            say(stage="compute", gpu=card.index, dtype=dtype, ok=False, error=raw, seconds=measure_since(began))
            return "%s: %s" % (dtype, short(raw)), raw
        for mode, deviation, limit in modes:
            line = dict(stage="compute", gpu=card.index, dtype=mode, deviation=finite(deviation), limit=finite(limit))
            if not deviation <= limit:
                raw = "the product is off by %.3g, and rounding explains at most %.3g" % (deviation, limit)
                say(ok=False, error=raw, seconds=measure_since(began), **line)
                return "%s: %s" % (mode, raw), raw
            speed, note = {}, ""
            if run.kind == "GPU" and not run.small:
                try:
                    speed, note = measure(run, card, dtype, mode, not done)
                except Exception as error:  # most often the memory that others left over
                    speed, note = {}, "not timed: " + short(text(error))
            line.update(speed)
            said = mode.replace("tf32", "float32 as TF32")
            if speed:
                said += " at %.0f GFLOP/s" % speed["gflops"]
            done.append(said + (" (%s)" % note if note else ""))
            say(ok=True, seconds=measure_since(began), note=note, **line)
    return "computes correctly: " + ", ".join(done), ""


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
    """Return ({"gflops", "expected_gflops", "slow", "copy_gbps"}, a note): large products, and at first the way in."""
    import numpy

    v1 = run.v1
    random = numpy.random.RandomState(8)
    rows = choose_rows(run, card, dtype)
    start = random.uniform(-1.0, 1.0, (rows, rows)).astype("float32")
    with v1.Graph().as_default():
        with v1.device(card.device):
            fed = v1.placeholder(v1.float32, (rows, rows))
            copied = v1.reduce_sum(fed)
            kept = v1.Variable(fed, trainable=False)
            factor = v1.cast(kept * math.sqrt(3.0 / rows), getattr(run.tf, dtype))  # keeps the variance
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
                seconds = time_call(run.timed, lambda: session.run(ended))
    facts = {"gflops": finite(2.0 * rows**3 * CHAIN / seconds / 1e9), "expected_gflops": None}
    notes = [] if rows == BIG else ["so slow that products of %d rows were timed" % rows]
    expected = run.expected.get(str(card.index))
    expected = expected.get(mode) if isinstance(expected, dict) else expected if mode == "float32" else None
    if expected:
        facts["expected_gflops"] = expected
        facts["slow"] = facts["gflops"] < expected / 10.0
        if facts["slow"]:
            notes.append("slow: such a card should give %.0f GFLOP/s; is it throttled, or shared?" % expected)
    if copies:
        facts["copy_gbps"] = finite(4e-9 * rows**2 / max(min(copies), 1e-9))
        if facts["copy_gbps"] < SLOW_COPY:
            notes.append(
                "slow: data comes to it at %.2f GB/s, as over a single PCIe lane" % facts["copy_gbps"]
            )
    return facts, "; ".join(notes)


def choose_rows(run, card, dtype):
    """Rows that this card can be timed with: fewer where it is so slow that all its time would go by."""
    import numpy

    v1 = run.v1
    start = numpy.random.RandomState(8).uniform(-1.0, 1.0, (SMALL, SMALL)).astype("float32")
    with v1.Graph().as_default():
        with v1.device(card.device):
            fed = v1.placeholder(v1.float32, (SMALL, SMALL))
            factor = v1.cast(fed, getattr(run.tf, dtype))
            ended = v1.reduce_sum(v1.cast(v1.matmul(factor, factor), v1.float32))
        with run.session() as session:
            session.run(ended, {fed: start})
            began = time.time()
            session.run(ended, {fed: start})
            once = time.time() - began
    rows = BIG
    if once * CHAIN * (float(BIG) / SMALL) ** 3 > LONG:
        while rows > SMALL and once * CHAIN * (float(rows) / SMALL) ** 3 > SHORT:
            rows //= 2
    return rows


def time_call(wanted, call):
    """Return seconds of one call: the mean of as many as take so long, after one that is not counted."""
    call()
    began, count = time.time(), 0
    while not count or time.time() - began < wanted:
        call()
        count += 1
    return max((time.time() - began) / count, 1e-9)


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
            say(stage="cudnn", gpu=card.index, ok=False, error=raw, seconds=measure_since(began))
            bad.append((card, short(raw), raw))
        else:
            say(stage="cudnn", gpu=card.index, ok=True, seconds=measure_since(began), of_limit=finite(worst))
    if bad:
        raise merge_failures(bad, len(run.cards), run.kind)
    return "a convolution, forward and backward, is right on %s" % plural(len(run.cards), run.kind), {}


def convolve_on(run, card):
    """Return the largest deviation as a part of its limit; Wrong where it is more."""
    import numpy

    sizes = SMALL_CONVOLUTION if run.small else CONVOLUTION
    n, h, w, cin, cout = sizes
    random = numpy.random.RandomState(9)
    image, kernel, back = (
        random.uniform(-1.0, 1.0, shape).astype("float32")
        for shape in ((n, h, w, cin), (3, 3, cin, cout), (n, h, w, cout))
    )
    exact = convolution(numpy, sizes, *(one.astype("float64") for one in (image, kernel, back)))
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
    for name, one, right, products in zip(
        ("the result", "the gradient of the input", "the gradient of the filter"),
        got,
        exact,
        (9 * cin, 9 * cout, n * h * w),
    ):
        off, limit = float(numpy.abs(one.astype("float64") - right).max()), tf32_limit(products)
        if not off <= limit:
            raise Wrong("%s is off by %.3g, and rounding explains at most %.3g" % (name, off, limit))
        worst = max(worst, off / limit)
    return worst


def convolution(numpy, sizes, image, kernel, back):
    """Return (result, gradient of the image, gradient of the kernel) of a 3x3 convolution, NHWC, SAME, in plain
    numpy.
    """
    n, h, w, cin, cout = sizes
    padded = numpy.zeros((n, h + 2, w + 2, cin))
    padded[:, 1:-1, 1:-1, :] = image
    result = numpy.zeros((n, h, w, cout))
    of_image = numpy.zeros((n, h + 2, w + 2, cin))
    of_kernel = numpy.zeros((3, 3, cin, cout))
    for i in range(3):
        for j in range(3):
            part = padded[:, i : i + h, j : j + w, :]
            result += part.dot(kernel[i, j])
            of_image[:, i : i + h, j : j + w, :] += back.dot(kernel[i, j].T)
            of_kernel[i, j] = part.reshape(-1, cin).T.dot(back.reshape(-1, cout))
    return result, of_image[:, 1:-1, 1:-1, :], of_kernel
