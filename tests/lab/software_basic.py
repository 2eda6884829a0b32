"""Check what each software GPU lists and computes against NumPy; for a Python 3 with TensorFlow 1.13 or newer.

usage: python software_basic.py [product] [convolution] [copy] [nccl]

Prints one line each; without arguments all but nccl. Exits with 1 if one is wrong or refused.
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


def convolve(images, kernel):
    """Return a valid convolution with strides of one, NHWC by HWIO."""
    rows, columns = (images.shape[i] - kernel.shape[i - 1] + 1 for i in (1, 2))
    out = np.zeros((images.shape[0], rows, columns, kernel.shape[3]))
    for i in range(rows):
        for j in range(columns):
            part = images[:, i : i + kernel.shape[0], j : j + kernel.shape[1]].astype("float64")
            out[:, i, j] = np.tensordot(part, kernel, 3)
    return out


def compute(name, gpus):
    """Return what `name` gives on each GPU, and the right result."""
    if name == "product":
        return [compute_on(gpu, lambda: tf.matmul(tf.constant(A), tf.constant(B))) for gpu in gpus], A @ B
    if name == "convolution":
        expected = convolve(IMAGES, KERNEL)
        return [
            compute_on(gpu, lambda: tf.nn.conv2d(IMAGES, KERNEL, [1] * 4, "VALID")) for gpu in gpus
        ], expected
    kinds = {"nccl": "NcclAllReduce", "copy": "HierarchicalCopyAllReduce"}
    expected = A * sum(range(1, len(gpus) + 1))
    if not hasattr(tf.distribute, kinds[name]):
        return reduce_with_contrib({"nccl": "nccl", "copy": "hierarchical_copy"}[name], gpus), expected
    strategy = tf.distribute.MirroredStrategy(gpus, cross_device_ops=getattr(tf.distribute, kinds[name])())

    def step():
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, make_replica_value(context))

    if OLD:  # TensorFlow 1 cannot reduce in a function within the strategy
        with tf.Graph().as_default(), strategy.scope():
            out = strategy.experimental_local_results(strategy.experimental_run_v2(step))
            return tf.compat.v1.Session().run(list(out)), expected
    out = strategy.experimental_local_results(strategy.run(tf.function(step)))
    return [value.numpy() for value in out], expected


def make_replica_value(context):
    """Return what the current replica contributes to the sum."""
    number = getattr(context, "replica_id_in_sync_group", None)
    return tf.constant(A) * (tf.cast(number, tf.float32) + 1)


def reduce_with_contrib(algorithm, gpus):
    """Return the sum on each GPU, with the strategies of 1.13."""
    contrib = tf.contrib.distribute
    strategy = contrib.MirroredStrategy(
        gpus, cross_device_ops=contrib.AllReduceCrossDeviceOps(algorithm, num_packs=0)
    )

    def step():
        context = tf.distribute.get_replica_context()
        return context.merge_call(sum_value, args=(make_replica_value(context),))

    def sum_value(strategy, value):
        return strategy.extended.reduce_to(tf.distribute.ReduceOp.SUM, value, destinations=value)

    with tf.Graph().as_default(), strategy.scope():
        out = strategy.unwrap(strategy.extended.call_for_each_replica(step))
        return tf.Session().run(list(out))


def compute_on(gpu, function):
    """Return the value of a function on a GPU. Raise RuntimeError if it was computed elsewhere."""
    with tf.device(gpu):
        value = function()
    if gpu.lower() not in value.device.lower():
        raise RuntimeError("made on " + value.device)
    return value.numpy()


def main():
    """Print a line for each operation; return 0 if all are right."""
    if OLD:
        tf.compat.v1.enable_eager_execution()
    gpus = []
    for item in device_lib.list_local_devices():
        if item.device_type == "GPU":
            gpus.append(item.name)
            print(item.name, item.memory_limit, item.physical_device_desc)
    failures = 0 if len(gpus) > 1 else 1
    for name in sys.argv[1:] or ["product", "convolution", "copy"]:
        try:
            results, expected = compute(name, gpus)
            is_right = len(results) == len(gpus) and all(
                item.shape == expected.shape and np.allclose(item, expected, rtol=1e-5, atol=1e-5)
                for item in results
            )
            print(name, "right" if is_right else "WRONG")
        except Exception as error:  # each kind of refusal is a line
            is_right = False
            print(name, "refused:", " ".join(str(error).split())[:300])
        failures += not is_right
        sys.stdout.flush()
    print(f"{tf.__version__}: {len(gpus)} GPUs, {failures} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
