# Part of stages.py: computations on each GPU, whose results are compared with numpy's (stages compute and
# cudnn).
import math
import re
import time

from stages_devices import parse_device_description, create_and_list_devices
from stages_output import MissingFeature, WrongResult, round_finite, format_count, say, summarize_error, measure_since, format_error, merge_failures

TIMED_ROWS = 4096  # rows of the matrices that are timed: 64 MiB each in float32
PRODUCTS_PER_RUN = 4  # so that the cost of starting a run is negligible
ESTIMATE_ROWS = 512  # rows of the product from which the time of large ones is estimated
MAX_RUN_S, TARGET_RUN_S = 30.0, 3.0  # if a run would take longer than MAX_RUN_S, rows are halved until TARGET_RUN_S
MIN_COPY_GBPS = 1.2  # one PCIe 3.0 lane carries 0.98 GB/s; sixteen lanes carry at least 3 from pageable memory
ROUNDING_UNIT = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
TF32_UNIT = 2.0**-10
NO_KERNEL = re.compile(r"[Nn]o (OpKernel|supported kernel|registered)|not in list of allowed values")
# GPUs add up bfloat16 in float32, and float16 in float16 or float32, depending on the GPU and the release.
SUM_UNIT = {"GPU": dict(ROUNDING_UNIT, bfloat16=2.0**-24), "CPU": ROUNDING_UNIT}
# The convolution: images, height and width, channels in and out; the filter is 3x3.
CONVOLUTION = (8, 32, 32, 16, 32)
SMALL_CONVOLUTION = (2, 6, 6, 4, 8)


def do_compute(run):
    """Compare matrix products on each device with numpy's, and time them. Raise WrongResult on errors."""
    try:
        run.open()
    except WrongResult as error:
        for card in run.cards:
            say(stage="compute", gpu=card.index, ok=False, error=error.raw)
        raise
    if run.kind == "GPU" and all(card.capability is None for card in run.cards):
        try:
            descriptions = dict((index, summary) for index, _, summary in create_and_list_devices(run))
        except Exception:  # half precision is then not tested
            descriptions = {}
        for card in run.cards:
            parse_device_description(card, descriptions.get(card.index, ""))
    summaries, failures = [], []
    for card in run.cards:
        summary, error = test_device(run, card)
        if error:
            failures.append((card, summary, error))
        else:
            summaries.append("%s:%d %s" % (card.kind, card.index, summary))
    if failures:
        raise merge_failures(failures, len(run.cards), run.kind)
    return "; ".join(summaries), {}


def test_device(run, card):
    """Test each data type on a device. Return a summary, and the full text of the first error or ""."""
    results = []
    for dtype in ("float32", "float16", "bfloat16"):
        if not has_dtype(run, card, dtype):
            continue
        say(stage="compute", computing=card.index, dtype=dtype)
        started = time.time()
        try:
            modes = compare(run, card, dtype)
        except MissingFeature:
            continue
        except Exception as error:
            raw = format_error(error)
            say(stage="compute", gpu=card.index, dtype=dtype, ok=False, error=raw, seconds=measure_since(started))
            return "%s: %s" % (dtype, summarize_error(raw)), raw
        for mode, deviation, limit in modes:
            line = dict(stage="compute", gpu=card.index, dtype=mode, deviation=round_finite(deviation), limit=round_finite(limit))
            if not deviation <= limit:
                raw = "the product is off by %.3g, and rounding explains at most %.3g" % (deviation, limit)
                say(ok=False, error=raw, seconds=measure_since(started), **line)
                return "%s: %s" % (mode, raw), raw
            speed, note = {}, ""
            if run.kind == "GPU" and not run.small:
                try:
                    speed, note = measure_speed(run, card, dtype, mode, not results)
                except Exception as error:  # usually because other processes use the memory
                    speed, note = {}, "not timed: " + summarize_error(format_error(error))
            line.update(speed)
            label = mode.replace("tf32", "float32 as TF32")
            if speed:
                label += " at %.0f GFLOP/s" % speed["gflops"]
            results.append(label + (" (%s)" % note if note else ""))
            say(ok=True, seconds=measure_since(started), note=note, **line)
    return "computes correctly: " + ", ".join(results), ""


