"""What the trainings on a GPU that is software share (software_cnn.py, software_transformer.py)."""

import numpy as np


def pairs(some, others):
    """Each of one list with its own of the other, which is as long."""
    if len(some) != len(others):
        message = f"{len(some)} beside {len(others)}"
        raise ValueError(message)
    return zip(some, others)  # noqa: B905 strict= is newer than the Python of TensorFlow 1


def trained_beside_the_cpu(tf, steps, tolerance):
    """Run `steps()`, a list of arrays for each step, on the CPU and on each GPU.

    Prints a line for each device and step. Returns 0 where all are right, which takes at least one GPU.
    """
    with tf.device("/CPU:0"):
        wanted = steps()
    listed = getattr(tf.config, "list_logical_devices", None) or tf.config.experimental.list_logical_devices
    gpus = listed("GPU")
    wrong = 0 if gpus else 1
    for gpu in gpus:
        with tf.device(gpu.name):
            got = steps()
        for number, (one, other) in enumerate(pairs(got, wanted), 1):
            most = np.max([np.max(np.abs(a - b) / (1 + np.abs(b))) for a, b in pairs(one, other)])
            right = most <= tolerance  # which NaN is not
            wrong += not right
            print(f"{gpu.name} step {number}: {most:.1e} {'right' if right else 'WRONG'}, loss {one[0]:.6f}")
    print(f"{tf.__version__}: {len(gpus)} GPUs, {wrong} wrong")
    return 1 if wrong else 0
