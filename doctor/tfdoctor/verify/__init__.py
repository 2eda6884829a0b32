"""Verification that TensorFlow in an image or environment can use the GPUs, stage by stage.

The result names the first stage that fails and its root cause. The same probes and rules as for `check` examine the
container or environment. Then a payload in its own process imports TensorFlow, lists the GPUs, and computes on each.
The payload draws no conclusions.
"""
