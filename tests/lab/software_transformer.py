"""Compare the training of a small transformer on each software GPU with the CPU.

For a Python with TensorFlow 1.15 or newer.

usage: python software_transformer.py

Embeddings, attention of two heads with a causal mask, layer norm, gelu, softmax, Adam. Prints the largest difference
for each device and step; the last line counts. Exits with 1 if one differs.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from software_api import tensorflow
from software_beside import pairs, trained_beside_the_cpu

tf = tensorflow()

BATCH, LENGTH, WORDS, WIDTH, HEADS, INNER = 3, 7, 11, 8, 2, 16
NOISE = np.random.RandomState(0)
TEXT = NOISE.randint(0, WORDS, (BATCH, LENGTH + 1)).astype("int32")
SHAPES = {
    "words": (WORDS, WIDTH),
    "places": (LENGTH, WIDTH),
    "qkv": (WIDTH, 3 * WIDTH),
    "out": (WIDTH, WIDTH),
    "up": (WIDTH, INNER),
    "up bias": (INNER,),
    "down": (INNER, WIDTH),
    "down bias": (WIDTH,),
    "scale 1": (WIDTH,),
    "offset 1": (WIDTH,),
    "scale 2": (WIDTH,),
    "offset 2": (WIDTH,),
}
START = {name: (NOISE.randn(*shape) * 0.4).astype("float32") for name, shape in SHAPES.items()}
TOLERANCE = 1e-4


def normalize(x, scale, offset):
    """Return the layer norm."""
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-5) * scale + offset


def gelu_by_erf(x):
    """Return gelu as tf.nn.gelu computes it, which exists from 2.4 on."""
    return 0.5 * x * (1.0 + tf.math.erf(x / np.float32(np.sqrt(2))))


def attention(x, w):
    """Return causal self-attention: each position attends to itself and those before it."""
    parts = tf.reshape(tf.tensordot(x, w["qkv"], 1), (BATCH, LENGTH, 3, HEADS, WIDTH // HEADS))
    q, k, v = tf.unstack(tf.transpose(parts, (2, 0, 3, 1, 4)))
    scores = tf.matmul(q, k, transpose_b=True) / tf.sqrt(float(WIDTH // HEADS))
    mask = tf.linalg.band_part(tf.ones((LENGTH, LENGTH)), -1, 0)
    scores = tf.where(mask > 0, scores, tf.constant(-1e9))
    mixed = tf.matmul(tf.nn.softmax(scores), v)
    return tf.tensordot(tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), (BATCH, LENGTH, WIDTH)), w["out"], 1)


def compute_loss(w, text):
    """Return the loss of the prediction of the next word, and the logits."""
    x = tf.nn.embedding_lookup(w["words"], text[:, :-1]) + w["places"]
    x += attention(normalize(x, w["scale 1"], w["offset 1"]), w)
    inner = getattr(tf.nn, "gelu", gelu_by_erf)(
        tf.nn.bias_add(tf.tensordot(normalize(x, w["scale 2"], w["offset 2"]), w["up"], 1), w["up bias"])
    )
    x += tf.nn.bias_add(tf.tensordot(inner, w["down"], 1), w["down bias"])
    logits = tf.tensordot(x, tf.transpose(w["words"]), 1)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=text[:, 1:], logits=logits)
    return tf.reduce_mean(losses), logits


def run_steps(count=4):
    """Return the loss, the logits, the gradients and the state of Adam for each step."""
    text = tf.constant(TEXT)
    weights = {name: tf.Variable(value) for name, value in START.items()}
    moments = {name: [tf.Variable(tf.zeros(shape)) for _ in "mv"] for name, shape in SHAPES.items()}
    run = tf.function(compute_loss)
    out = []
    for step in range(1, count + 1):
        with tf.GradientTape() as tape:
            loss, logits = (run if step % 2 else compute_loss)(weights, text)
        names = list(weights)
        gradients = [
            tf.convert_to_tensor(gradient)
            for gradient in tape.gradient(loss, [weights[name] for name in names])
        ]
        for name, gradient in pairs(names, gradients):
            tf.raw_ops.ResourceApplyAdam(
                var=weights[name].handle,
                m=moments[name][0].handle,
                v=moments[name][1].handle,
                beta1_power=0.9**step,
                beta2_power=0.999**step,
                lr=0.01,
                beta1=0.9,
                beta2=0.999,
                epsilon=1e-4,
                grad=gradient,
            )
        devices = {value.device.rpartition("/")[2] for value in (loss, logits, *gradients)}
        if devices != {weights["words"].device.rpartition("/")[2]}:
            raise RuntimeError("made on " + " and ".join(sorted(devices)))
        values = [
            loss,
            logits,
            *gradients,
            *weights.values(),
            *(moment for pair in moments.values() for moment in pair),
        ]
        out.append([value.numpy() for value in values])
    return out


if __name__ == "__main__":
    sys.exit(trained_beside_the_cpu(tf, run_steps, TOLERANCE))
