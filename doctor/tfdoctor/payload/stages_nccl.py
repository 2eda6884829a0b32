# Part of stages.py: all cards together (nccl).
import os
import re
import subprocess
import threading

from stages_compute import time_call
from stages_output import Missing, Wrong, finite, say, short, text

SUMMED, SUMS = 1 << 22, 16  # floats a GPU in the all-reduce (16 MiB), and how many in a row are timed
SMALL = 1 << 12


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

    v1, length = run.v1, SMALL if run.small else SUMMED
    random = numpy.random.RandomState(10)
    # Whole numbers: their sums are exact in float32, in whatever order.
    parts = [random.randint(-1000, 1001, length).astype("float32") for _ in run.cards]
    exact = sum(parts)
    with v1.Graph().as_default():
        fed, kept = [], []
        for card in run.cards:
            with v1.device(card.device):
                fed.append(v1.placeholder(v1.float32, (length,)))
                kept.append(v1.Variable(fed[-1], trainable=False))
        sums = sum_tensors(run, all_sum, kept)
        last = sums
        for _ in range(SUMS - 1):
            last = sum_tensors(run, all_sum, last)
        ended = v1.group(*[one.op for one in last])
        with run.session() as session:
            for one, placeholder, part in zip(kept, fed, parts):
                session.run(one.initializer, {placeholder: part})
            for index, got in enumerate(session.run(sums)):
                off = float(numpy.abs(got - exact).max())
                if not off <= 0:
                    raise Wrong("the sum that GPU:%d got is off by %.3g" % (index, off))
            if run.small:
                return "an all-reduce over %d GPUs is right" % count, {}
            seconds = time_call(run.timed, lambda: session.run(ended)) / SUMS
    algorithm = SUMMED * 4 / seconds / 1e9
    bus = algorithm * 2 * (count - 1) / count
    return "an all-reduce over %d GPUs is right: %.1f GB/s (%.1f GB/s on the bus)" % (count, algorithm, bus), {
        "gbps": finite(algorithm),
        "bus_gbps": finite(bus),
    }


def sum_tensors(run, all_sum, tensors):
    """Return the sum of the tensors, on each card.

    All of them have to be run together: NCCL waits for the last.
    """
    copies = []
    for card, one in zip(run.cards, tensors):
        with run.v1.device(card.device):
            copies.append(run.v1.identity(one))
    return all_sum(copies)


def find_all_sum(run):
    """Return NCCL's all-reduce, wherever this TensorFlow keeps it."""
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