def has_dtype(run, card, dtype):
    """Return whether the device and this TensorFlow support a data type."""
    if dtype == "float32":
        return True
    if dtype == "bfloat16" and not hasattr(run.tf, "bfloat16"):
        return False
    if run.kind != "GPU":
        return True
    return card.capability is not None and card.capability >= ((5, 3) if dtype == "float16" else (8, 0))


def compare(run, card, dtype):
    """Compare a product on the device with numpy's in float64. Return [(mode, largest deviation, limit)].

    The factors are independent and have mean 0 and variance 1/3, so a running sum of k products has the rms
    sqrt(k)/3. Each of n additions adds an error of at most u times that sum. The errors are independent, so the
    typical total error is u * n / (3 * sqrt(2)). The largest error of a million results that were added one by
    one was 5 times as large; 12 times is allowed.

    TF32 reduces both factors to 10 bits, so a product has an error of up to 2**-10 from each factor. The typical
    total error is 2**-10 * sqrt(2 * n) / 3. The largest error was 2.4 times as large; 6 times is allowed.

    The factors for float16 and bfloat16 are multiples of 1/64, which both types represent exactly. The result is
    rounded to u once, or several times if partial sums are added.
    """
    import numpy

    n = run.size
    random = numpy.random.RandomState(7)
    if dtype == "float32":
        left, right = (random.uniform(-1.0, 1.0, (n, n)).astype("float32") for _ in range(2))
    else:
        left, right = ((random.randint(-64, 65, (n, n)) / 64.0).astype("float32") for _ in range(2))
    exact = left.astype("float64").dot(right.astype("float64"))
    limit = compute_sum_limit(n, SUM_UNIT[run.kind][dtype])
    if dtype != "float32":
        limit += 4 * ROUNDING_UNIT[dtype] * float(numpy.abs(exact).max())
    deviation = float(numpy.abs(compute_product(run, card, dtype, left, right) - exact).max())
    if dtype != "float32" or not limit < deviation <= compute_tf32_limit(n):
        return [(dtype, deviation, limit)]
    modes = [("tf32", deviation, compute_tf32_limit(n))]
    with Tf32Switch(run, True) as is_disabled:
        if is_disabled:
            deviation = float(numpy.abs(compute_product(run, card, dtype, left, right) - exact).max())
            modes.append((dtype, deviation, limit))
    return modes


def compute_sum_limit(n, unit):
    """Return the largest error that rounding explains in a sum of `n` products. See `compare`."""
    return 12 * unit * n / (3 * math.sqrt(2.0))


def compute_tf32_limit(n):
    """Return the largest error that TF32 explains in a sum of `n` products. See `compare`."""
    return 6 * TF32_UNIT * math.sqrt(2.0 * n) / 3


class Tf32Switch(object):
    """A context manager that disables TF32 if `off` is true. It yields whether this TensorFlow allows it."""

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


def compute_product(run, card, dtype, left, right):
    """Return a product on the device. Raise MissingFeature if an optional type has no kernel."""
    try:
        return multiply(run, card, dtype, left, right)
    except Exception as error:
        # Old releases have no half-precision kernels for the CPU, and none of bfloat16 for GPUs.
        optional = dtype == "bfloat16" or (run.kind == "CPU" and dtype == "float16")
        if optional and NO_KERNEL.search(format_error(error)):
            raise MissingFeature(dtype)
        raise


def multiply(run, card, dtype, left, right):
    """Return a product on the device, in float64."""
    v1 = run.v1
    with v1.Graph().as_default():
        with v1.device(card.device):
            fed = [v1.placeholder(v1.float32, left.shape) for _ in range(2)]
            factors = [v1.cast(factor, getattr(run.tf, dtype)) for factor in fed] if dtype != "float32" else fed
            result = v1.cast(v1.matmul(*factors), v1.float32)
        with run.session() as session:
            return session.run(result, {fed[0]: left, fed[1]: right}).astype("float64")


