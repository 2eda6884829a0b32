"""What the trainings on a GPU that is software share (software_cnn.py, software_transformer.py)."""

import numpy as np


def trained_beside_the_cpu(tf, steps, tolerance):
    """Run `steps()`, a list of arrays for each step, on the CPU and on each GPU.

    Prints a line for each device and step. Returns 0 where all are right, which takes at least one GPU.
    """
    with tf.device("/CPU:0"):
        wanted = steps()
    gpus = tf.config.list_logical_devices("GPU")
    wrong = 0 if gpus else 1
    for gpu in gpus:
        with tf.device(gpu.name):
            got = steps()
        for number, (one, other) in enumerate(zip(got, wanted, strict=True), 1):
            pairs = zip(one, other, strict=True)
            most = np.max([np.max(np.abs(a - b) / (1 + np.abs(b))) for a, b in pairs])
            right = most <= tolerance  # which NaN is not
            wrong += not right
            print(f"{gpu.name} step {number}: {most:.1e} {'right' if right else 'WRONG'}, loss {one[0]:.6f}")
    print(f"{tf.__version__}: {len(gpus)} GPUs, {wrong} wrong")
    return 1 if wrong else 0
