# Part of stages.py: computations on each GPU, whose results are compared with numpy's (stages compute and
# cudnn).
import math
import re
import time

from stages_devices import parse_device_description, create_and_list_devices
from stages_output import MissingFeature, StageError, round_finite, format_count, say, summarize_error, measure_seconds_since, format_error, merge_failures

TIMED_ROWS = 4096  # rows of the matrices that are timed: 64 MiB each in float32
PRODUCTS_PER_RUN = 4  # so that the cost of starting a run is negligible
ESTIMATE_ROWS = 512  # rows of the product from which the time of large ones is estimated
MAX_RUN_S, TARGET_RUN_S = 30.0, 3.0  # if a run would take longer than MAX_RUN_S, rows are halved until TARGET_RUN_S
MIN_COPY_GBPS = 1.2  # one PCIe 3.0 lane carries 0.98 GB/s; sixteen lanes carry at least 3 from pageable memory
ROUNDING_UNIT = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
TF32_UNIT = 2.0**-10
NO_KERNEL = re.compile(r"[Nn]o (OpKernel|supported kernel|registered)|not in list of allowed values")
# GPUs add up bfloat16 in float32, and float16 in float16 or float32, depending on the GPU and the release.
SUM_ROUNDING_UNIT = {"GPU": dict(ROUNDING_UNIT, bfloat16=2.0**-24), "CPU": ROUNDING_UNIT}
# The convolution: images, height and width, channels in and out; the filter is 3x3.
CONVOLUTION = (8, 32, 32, 16, 32)
SMALL_CONVOLUTION = (2, 6, 6, 4, 8)


def do_compute(run):
    """Compare matrix products on each device with numpy's, and time them. Raise WrongResult if one fails."""
    try:
        run.open()
    except StageError as error:
        for card in run.cards:
            say(stage="compute", gpu=card.index, ok=False, error=error.raw)
        raise
    if run.device_kind == "GPU" and all(card.capability is None for card in run.cards):
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
        raise merge_failures(failures, len(run.cards), run.device_kind)
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
            modes = compare_product(run, card, dtype)
        except MissingFeature:
            continue
        except Exception as error:
            full_error = format_error(error)
            say(stage="compute", gpu=card.index, dtype=dtype, ok=False, error=full_error, seconds=measure_seconds_since(started))
            return "%s: %s" % (dtype, summarize_error(full_error)), full_error
        for mode, deviation, limit in modes:
            line = dict(stage="compute", gpu=card.index, dtype=mode, deviation=round_finite(deviation), limit=round_finite(limit))
            if not deviation <= limit:
                full_error = "the product is off by %.3g, and rounding explains at most %.3g" % (deviation, limit)
                say(ok=False, error=full_error, seconds=measure_seconds_since(started), **line)
                return "%s: %s" % (mode, full_error), full_error
            speed, note = {}, ""
            if run.device_kind == "GPU" and not run.uses_small_sizes:
                try:
                    speed, note = measure_speed(run, card, dtype, mode, not results)
                except Exception as error:  # usually because other processes use the memory
                    speed, note = {}, "not timed: " + summarize_error(format_error(error))
            line.update(speed)
            label = mode.replace("tf32", "float32 as TF32")
            if speed:
                label += " at %.0f GFLOP/s" % speed["gflops"]
            results.append(label + (" (%s)" % note if note else ""))
            say(ok=True, seconds=measure_seconds_since(started), note=note, **line)
    return "computes correctly: " + ", ".join(results), ""


def has_dtype(run, card, dtype):
    """Return whether the device and this TensorFlow support a data type."""
    if dtype == "float32":
        return True
    if dtype == "bfloat16" and not hasattr(run.tf, "bfloat16"):
        return False
    if run.device_kind != "GPU":
        return True
    return card.capability is not None and card.capability >= ((5, 3) if dtype == "float16" else (8, 0))


