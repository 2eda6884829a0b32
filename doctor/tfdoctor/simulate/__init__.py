"""Simulation of a GPU: a stand-in for NVIDIA's driver that real TensorFlow uses on a machine without one.

It is distributed as C source and built on the user's machine. Nothing in it is NVIDIA's.
"""
