"""Record where the operations of a small program run with two software GPUs, by TensorFlow's data and in its log.

usage: python software_placement.py session|eager|refused FILE

FILE gets JSON, [operation, device] for each: of a session from the graphs of its devices, in eager mode from the
results. The printed output is the log that `tfdoctor diagnose --placement` reads. For TensorFlow 1.14 and newer.
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
"""Operations that the session itself adds."""


def make_graph(tf):
    """Return the input and the outputs of a graph.

    It has operations for each GPU, for no GPU, and of types for which GPUs have no kernel.
    """
    v1 = tf.compat.v1
    inputs = v1.placeholder(tf.float32, (4, 4), name="given")
    with tf.device("/GPU:0"):
        weights = v1.get_variable("weights", (4, 4), initializer=v1.ones_initializer(), use_resource=True)
        hidden = tf.nn.relu(tf.matmul(inputs, weights))
        text_tensor = v1.as_string(hidden)
        single, _ = tf.unique(tf.reshape(tf.cast(hidden, tf.int32), [-1]))
    with tf.device("/GPU:1"):
        product = tf.matmul(hidden, hidden)
        whole = tf.cast(product, tf.int16) + tf.constant(np.ones((4, 4), "int16"))
        lower = tf.floor(product)
    with tf.device("/CPU:0"):
        total = tf.reduce_sum(lower)
    best = tf.nn.top_k(tf.nn.softmax(product), 2)
    return inputs, [text_tensor, single, whole, total, best.values, tf.where(hidden > 0)]


def place_in_session(tf):
    """Return the operations in the graphs of the devices, without optimisation."""
    v1 = tf.compat.v1
    config = v1.ConfigProto(log_device_placement=True, allow_soft_placement=True)
    config.graph_options.optimizer_options.opt_level = -1
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    placed = {}  # both runs have nodes of the same name
    with tf.Graph().as_default():
        inputs, outputs = make_graph(tf)
        start = v1.global_variables_initializer()
        with v1.Session(config=config) as active_session:
            for fetches, feeds in ((start, {}), (outputs, {inputs: IDENTITY})):
                metadata, options = v1.RunMetadata(), v1.RunOptions(output_partition_graphs=True)
                active_session.run(fetches, feeds, options=options, run_metadata=metadata)
                for graph in metadata.partition_graphs:
                    placed.update(
                        {node.name: [node.op, node.device] for node in graph.node if node.op not in ADDED}
                    )
    return list(placed.values())


def place_eagerly(tf):
    """Run operations one by one and return where their results are."""
    tf.debugging.set_log_device_placement(True)
    out = []

    def record_device(kind, value):
        out.append([kind, value.device])
        return value

    start = tf.constant(IDENTITY)
    product = record_device("MatMul", tf.matmul(start, start))
    with tf.device("/GPU:1"):
        second_product = record_device("MatMul", tf.matmul(product, product))
        positive = record_device("Relu", tf.nn.relu(second_product))
    with tf.device("/CPU:0"):
        record_device("Floor", tf.floor(positive))
    record_device("AsString", tf.strings.as_string(positive))
    record_device("Softmax", tf.nn.softmax(positive))
    return out


def place_refused(tf):
    """Request a GPU for an operation without a GPU kernel; nothing is placed."""
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        with tf.device("/GPU:0"):
            text_tensor = v1.as_string(v1.placeholder_with_default(IDENTITY, (4, 4)))
        try:
            v1.Session(config=v1.ConfigProto(log_device_placement=True)).run(text_tensor)
        except tf.errors.InvalidArgumentError as error:
            sys.stderr.write(str(error) + "\n")
            return []
    raise RuntimeError("it was placed")


if __name__ == "__main__":
    tf = tensorflow()
    placed = {"session": place_in_session, "eager": place_eagerly, "refused": place_refused}[sys.argv[1]](tf)
    pathlib.Path(sys.argv[2]).write_text(json.dumps(placed))
