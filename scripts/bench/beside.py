"""Run by a Python with TensorFlow: what bench times and loops written by hand, turn and turn about in one process.

    PYTHON scripts/bench/beside.py PAYLOAD_FOLDER [SECONDS]

A line for each kind of work: both medians, the one divided by the other, and the same of the processors' time, which
tells on a busy machine whether both do the same work. scripts/bench/times reads them.
"""

import functools
import importlib
import sys
import time

FOLDER, SECONDS = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 8.0
sys.path.insert(0, FOLDER)

tf = importlib.import_module("tensorflow")

v1 = tf.compat.v1 if hasattr(tf, "compat") and hasattr(tf.compat, "v1") else tf
import stages_bench as bench  # noqa: E402
import stages_bench_work as work  # noqa: E402
from stages_devices import Card  # noqa: E402

bench.say = lambda **_: None  # the lines of the payload
TURNS = 160


class Run:
    """What the parts of stages.py ask of it."""

    tf, v1 = tf, v1


def make_manual_work():
    """Kind of work → (its size, a function that gives what is called)."""

    def number(tensor):
        return tf.reshape(tensor, [-1])[0]

    # Numbers as bench has them: how long a ReLU or a pool takes depends on them.
    def uniform(name, shape, most=1.0):
        return v1.get_variable(
            name, shape, initializer=v1.random_uniform_initializer(-most, most), trainable=False
        )

    def product():
        a, b = (uniform(n, [512, 512]) for n in "ab")
        return number(tf.matmul(a, b))

    def convolution():
        images = uniform("images", [8, 32, 32, 32])
        kernel = uniform("kernel", [3, 3, 32, 64])
        return number(v1.nn.conv2d(images, kernel, strides=[1, 1, 1, 1], padding="SAME"))

    def copied():
        halves = [uniform(n, [1 << 17]) for n in "ab"]
        return number(tf.identity(tf.concat(halves, 0)))

    def trained():
        images = uniform("images", [32, 32, 32, 3])
        first, second = uniform("k", [3, 3, 3, 16], 0.1), uniform("l", [3, 3, 16, 32], 0.1)
        dense = uniform("d", [2048, 10], 0.1)
        x = images
        for kernel in (first, second):
            x = tf.nn.relu(v1.nn.conv2d(x, kernel, strides=[1, 1, 1, 1], padding="SAME"))
            x = v1.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.reshape(x, [32, 2048]), dense)))
        kept = [first, second, dense]
        slopes = v1.gradients(loss, kept)
        changed = [v1.assign_sub(kept[at], 1e-4 * slope) for at, slope in enumerate(slopes)]
        return tf.add_n([number(one) for one in changed])

    return {
        "matmul": (512, product),
        "conv": (32, convolution),
        "copy": (1 << 20, copied),
        "train": (32, trained),
    }


def middle(times):
    return sorted(times)[len(times) // 2]


def count_cpu_time(call, spent, who):
    """The same, and what all its threads used of the processors is added up."""

    def whole():
        used = time.process_time()
        call()
        spent[who] += time.process_time() - used

    return whole


def main():
    card = Card(0, "CPU", "/device:CPU:0")
    for kind, (size, make) in make_manual_work().items():
        with v1.Graph().as_default() as graph:
            offered = work.build(Run, [card], {"workloads": [kind], "sizes": [size]}, bench.short_name)
            offered = [one for one in offered if one[0]["model"] in (None, "cnn")][:1]
            session, pieces = v1.Session(graph=graph), []
            bench.made(offered, session, pieces, v1)
        with v1.Graph().as_default() as graph:
            wanted, plain = make(), v1.Session(graph=graph)
            plain.run(v1.global_variables_initializer())
        bench.warm_up(pieces, bench.clock(), 60)  # seconds
        plain.run(wanted), plain.run(wanted)
        ours, theirs, spent = [], [], [0.0, 0.0]
        pieces[0].call = count_cpu_time(pieces[0].call, spent, 0)
        by_itself = count_cpu_time(functools.partial(plain.run, wanted), spent, 1)
        bench.ROUNDS = 1
        for _ in range(TURNS):
            pieces[0].seconds = []
            bench.rounds(pieces, bench.clock(), SECONDS / TURNS / 2, [0])
            ours += pieces[0].seconds
            began = time.perf_counter()
            while time.perf_counter() - began < SECONDS / TURNS / 2:
                start = time.perf_counter()
                by_itself()
                theirs.append(time.perf_counter() - start)
        a, b = middle(ours), middle(theirs)
        share = spent[0] / len(ours) / (spent[1] / len(theirs))
        print(f"times {kind} {size} {a:.6f} {b:.6f} {a / b:.4f} {share:.4f}", flush=True)


main()
