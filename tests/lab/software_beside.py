"""Comparison of a training on a software GPU with the CPU (software_cnn.py, software_transformer.py)."""

import numpy as np


def zip_equal(first, second):
    """Return pairs of two lists. Raise ValueError if their lengths differ."""
    if len(first) != len(second):
        message = f"{len(first)} beside {len(second)}"
        raise ValueError(message)
    return zip(first, second)  # noqa: B905 strict= is newer than the Python of TensorFlow 1


def compare_with_cpu(tf, steps, tolerance):
    """Run `steps()`, which returns a list of arrays for each step, on the CPU and on each GPU.

    Prints a line for each device and step. Returns 0 if all are right and there is at least one GPU.
    """
    with tf.device("/CPU:0"):
        expected = steps()
    list_devices = (
        getattr(tf.config, "list_logical_devices", None) or tf.config.experimental.list_logical_devices
    )
    gpus = list_devices("GPU")
    failures = 0 if gpus else 1
    for gpu in gpus:
        with tf.device(gpu.name):
            results = steps()
        for number, (result, reference) in enumerate(zip_equal(results, expected), 1):
            max_error = np.max(
                [np.max(np.abs(a - b) / (1 + np.abs(b))) for a, b in zip_equal(result, reference)]
            )
            is_right = max_error <= tolerance  # false for NaN
            failures += not is_right
            print(
                f"{gpu.name} step {number}: {max_error:.1e} {'right' if is_right else 'WRONG'}, loss {result[0]:.6f}"
            )
    print(f"{tf.__version__}: {len(gpus)} GPUs, {failures} wrong")
    return 1 if failures else 0
