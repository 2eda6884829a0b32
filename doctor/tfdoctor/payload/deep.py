# Imports TensorFlow, lists its GPUs, and multiplies a matrix on each. Only this payload and stages.py import
# TensorFlow. Runs on Python 2.7 and 3.5 to 3.14 and on TensorFlow 1.0 to 2.x. It prints a line after each
# step, so that a crash or hang loses only later results. Memory growth is enabled, so it takes little GPU
# memory. With the argument "list" it ends after listing the GPUs.
from __future__ import print_function

import sys

# Replace the script's own folder, which comes first unless Python runs in safe mode, with the working
# directory, which is where a program would be started.
if sys.path and not (getattr(sys.flags, "safe_path", 0) or getattr(sys.flags, "isolated", 0)):
    sys.path[0] = ""

import json
import time

MARKER = "tfdoctor-payload:"
MATRIX_ROWS = 256


def print_facts(**facts):
    print(MARKER + json.dumps(facts))
    sys.stdout.flush()


def list_gpus(tf):
    """Return the names of the GPUs. Releases without list_physical_devices must create the devices first."""
    config = getattr(tf, "config", None)
    for owner in (config, getattr(config, "experimental", None)):
        if hasattr(owner, "list_physical_devices"):
            return [device.name for device in owner.list_physical_devices("GPU")]
    from tensorflow.python.client import device_lib

    return [device.name for device in device_lib.list_local_devices() if device.device_type == "GPU"]


def enable_memory_growth(tf):
    """Enable memory growth on each GPU, if this release supports it."""
    experimental = getattr(getattr(tf, "config", None), "experimental", None)
    if hasattr(experimental, "set_memory_growth"):
        for device in experimental.list_physical_devices("GPU"):
            experimental.set_memory_growth(device, True)


def is_eager(tf):
    """Return whether eager execution is enabled."""
    try:
        return bool(tf.executing_eagerly())
    except AttributeError:
        return False


def compute_product(tf, device, matrix):
    """Return the square of a matrix, computed on a device."""
    if is_eager(tf):
        with tf.device(device):
            tensor = tf.constant(matrix)
            return tf.matmul(tensor, tensor).numpy()
    v1 = getattr(getattr(tf, "compat", None), "v1", None) or tf
    with v1.Graph().as_default():
        with v1.device(device):
            tensor = v1.placeholder("float32", matrix.shape)  # a constant would be folded on the CPU
            squared = v1.matmul(tensor, tensor)
        gpu_options = v1.GPUOptions(allow_growth=True)
        config = v1.ConfigProto(gpu_options=gpu_options, allow_soft_placement=False)
        with v1.Session(config=config) as session:
            return session.run(squared, {tensor: matrix})


def initialize_devices(tf):
    """Create all devices of TensorFlow. Do not repeat this after a failure, or TensorFlow 2.21 hangs."""
    if is_eager(tf):
        with tf.device("/CPU:0"):
            tf.constant(0.0)


def check_product(tf, index):
    """Compare a matrix product on a GPU with numpy's. Return "GPU:N ok" or "GPU:N failed: ..."."""
    import numpy

    matrix = numpy.random.RandomState(7).uniform(-1.0, 1.0, (MATRIX_ROWS, MATRIX_ROWS)).astype("float32")
    expected = matrix.astype("float64").dot(matrix.astype("float64"))
    result = compute_product(tf, "/GPU:%d" % index if is_eager(tf) else "/gpu:%d" % index, matrix)
    # TF32 keeps 10 bits of each factor, which is an error of up to 2**-11 of each. The errors of the
    # MATRIX_ROWS products in a sum are independent and add up to about sqrt(MATRIX_ROWS) times that.
    deviation = float(numpy.abs(result - expected).max())
    limit = 2.0**-10 * MATRIX_ROWS**0.5
    if not deviation <= limit:
        return "GPU:%d failed: the product is off by %.3g (at most %.3g is rounding)" % (index, deviation, limit)
    return "GPU:%d ok" % index


def main():
    started = time.time()
    try:
        import tensorflow as tf
    except BaseException as error:
        print_facts(import_ok=False, error="%s: %s" % (type(error).__name__, error), seconds=time.time() - started)
        return
    print_facts(import_ok=True, tensorflow=str(getattr(tf, "__version__", "")), seconds=time.time() - started)
    try:
        devices = list_gpus(tf)
    except Exception as error:
        print_facts(error="%s: %s" % (type(error).__name__, error), seconds=time.time() - started)
        return
    print_facts(devices=devices, seconds=time.time() - started)
    if "list" in sys.argv[1:]:
        return
    try:
        enable_memory_growth(tf)
    except Exception as error:
        print_facts(growth=str(error))
    results = []
    try:
        if devices:
            print_facts(computing=0)
            initialize_devices(tf)
    except Exception as error:
        message = "%s: %s" % (type(error).__name__, str(error)[:300])
        results = ["GPU:%d failed: %s" % (index, message) for index in range(len(devices))]
        print_facts(computed=results, computing=None, total_seconds=time.time() - started)
        return
    for index in range(len(devices)):
        print_facts(computing=index)
        try:
            results.append(check_product(tf, index))
        except Exception as error:
            results.append("GPU:%d failed: %s: %s" % (index, type(error).__name__, str(error)[:300]))
        print_facts(computed=results, computing=None, total_seconds=time.time() - started)


if __name__ == "__main__":
    main()
