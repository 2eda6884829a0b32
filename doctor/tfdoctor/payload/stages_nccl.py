# Part of stages.py: an all-reduce over all GPUs (stage nccl).
import os
import re
import subprocess
import threading

from stages_compute import time_call
from stages_output import MissingFeature, StageError, round_finite, say, summarize_error, format_error

SUMMED_FLOATS, TIMED_SUMS = 1 << 22, 16  # floats per GPU in the all-reduce (16 MiB), and the number of timed repetitions
SMALL_FLOATS = 1 << 12


def do_nccl(run):
    """Compare an all-reduce over all GPUs with the sum by numpy, and time it.

    Raise MissingFeature if there are fewer than two GPUs or no NCCL, and WrongResult if a sum is wrong.
    """
    count = len(run.cards)
    if run.device_kind != "GPU" or count < 2:
        raise MissingFeature("an all-reduce takes at least two GPUs; there %s %d" % ("is" if count == 1 else "are", count))
    run.open()
    all_sum = find_all_sum(run)
    topology = read_topology()
    if topology:
        say(stage="nccl", topology=topology)
    import numpy

    v1, float_count = run.v1, SMALL_FLOATS if run.uses_small_sizes else SUMMED_FLOATS
    random = numpy.random.RandomState(10)
    # The sums of integers are exact in float32, in any order.
    addends = [random.randint(-1000, 1001, float_count).astype("float32") for _ in run.cards]
    expected_sum = sum(addends)
    with v1.Graph().as_default():
        placeholders, variables = [], []
        for card in run.cards:
            with v1.device(card.device):
                placeholders.append(v1.placeholder(v1.float32, (float_count,)))
                variables.append(v1.Variable(placeholders[-1], trainable=False))
        sums = sum_tensors(run, all_sum, variables)
        repeated_sums = sums
        for _ in range(TIMED_SUMS - 1):
            repeated_sums = sum_tensors(run, all_sum, repeated_sums)
        last_sums = v1.group(*[tensor.op for tensor in repeated_sums])
        with run.session() as session:
            for tensor, placeholder, addend in zip(variables, placeholders, addends):
                session.run(tensor.initializer, {placeholder: addend})
            for index, summed in enumerate(session.run(sums)):
                deviation = float(numpy.abs(summed - expected_sum).max())
                if not deviation <= 0:
                    raise StageError("the sum that GPU:%d got is off by %.3g" % (index, deviation))
            if run.uses_small_sizes:
                return "an all-reduce over %d GPUs is right" % count, {}
            seconds = time_call(run.timed_seconds, lambda: session.run(last_sums)) / TIMED_SUMS
    algorithm_gbps = SUMMED_FLOATS * 4 / seconds / 1e9
    bus_gbps = algorithm_gbps * 2 * (count - 1) / count
    return "an all-reduce over %d GPUs is right: %.1f GB/s (%.1f GB/s on the bus)" % (count, algorithm_gbps, bus_gbps), {
        "gbps": round_finite(algorithm_gbps),
        "bus_gbps": round_finite(bus_gbps),
    }


def sum_tensors(run, all_sum, tensors):
    """Return a tensor for each GPU that holds the sum of all tensors.

    Run all of the returned tensors together, because NCCL waits for each GPU.
    """
    copies = []
    for card, tensor in zip(run.cards, tensors):
        with run.v1.device(card.device):
            copies.append(run.v1.identity(tensor))
    return all_sum(copies)


def find_all_sum(run):
    """Return the all-reduce function of NCCL, whose module depends on the release.

    Raise MissingFeature if this TensorFlow has no NCCL.
    """
    try:
        from tensorflow.python.ops import nccl_ops
    except ImportError:
        try:
            from tensorflow.contrib.nccl import all_sum
        except Exception as error:
            raise MissingFeature("this TensorFlow has no NCCL: %s" % summarize_error(format_error(error)))
        return all_sum
    return nccl_ops.all_sum


def read_topology():
    """Return the matrix of GPU connections that nvidia-smi prints; "" if it is unavailable."""
    try:
        process = subprocess.Popen(
            ["nvidia-smi", "topo", "-m"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=open(os.devnull)
        )
    except OSError:
        return ""
    timer = threading.Timer(20, process.kill)
    timer.daemon = True
    timer.start()
    output = process.communicate()[0]
    timer.cancel()
    # Without the escape sequences of the heading.
    return re.sub(r"\x1b\[[0-9;]*m", "", output.decode("utf-8", "replace"))[:4000] if process.returncode == 0 else ""