def measure_speed(run, card, dtype, mode, times_copy):
    """Time large products. Return ({"gflops", "expected_gflops", "slow", "copy_gbps"}, a note).

    If `times_copy` is true, also time copies to the device.
    """
    import numpy

    v1 = run.v1
    random = numpy.random.RandomState(8)
    rows = choose_rows(run, card, dtype)
    start = random.uniform(-1.0, 1.0, (rows, rows)).astype("float32")
    with v1.Graph().as_default():
        with v1.device(card.device):
            fed = v1.placeholder(v1.float32, (rows, rows))
            copied = v1.reduce_sum(fed)
            variable = v1.Variable(fed, trainable=False)
            factor = v1.cast(variable * math.sqrt(3.0 / rows), getattr(run.tf, dtype))  # keeps the variance constant
            result = v1.cast(variable, getattr(run.tf, dtype))
            for _ in range(PRODUCTS_PER_RUN):
                result = v1.matmul(result, factor)
            end = v1.reduce_sum(v1.cast(result, v1.float32))
        with run.session() as session:
            session.run(variable.initializer, {fed: start})
            copies = []
            for _ in range(4 if times_copy else 0):
                started = time.time()
                session.run(copied, {fed: start})
                copies.append(time.time() - started)
            with Tf32Switch(run, mode == "float32"):
                seconds = time_call(run.timed, lambda: session.run(end))
    facts = {"gflops": round_finite(2.0 * rows**3 * PRODUCTS_PER_RUN / seconds / 1e9), "expected_gflops": None}
    notes = [] if rows == TIMED_ROWS else ["so slow that products of %d rows were timed" % rows]
    expected = run.expected.get(str(card.index))
    expected = expected.get(mode) if isinstance(expected, dict) else expected if mode == "float32" else None
    if expected:
        facts["expected_gflops"] = expected
        facts["slow"] = facts["gflops"] < expected / 10.0
        if facts["slow"]:
            notes.append("slow: such a card should give %.0f GFLOP/s; is it throttled, or shared?" % expected)
    if copies:
        facts["copy_gbps"] = round_finite(4e-9 * rows**2 / max(min(copies), 1e-9))
        if facts["copy_gbps"] < MIN_COPY_GBPS:
            notes.append(
                "slow: data comes to it at %.2f GB/s, as over a single PCIe lane" % facts["copy_gbps"]
            )
    return facts, "; ".join(notes)


def choose_rows(run, card, dtype):
    """Return the number of matrix rows to time: TIMED_ROWS, or fewer if the device is slow."""
    import numpy

    v1 = run.v1
    start = numpy.random.RandomState(8).uniform(-1.0, 1.0, (ESTIMATE_ROWS, ESTIMATE_ROWS)).astype("float32")
    with v1.Graph().as_default():
        with v1.device(card.device):
            fed = v1.placeholder(v1.float32, (ESTIMATE_ROWS, ESTIMATE_ROWS))
            factor = v1.cast(fed, getattr(run.tf, dtype))
            end = v1.reduce_sum(v1.cast(v1.matmul(factor, factor), v1.float32))
        with run.session() as session:
            session.run(end, {fed: start})
            started = time.time()
            session.run(end, {fed: start})
            seconds = time.time() - started
    rows = TIMED_ROWS
    if seconds * PRODUCTS_PER_RUN * (float(TIMED_ROWS) / ESTIMATE_ROWS) ** 3 > MAX_RUN_S:
        while rows > ESTIMATE_ROWS and seconds * PRODUCTS_PER_RUN * (float(rows) / ESTIMATE_ROWS) ** 3 > TARGET_RUN_S:
            rows //= 2
    return rows


