# What TensorFlow really does: import, list the GPUs, a product on each. The only payload that imports TensorFlow.
# Runs on Python 2.7 and 3.5 to 3.14 and on TensorFlow 1.0 to 2.x. A line for each step as soon as it is done, so
# that a crash or a hang later on costs only what comes after it. Takes little memory: growth is switched on.
# The argument "list": it ends when the GPUs are listed.
from __future__ import print_function

import sys

# The script's own folder is on sys.path first, unless Python was told to leave it out: a program's
# working folder takes its place.
if sys.path and not (getattr(sys.flags, "safe_path", 0) or getattr(sys.flags, "isolated", 0)):
    sys.path[0] = ""

import json
import time

MARKER = "tfdoctor-payload:"
SIZE = 256


def say(**facts):
    print(MARKER + json.dumps(facts))
    sys.stdout.flush()


def list_gpus(tf):
    """Return names of the registered GPUs, by whatever this release offers that does not yet create devices."""
    config = getattr(tf, "config", None)
    for owner in (config, getattr(config, "experimental", None)):
        if hasattr(owner, "list_physical_devices"):
            return [device.name for device in owner.list_physical_devices("GPU")]
    from tensorflow.python.client import device_lib

    return [device.name for device in device_lib.list_local_devices() if device.device_type == "GPU"]


def set_growth(tf):
    experimental = getattr(getattr(tf, "config", None), "experimental", None)
    if hasattr(experimental, "set_memory_growth"):
        for device in experimental.list_physical_devices("GPU"):
            experimental.set_memory_growth(device, True)


def eager(tf):
    try:
        return bool(tf.executing_eagerly())
    except AttributeError:
        return False


def product(tf, device, matrix):
    if eager(tf):
        with tf.device(device):
            tensor = tf.constant(matrix)
            return tf.matmul(tensor, tensor).numpy()
    v1 = getattr(tf, "compat", None)
    v1 = getattr(v1, "v1", None) or tf
    with v1.Graph().as_default():
        with v1.device(device):
            tensor = v1.placeholder("float32", matrix.shape)  # a constant would be folded, on the CPU
            answer = v1.matmul(tensor, tensor)
        options = v1.GPUOptions(allow_growth=True)
        config = v1.ConfigProto(gpu_options=options, allow_soft_placement=False)
        with v1.Session(config=config) as session:
            return session.run(answer, {tensor: matrix})


def initialize(tf):
    """Have TensorFlow make its devices, all at once. Where that fails it must not be asked again: 2.21 hangs then."""
    if eager(tf):
        with tf.device("/CPU:0"):
            tf.constant(0.0)


def compute(tf, index):
    import numpy

    matrix = numpy.random.RandomState(7).uniform(-1.0, 1.0, (SIZE, SIZE)).astype("float32")
    expected = matrix.astype("float64").dot(matrix.astype("float64"))
    got = product(tf, "/GPU:%d" % index if eager(tf) else "/gpu:%d" % index, matrix)
    # TF32 keeps 10 bits of each factor: 2**-11 a product, sqrt(SIZE) of them add up.
    worst = float(numpy.abs(got - expected).max())
    limit = 2.0**-10 * SIZE**0.5
    if not worst <= limit:
        return "GPU:%d failed: the product is off by %.3g (at most %.3g is rounding)" % (index, worst, limit)
    return "GPU:%d ok" % index


def main():
    began = time.time()
    try:
        import tensorflow as tf
    except BaseException as error:
        say(import_ok=False, error="%s: %s" % (type(error).__name__, error), seconds=time.time() - began)
        return
    say(import_ok=True, tensorflow=str(getattr(tf, "__version__", "")), seconds=time.time() - began)
    try:
        names = list_gpus(tf)
    except Exception as error:
        say(error="%s: %s" % (type(error).__name__, error), seconds=time.time() - began)
        return
    say(devices=names, seconds=time.time() - began)
    if "list" in sys.argv[1:]:
        return
    try:
        set_growth(tf)
    except Exception as error:
        say(growth=str(error))
    done = []
    try:
        if names:
            say(computing=0)
            initialize(tf)
    except Exception as error:
        text = "%s: %s" % (type(error).__name__, str(error)[:300])
        done = ["GPU:%d failed: %s" % (index, text) for index in range(len(names))]
        say(computed=done, computing=None, total_seconds=time.time() - began)
        return
    for index in range(len(names)):
        say(computing=index)
        try:
            done.append(compute(tf, index))
        except Exception as error:
            done.append("GPU:%d failed: %s: %s" % (index, type(error).__name__, str(error)[:300]))
        say(computed=done, computing=None, total_seconds=time.time() - began)


if __name__ == "__main__":
    main()
