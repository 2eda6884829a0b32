"""Does TensorFlow in there really see and use the GPUs? The stages in order, the first failing one with its root cause.

The same probes and rules as `check` look into the container or environment; then one payload, in a process of its own,
imports TensorFlow, lists the GPUs, and computes on each. Nothing is judged inside.
"""