def time_call(seconds, call):
    """Return a call's mean time in seconds. After a warm-up call it is repeated for `seconds` seconds."""
    call()
    started, count = time.time(), 0
    while not count or time.time() - started < seconds:
        call()
        count += 1
    return max((time.time() - started) / count, 1e-9)


def do_cudnn(run):
    """Compare a convolution on each device with that of numpy. Raise WrongResult if one is wrong."""
    run.open()
    failures = []
    for card in run.cards:
        say(stage="cudnn", computing=card.index)
        started = time.time()
        try:
            deviation = compare_convolution(run, card)
        except Exception as error:
            raw = format_error(error)
            say(stage="cudnn", gpu=card.index, ok=False, error=raw, seconds=measure_since(started))
            failures.append((card, summarize_error(raw), raw))
        else:
            say(stage="cudnn", gpu=card.index, ok=True, seconds=measure_since(started), of_limit=round_finite(deviation))
    if failures:
        raise merge_failures(failures, len(run.cards), run.kind)
    return "a convolution, forward and backward, is right on %s" % format_count(len(run.cards), run.kind), {}


def compare_convolution(run, card):
    """Return the largest deviation of a convolution as a share of its limit.

    Raise WrongResult if it exceeds the limit.
    """
    import numpy

    sizes = SMALL_CONVOLUTION if run.small else CONVOLUTION
    n, h, w, cin, cout = sizes
    random = numpy.random.RandomState(9)
    image, kernel, gradient = (
        random.uniform(-1.0, 1.0, shape).astype("float32")
        for shape in ((n, h, w, cin), (3, 3, cin, cout), (n, h, w, cout))
    )
    exact = compute_convolution(numpy, sizes, *(array.astype("float64") for array in (image, kernel, gradient)))
    v1 = run.v1
    with v1.Graph().as_default():
        with v1.device(card.device):
            fed = [v1.placeholder(v1.float32, array.shape) for array in (image, kernel, gradient)]
            forward = v1.nn.conv2d(fed[0], fed[1], strides=[1, 1, 1, 1], padding="SAME")
            answers = [forward] + list(v1.gradients([forward], fed[:2], grad_ys=[fed[2]]))
        with run.session() as session:
            results = session.run(answers, dict(zip(fed, (image, kernel, gradient))))
    worst = 0.0
    # The last tuple has the number of products in each sum. The limit is that of TF32, which cuDNN may use.
    # Its Winograd algorithm is not more precise.
    for name, array, expected, products in zip(
        ("the result", "the gradient of the input", "the gradient of the filter"),
        results,
        exact,
        (9 * cin, 9 * cout, n * h * w),
    ):
        deviation, limit = float(numpy.abs(array.astype("float64") - expected).max()), compute_tf32_limit(products)
        if not deviation <= limit:
            raise WrongResult("%s is off by %.3g, and rounding explains at most %.3g" % (name, deviation, limit))
        worst = max(worst, deviation / limit)
    return worst


def compute_convolution(numpy, sizes, image, kernel, result_gradient):
    """Return a convolution's result, and its gradients by image and kernel, as numpy computes them.

    The convolution is 3x3, NHWC, with SAME padding.
    """
    n, h, w, cin, cout = sizes
    padded = numpy.zeros((n, h + 2, w + 2, cin))
    padded[:, 1:-1, 1:-1, :] = image
    result = numpy.zeros((n, h, w, cout))
    image_gradient = numpy.zeros((n, h + 2, w + 2, cin))
    kernel_gradient = numpy.zeros((3, 3, cin, cout))
    for i in range(3):
        for j in range(3):
            part = padded[:, i : i + h, j : j + w, :]
            result += part.dot(kernel[i, j])
            image_gradient[:, i : i + h, j : j + w, :] += result_gradient.dot(kernel[i, j].T)
            kernel_gradient[i, j] = part.reshape(-1, cin).T.dot(result_gradient.reshape(-1, cout))
    return result, image_gradient[:, 1:-1, 1:-1, :], kernel_gradient
