"""Verify stage by stage that TensorFlow in an image or environment can use the GPUs.

The container or environment is first examined with the probes and rules of `check`. Then a payload in a separate
process imports TensorFlow, lists the GPUs, and computes on each of them. The payload draws no conclusions. The result
names the first stage that fails and its root cause.
"""
