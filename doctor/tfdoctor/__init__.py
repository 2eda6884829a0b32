"""Why TensorFlow does (not) see the GPUs, and what to type so that it does."""

__version__ = "0.1.0"
