"""A small CNN's training on each GPU, which is software, beside the same on the CPU; for a Python with TensorFlow.

usage: python software_cnn.py

A line for each device and step of what differs at most; the last one counts. Exits with 1 where one differs.
"""

import importlib
import os
import sys

os.environ.setdefault("TF_CUDNN_USE_FRONTEND", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

tf = importlib.import_module("tensorflow")

NOISE = np.random.RandomState(0)
IMAGES = NOISE.randn(4, 8, 8, 3).astype("float32")
LABELS = NOISE.randint(0, 3, 4).astype("int32")
START = [
    (NOISE.randn(*shape) * 0.3).astype("float32")
    for shape in ((3, 3, 3, 4), (4,), (3, 3, 4, 5), (80, 3), (3,))
]
TOLERANCE = 1e-4


def steps(count=3):
    """The loss, the gradients and the statistics of a batch, step by step."""
    images, labels = tf.constant(IMAGES), tf.constant(LABELS)
    weights = [tf.Variable(value) for value in START]
    scale, offset = tf.Variable(tf.ones(4)), tf.Variable(tf.zeros(4))
    out = []
    for _ in range(count):
        with tf.GradientTape() as tape:
            x = tf.nn.bias_add(tf.nn.conv2d(images, weights[0], 1, "SAME"), weights[1])
            x, mean, variance = tf.compat.v1.nn.fused_batch_norm(x, scale, offset, is_training=True)
            x = tf.nn.max_pool2d(tf.nn.relu(x), 2, 2, "VALID")
            x = tf.nn.avg_pool2d(tf.nn.conv2d(x, weights[2], 1, "SAME"), 2, 1, "SAME")
            x = tf.matmul(tf.reshape(x, (4, 80)), weights[3]) + weights[4]
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x))
        trained = [*weights, scale, offset]
        slopes = tape.gradient(loss, trained)
        for variable, slope in zip(trained, slopes, strict=True):
            variable.assign_sub(0.1 * slope)
        out.append([value.numpy() for value in (loss, mean, variance, *slopes)])
    return out


def main():
    """Print a line for each device and step; 0 where all are right."""
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
            right = most <= TOLERANCE  # which NaN is not
            wrong += not right
            print(f"{gpu.name} step {number}: {most:.1e} {'right' if right else 'WRONG'}, loss {one[0]:.6f}")
    print(f"{tf.__version__}: {len(gpus)} GPUs, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
