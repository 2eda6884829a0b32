"""Simulate a GPU on a machine without one, with a stand-in for NVIDIA's driver.

TensorFlow itself is not simulated. The stand-in is distributed as C source and built on the user's machine. It
contains no code from NVIDIA.
"""
