"""Compare the training of a small CNN on each software GPU with the CPU.

For a Python with TensorFlow 1.15 or newer.

usage: python software_cnn.py

Prints the largest difference for each device and step; the last line counts. Exits with 1 if one differs.
"""

import os
import sys

os.environ.setdefault("TF_CUDNN_USE_FRONTEND", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from software_api import tensorflow
from software_beside import pairs, trained_beside_the_cpu

tf = tensorflow()

NOISE = np.random.RandomState(0)
IMAGES = NOISE.randn(4, 8, 8, 3).astype("float32")
LABELS = NOISE.randint(0, 3, 4).astype("int32")
START = [
    (NOISE.randn(*shape) * 0.3).astype("float32")
    for shape in ((3, 3, 3, 4), (4,), (3, 3, 4, 5), (80, 3), (3,))
]
TOLERANCE = 1e-4


def run_steps(count=3):
    """Return the loss, the statistics of a batch and the gradients for each step."""
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
        variables = [*weights, scale, offset]
        gradients = tape.gradient(loss, variables)
        for variable, gradient in pairs(variables, gradients):
            variable.assign_sub(0.1 * gradient)
        out.append([value.numpy() for value in (loss, mean, variance, *gradients)])
    return out


if __name__ == "__main__":
    sys.exit(trained_beside_the_cpu(tf, run_steps, TOLERANCE))
