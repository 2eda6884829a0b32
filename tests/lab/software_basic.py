"""What each GPU, which is software, lists and computes, beside NumPy; for a Python 3 with TensorFlow 1.13 or newer.

usage: python software_basic.py [product] [convolution] [copy] [nccl]

A line each; without arguments all but nccl. Exits with 1 where one is wrong or refused.
"""

import importlib
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_CUDNN_USE_FRONTEND", "0")

import numpy as np

tf = importlib.import_module("tensorflow")
device_lib = importlib.import_module("tensorflow.python.client.device_lib")

OLD = tf.__version__.startswith("1.")
NOISE = np.random.RandomState(0)
A = NOISE.randn(5, 7).astype("float32")
B = NOISE.randn(7, 3).astype("float32")
IMAGES = NOISE.randn(2, 6, 5, 3).astype("float32")
KERNEL = NOISE.randn(3, 3, 3, 4).astype("float32")


def convolved(images, kernel):
    """A valid convolution with steps of one, NHWC by HWIO."""
    rows, columns = (images.shape[i] - kernel.shape[i - 1] + 1 for i in (1, 2))
    out = np.zeros((images.shape[0], rows, columns, kernel.shape[3]))
    for i in range(rows):
        for j in range(columns):
            part = images[:, i : i + kernel.shape[0], j : j + kernel.shape[1]].astype("float64")
            out[:, i, j] = np.tensordot(part, kernel, 3)
    return out


def computed(name, gpus):
    """What `name` gives on each GPU, and what it has to be."""
    if name == "product":
        return [on(gpu, lambda: tf.matmul(tf.constant(A), tf.constant(B))) for gpu in gpus], A @ B
    if name == "convolution":
        wanted = convolved(IMAGES, KERNEL)
        return [on(gpu, lambda: tf.nn.conv2d(IMAGES, KERNEL, [1] * 4, "VALID")) for gpu in gpus], wanted
    kinds = {"nccl": "NcclAllReduce", "copy": "HierarchicalCopyAllReduce"}
    wanted = A * sum(range(1, len(gpus) + 1))
    if not hasattr(tf.distribute, kinds[name]):
        return reduced_by_contrib({"nccl": "nccl", "copy": "hierarchical_copy"}[name], gpus), wanted
    strategy = tf.distribute.MirroredStrategy(gpus, cross_device_ops=getattr(tf.distribute, kinds[name])())

    def step():
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, of_replica(context))

    if OLD:  # a function within the strategy cannot reduce there
        with tf.Graph().as_default(), strategy.scope():
            out = strategy.experimental_local_results(strategy.experimental_run_v2(step))
            return tf.compat.v1.Session().run(list(out)), wanted
    out = strategy.experimental_local_results(strategy.run(tf.function(step)))
    return [value.numpy() for value in out], wanted


def of_replica(context):
    """What a replica, the first or the second, brings into the sum."""
    number = getattr(context, "replica_id_in_sync_group", None)
    return tf.constant(A) * (tf.cast(number, tf.float32) + 1)


def reduced_by_contrib(algorithm, gpus):
    """The sums that each GPU has, by the strategies of 1.13."""
    contrib = tf.contrib.distribute
    strategy = contrib.MirroredStrategy(
        gpus, cross_device_ops=contrib.AllReduceCrossDeviceOps(algorithm, num_packs=0)
    )

    def step():
        context = tf.distribute.get_replica_context()
        return context.merge_call(summed, args=(of_replica(context),))

    def summed(strategy, value):
        return strategy.extended.reduce_to(tf.distribute.ReduceOp.SUM, value, destinations=value)

    with tf.Graph().as_default(), strategy.scope():
        out = strategy.unwrap(strategy.extended.call_for_each_replica(step))
        return tf.Session().run(list(out))


def on(gpu, function):
    """The value, and that it was made there."""
    with tf.device(gpu):
        value = function()
    if gpu.lower() not in value.device.lower():
        raise RuntimeError("made on " + value.device)
    return value.numpy()


def main():
    """Print a line for each operation; 0 where all are right."""
    if OLD:
        tf.compat.v1.enable_eager_execution()
    gpus = []
    for one in device_lib.list_local_devices():
        if one.device_type == "GPU":
            gpus.append(one.name)
            print(one.name, one.memory_limit, one.physical_device_desc)
    wrong = 0 if len(gpus) > 1 else 1
    for name in sys.argv[1:] or ["product", "convolution", "copy"]:
        try:
            got, wanted = computed(name, gpus)
            right = len(got) == len(gpus) and all(
                one.shape == wanted.shape and np.allclose(one, wanted, rtol=1e-5, atol=1e-5) for one in got
            )
            print(name, "right" if right else "WRONG")
        except Exception as error:  # each kind of refusal is a line
            right = False
            print(name, "refused:", " ".join(str(error).split())[:300])
        wrong += not right
        sys.stdout.flush()
    print(f"{tf.__version__}: {len(gpus)} GPUs, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
