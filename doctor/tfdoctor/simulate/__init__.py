"""A stand-in for NVIDIA's driver, which real TensorFlow meets where no GPU is.

It travels as C source and is built where it is used. Nothing in it is NVIDIA's.
"""
