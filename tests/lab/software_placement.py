"""Where the operations of a small program went, with two GPUs, which are software: TensorFlow's word and its log.

usage: python software_placement.py session|eager|refused FILE

FILE gets JSON, [operation, device] for each; of a session from the graphs that its devices were given, eagerly from the
results. What is printed is the log that `tfdoctor placement` reads. For TensorFlow 1.14 and newer.
"""

import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CUDNN_USE_FRONTEND", "0")

import numpy as np
from software_api import tensorflow

IDENTITY = np.eye(4, dtype="float32")
ADDED = ("_Send", "_Recv", "_HostSend", "_HostRecv", "_Arg", "_Retval", "_DeviceArg", "_DeviceRetval")
"""Operations that the session itself puts in."""


def made(tf):
    """A graph with operations for each GPU, for none of them, and of types that GPUs have no kernel for."""
    v1 = tf.compat.v1
    given = v1.placeholder(tf.float32, (4, 4), name="given")
    with tf.device("/GPU:0"):
        weights = v1.get_variable("weights", (4, 4), initializer=v1.ones_initializer(), use_resource=True)
        hidden = tf.nn.relu(tf.matmul(given, weights))
        words = v1.as_string(hidden)
        single, _ = tf.unique(tf.reshape(tf.cast(hidden, tf.int32), [-1]))
    with tf.device("/GPU:1"):
        product = tf.matmul(hidden, hidden)
        whole = tf.cast(product, tf.int16) + tf.constant(np.ones((4, 4), "int16"))
        lower = tf.floor(product)
    with tf.device("/CPU:0"):
        total = tf.reduce_sum(lower)
    best = tf.nn.top_k(tf.nn.softmax(product), 2)
    return given, [words, single, whole, total, best.values, tf.where(hidden > 0)]


def session(tf):
    """What went into the graphs that the devices were given; nothing is optimised away."""
    v1 = tf.compat.v1
    config = v1.ConfigProto(log_device_placement=True, allow_soft_placement=True)
    config.graph_options.optimizer_options.opt_level = -1
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    out = {}  # both runs have nodes of the same name
    with tf.Graph().as_default():
        given, wanted = made(tf)
        start = v1.global_variables_initializer()
        with v1.Session(config=config) as running:
            for fetched, fed in ((start, {}), (wanted, {given: IDENTITY})):
                metadata, options = v1.RunMetadata(), v1.RunOptions(output_partition_graphs=True)
                running.run(fetched, fed, options=options, run_metadata=metadata)
                for graph in metadata.partition_graphs:
                    out.update(
                        {node.name: [node.op, node.device] for node in graph.node if node.op not in ADDED}
                    )
    return list(out.values())


def eager(tf):
    """Operations one by one, and where their results were made."""
    tf.debugging.set_log_device_placement(True)
    out = []

    def kept(kind, value):
        out.append([kind, value.device])
        return value

    start = tf.constant(IDENTITY)
    product = kept("MatMul", tf.matmul(start, start))
    with tf.device("/GPU:1"):
        again = kept("MatMul", tf.matmul(product, product))
        positive = kept("Relu", tf.nn.relu(again))
    with tf.device("/CPU:0"):
        kept("Floor", tf.floor(positive))
    kept("AsString", tf.strings.as_string(positive))
    kept("Softmax", tf.nn.softmax(positive))
    return out


def refused(tf):
    """A GPU that has no kernel for what it is told: nothing is placed."""
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        with tf.device("/GPU:0"):
            words = v1.as_string(v1.placeholder_with_default(IDENTITY, (4, 4)))
        try:
            v1.Session(config=v1.ConfigProto(log_device_placement=True)).run(words)
        except tf.errors.InvalidArgumentError as error:
            sys.stderr.write(str(error) + "\n")
            return []
    raise RuntimeError("it was placed")


if __name__ == "__main__":
    tf = tensorflow()
    placed = {"session": session, "eager": eager, "refused": refused}[sys.argv[1]](tf)
    pathlib.Path(sys.argv[2]).write_text(json.dumps(placed))
