"""Compare the times of `tfdoctor bench` with hand-written loops, in one process with TensorFlow.

    PYTHON scripts/bench/beside.py PAYLOAD_FOLDER [SECONDS [CPU | GPU]]

Both sides take turns. For each kind of work one line is printed: both medians, their ratio, and the ratio of
the CPU times, which shows on a busy machine whether both sides do the same work. scripts/bench/times reads
these lines.
"""

import functools
import importlib
import sys
import time

FOLDER, SECONDS = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 8.0
DEVICE = sys.argv[3] if len(sys.argv) > 3 else "CPU"
IS_GPU = DEVICE == "GPU"
sys.path.insert(0, FOLDER)

tf = importlib.import_module("tensorflow")

v1 = tf.compat.v1 if hasattr(tf, "compat") and hasattr(tf.compat, "v1") else tf
import stages_bench as bench  # noqa: E402
import stages_bench_work as work  # noqa: E402
from stages_compute import Tf32Disabler  # noqa: E402
from stages_devices import DeviceUnderTest  # noqa: E402

bench.say = lambda **_: None  # suppress the payload's own output
TURNS = 160


class Run:
    """The part of the payload's run object that its bench modules use."""

    tf, v1, kind = tf, v1, DEVICE


def make_manual_work():
    """Return (kind, data type, size, the function that builds its tensor) of each kind of work.

    The sizes on a GPU are those at which it computes most of the time.
    """
    rows, width, batch = (8192, 256, 512) if IS_GPU else (512, 32, 32)
    half = 1 << (23 if IS_GPU else 17)  # numbers

    def take_first_element(tensor):
        return tf.reshape(tensor, [-1])[0]

    # The same value range as in bench: the time of a ReLU or a pooling depends on the values.
    def uniform(name, shape, limit=1.0, dtype=tf.float32):
        with v1.device("/device:{}:0".format("CPU" if name == "host" else DEVICE)):
            start = tf.cast(v1.random_uniform(shape, -limit, limit), dtype)
            return v1.get_variable(name, initializer=start, trainable=False)

    def multiply(dtype=tf.float32):
        a, b = (uniform(n, [rows, rows], dtype=dtype) for n in "ab")
        return take_first_element(tf.matmul(a, b))

    def convolution():
        images = uniform("images", [8, width, width, 32])
        kernel = uniform("kernel", [3, 3, 32, 64])
        return take_first_element(v1.nn.conv2d(images, kernel, strides=[1, 1, 1, 1], padding="SAME"))

    def copy():
        if IS_GPU:
            return take_first_element(tf.identity(uniform("host", [2 * half])))
        halves = [uniform(n, [half]) for n in "ab"]
        return take_first_element(tf.identity(tf.concat(halves, 0)))

    def train():
        images = uniform("images", [batch, 32, 32, 3])
        first, second = uniform("k", [3, 3, 3, 16], 0.1), uniform("l", [3, 3, 16, 32], 0.1)
        dense = uniform("d", [2048, 10], 0.1)
        x = images
        for kernel in (first, second):
            x = tf.nn.relu(v1.nn.conv2d(x, kernel, strides=[1, 1, 1, 1], padding="SAME"))
            x = v1.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.reshape(x, [batch, 2048]), dense)))
        weights = [first, second, dense]
        gradients = v1.gradients(loss, weights)
        updates = [v1.assign_sub(weights[index], 1e-4 * gradient) for index, gradient in enumerate(gradients)]
        return tf.add_n([take_first_element(variable) for variable in updates])

    works = [
        ("matmul", "float32", rows, multiply),
        ("conv", "float32", width, convolution),
        ("copy", "float32", 8 * half, copy),
        ("train", "float32", batch, train),
    ]
    return (
        [*works, ("matmul", "bfloat16", rows, functools.partial(multiply, tf.bfloat16))] if IS_GPU else works
    )


def find_median(times):
    return sorted(times)[len(times) // 2]


def count_cpu_time(call, spent, index):
    """Return a function that runs `call` and adds the CPU seconds of the process to `spent[who]`."""

    def measured_call():
        start = time.process_time()
        call()
        spent[index] += time.process_time() - start

    return measured_call


def main():
    cards = [
        DeviceUnderTest(0, kind, f"/device:{kind}:0") for kind in (["CPU", "GPU"] if IS_GPU else ["CPU"])
    ]
    if IS_GPU:
        major, minor = tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[0])[
            "compute_capability"
        ]
        cards[1].details["compute_capability"] = f"{major}.{minor}"
    config = v1.ConfigProto(gpu_options=v1.GPUOptions(allow_growth=True), allow_soft_placement=True)
    Tf32Disabler(Run, True).__enter__()
    for kind, dtype, size, build_work in make_manual_work():
        with v1.Graph().as_default() as graph:
            workloads = work.build_session_work(
                Run,
                cards if kind == "copy" else cards[-1:],
                {"workloads": [kind], "sizes": [size], "dtypes": [dtype]},
                bench.format_device_name,
            )
            workloads = [workload for workload in workloads if workload[0]["model"] in (None, "cnn")][:1]
            session, pieces = v1.Session(graph=graph, config=config), []
            bench.make_pieces(workloads, session, pieces, [], v1)
        with v1.Graph().as_default() as graph:
            with v1.device(f"/device:{DEVICE}:0"):
                tensor = build_work()
            manual_session = v1.Session(graph=graph, config=config)
            manual_session.run(v1.global_variables_initializer())
        bench.warm_up(pieces, bench.clock(), 60, 1.0)
        manual_session.run(tensor), manual_session.run(tensor)
        ours, theirs, spent = [], [], [0.0, 0.0]
        pieces[0].call = count_cpu_time(pieces[0].call, spent, 0)
        manual_call = count_cpu_time(functools.partial(manual_session.run, tensor), spent, 1)
        bench.ROUNDS = 1
        for _ in range(TURNS):
            pieces[0].seconds = []
            bench.run_rounds(pieces, bench.clock(), SECONDS / TURNS / 2, [0])
            ours += pieces[0].seconds
            began = time.perf_counter()
            while time.perf_counter() - began < SECONDS / TURNS / 2:
                start = time.perf_counter()
                manual_call()
                theirs.append(time.perf_counter() - start)
        a, b = find_median(ours), find_median(theirs)
        cpu_ratio = spent[0] / len(ours) / (spent[1] / len(theirs))
        print(f"times {kind}-{dtype} {size} {a:.6f} {b:.6f} {a / b:.4f} {cpu_ratio:.4f}", flush=True)


main()