def compare_product(run, card, dtype):
    """Compare a product on the device with numpy's in float64. Return [(mode, deviation, limit), ...].

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

    n = run.matrix_rows
    random = numpy.random.RandomState(7)
    if dtype == "float32":
        left, right = (random.uniform(-1.0, 1.0, (n, n)).astype("float32") for _ in range(2))
    else:
        left, right = ((random.randint(-64, 65, (n, n)) / 64.0).astype("float32") for _ in range(2))
    expected = left.astype("float64").dot(right.astype("float64"))
    limit = compute_sum_limit(n, SUM_ROUNDING_UNIT[run.device_kind][dtype])
    if dtype != "float32":
        limit += 4 * ROUNDING_UNIT[dtype] * float(numpy.abs(expected).max())
    deviation = float(numpy.abs(compute_product(run, card, dtype, left, right) - expected).max())
    if dtype != "float32" or not limit < deviation <= compute_tf32_limit(n):
        return [(dtype, deviation, limit)]
    modes = [("tf32", deviation, compute_tf32_limit(n))]
    with Tf32Disabler(run, True) as is_disabled:
        if is_disabled:
            deviation = float(numpy.abs(compute_product(run, card, dtype, left, right) - expected).max())
            modes.append((dtype, deviation, limit))
    return modes


def compute_sum_limit(n, unit):
    """Return the largest error that rounding explains in a sum of `n` products. See `compare_product`."""
    return 12 * unit * n / (3 * math.sqrt(2.0))


def compute_tf32_limit(n):
    """Return the largest error that TF32 explains in a sum of `n` products. See `compare_product`."""
    return 6 * TF32_UNIT * math.sqrt(2.0 * n) / 3


class Tf32Disabler(object):
    """A context manager that disables TF32 if `disable` is true and this TensorFlow allows it.

    It yields whether TF32 is disabled.
    """

    def __init__(self, run, disable):
        experimental = getattr(getattr(run.tf, "config", None), "experimental", None)
        self.set_tf32 = getattr(experimental, "enable_tensor_float_32_execution", None) if disable else None
        if self.set_tf32 is not None:
            self.was_enabled = experimental.tensor_float_32_execution_enabled()

    def __enter__(self):
        if self.set_tf32 is not None:
            self.set_tf32(False)
        return self.set_tf32 is not None

    def __exit__(self, *_):
        if self.set_tf32 is not None:
            self.set_tf32(self.was_enabled)


def compute_product(run, card, dtype, left, right):
    """Return a product on the device. Raise MissingFeature if an optional type has no kernel."""
    try:
        return run_product(run, card, dtype, left, right)
    except Exception as error:
        # Old releases have no half-precision kernels for the CPU, and none of bfloat16 for GPUs.
        is_optional = dtype == "bfloat16" or (run.device_kind == "CPU" and dtype == "float16")
        if is_optional and NO_KERNEL.search(format_error(error)):
            raise MissingFeature(dtype)
        raise


def run_product(run, card, dtype, left, right):
    """Return a product on the device, in float64."""
    v1 = run.v1
    with v1.Graph().as_default():
        with v1.device(card.device):
            placeholders = [v1.placeholder(v1.float32, left.shape) for _ in range(2)]
            factors = placeholders
            if dtype != "float32":
                factors = [v1.cast(placeholder, getattr(run.tf, dtype)) for placeholder in placeholders]
            result = v1.cast(v1.matmul(*factors), v1.float32)
        with run.session() as session:
            return session.run(result, {placeholders[0]: left, placeholders[1]: right}).astype("float64")


def measure_speed(run, card, dtype, mode, times_copy):
    """Time large products. Return ({"gflops", "expected_gflops", "slow", "copy_gbps"}, a note).

    If `times_copy` is true, also time copies to the device.
    """
    import numpy

    v1 = run.v1
    random = numpy.random.RandomState(8)
    rows = choose_rows(run, card, dtype)
    matrix = random.uniform(-1.0, 1.0, (rows, rows)).astype("float32")
    with v1.Graph().as_default():
        with v1.device(card.device):
            placeholder = v1.placeholder(v1.float32, (rows, rows))
            copied_sum = v1.reduce_sum(placeholder)
            variable = v1.Variable(placeholder, trainable=False)
            factor = v1.cast(variable * math.sqrt(3.0 / rows), getattr(run.tf, dtype))  # keeps the variance constant
            result = v1.cast(variable, getattr(run.tf, dtype))
            for _ in range(PRODUCTS_PER_RUN):
                result = v1.matmul(result, factor)
            final_sum = v1.reduce_sum(v1.cast(result, v1.float32))
        with run.session() as session:
            session.run(variable.initializer, {placeholder: matrix})
            copies = []
            for _ in range(4 if times_copy else 0):
                started = time.time()
                session.run(copied_sum, {placeholder: matrix})
                copies.append(time.time() - started)
            with Tf32Disabler(run, mode == "float32"):
                seconds = time_call(run.timed_seconds, lambda: session.run(final_sum))
    facts = {"gflops": round_finite(2.0 * rows**3 * PRODUCTS_PER_RUN / seconds / 1e9), "expected_gflops": None}
    notes = [] if rows == TIMED_ROWS else ["so slow that products of %d rows were timed" % rows]
    expected_gflops = run.expected_speeds.get(str(card.index))
    if isinstance(expected_gflops, dict):
        expected_gflops = expected_gflops.get(mode)
    elif mode != "float32":
        expected_gflops = None
    if expected_gflops:
        facts["expected_gflops"] = expected_gflops
        facts["slow"] = facts["gflops"] < expected_gflops / 10.0
        if facts["slow"]:
            notes.append("slow: such a card should give %.0f GFLOP/s; is it throttled, or shared?" % expected_gflops)
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
    matrix = numpy.random.RandomState(8).uniform(-1.0, 1.0, (ESTIMATE_ROWS, ESTIMATE_ROWS)).astype("float32")
    with v1.Graph().as_default():
        with v1.device(card.device):
            placeholder = v1.placeholder(v1.float32, (ESTIMATE_ROWS, ESTIMATE_ROWS))
            factor = v1.cast(placeholder, getattr(run.tf, dtype))
            final_sum = v1.reduce_sum(v1.cast(v1.matmul(factor, factor), v1.float32))
        with run.session() as session:
            session.run(final_sum, {placeholder: matrix})
            started = time.time()
            session.run(final_sum, {placeholder: matrix})
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
    """Compare a convolution on each device with that of numpy. Raise WrongResult if one fails."""
    run.open()
    failures = []
    for card in run.cards:
        say(stage="cudnn", computing=card.index)
        started = time.time()
        try:
            deviation = compare_convolution(run, card)
        except Exception as error:
            full_error = format_error(error)
            say(stage="cudnn", gpu=card.index, ok=False, error=full_error, seconds=measure_seconds_since(started))
            failures.append((card, summarize_error(full_error), full_error))
        else:
            say(stage="cudnn", gpu=card.index, ok=True, seconds=measure_seconds_since(started), of_limit=round_finite(deviation))
    if failures:
        raise merge_failures(failures, len(run.cards), run.device_kind)
    return "a convolution, forward and backward, is right on %s" % format_count(len(run.cards), run.device_kind), {}


def compare_convolution(run, card):
    """Return the largest deviation of a convolution as a share of its limit.

    Raise WrongResult if it exceeds the limit.
    """
    import numpy

    sizes = SMALL_CONVOLUTION if run.uses_small_sizes else CONVOLUTION
    images, height, width, channels_in, channels_out = sizes
    random = numpy.random.RandomState(9)
    image, kernel, gradient = (
        random.uniform(-1.0, 1.0, shape).astype("float32")
        for shape in (
            (images, height, width, channels_in),
            (3, 3, channels_in, channels_out),
            (images, height, width, channels_out),
        )
    )
    expected_arrays = compute_convolution(numpy, sizes, *(array.astype("float64") for array in (image, kernel, gradient)))
    v1 = run.v1
    with v1.Graph().as_default():
        with v1.device(card.device):
            placeholders = [v1.placeholder(v1.float32, array.shape) for array in (image, kernel, gradient)]
            forward = v1.nn.conv2d(placeholders[0], placeholders[1], strides=[1, 1, 1, 1], padding="SAME")
            tensors = [forward] + list(v1.gradients([forward], placeholders[:2], grad_ys=[placeholders[2]]))
        with run.session() as session:
            results = session.run(tensors, dict(zip(placeholders, (image, kernel, gradient))))
    largest_share = 0.0
    # The last tuple contains the number of products in each sum. The limit is that of TF32, which cuDNN may use.
    # cuDNN's Winograd algorithm is not more precise.
    for name, array, expected_array, product_count in zip(
        ("the result", "the gradient of the input", "the gradient of the filter"),
        results,
        expected_arrays,
        (9 * channels_in, 9 * channels_out, images * height * width),
    ):
        deviation, limit = float(numpy.abs(array.astype("float64") - expected_array).max()), compute_tf32_limit(product_count)
        if not deviation <= limit:
            raise StageError("%s is off by %.3g, and rounding explains at most %.3g" % (name, deviation, limit))
        largest_share = max(largest_share, deviation / limit)
    return largest_share


def compute_convolution(numpy, sizes, image, kernel, result_gradient):
    """Return a convolution's result, and its gradients by image and kernel, as numpy computes them.

    The convolution is 3x3, NHWC, with SAME padding.
    """
    images, height, width, channels_in, channels_out = sizes
    padded = numpy.zeros((images, height + 2, width + 2, channels_in))
    padded[:, 1:-1, 1:-1, :] = image
    result = numpy.zeros((images, height, width, channels_out))
    image_gradient = numpy.zeros((images, height + 2, width + 2, channels_in))
    kernel_gradient = numpy.zeros((3, 3, channels_in, channels_out))
    for row in range(3):
        for column in range(3):
            part = padded[:, row : row + height, column : column + width, :]
            result += part.dot(kernel[row, column])
            image_gradient[:, row : row + height, column : column + width, :] += result_gradient.dot(kernel[row, column].T)
            kernel_gradient[row, column] = part.reshape(-1, channels_in).T.dot(result_gradient.reshape(-1, channels_out))
    return result, image_gradient[:, 1:-1, 1:-1, :], kernel_gradient
