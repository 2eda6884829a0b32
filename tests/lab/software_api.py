"""The API of TensorFlow 2, also for 1.14 and 1.15; for a Python with TensorFlow."""

import importlib


def import_tensorflow():
    """Return the module with the functions of TensorFlow 2."""
    tf = importlib.import_module("tensorflow")
    if not tf.__version__.startswith("1."):
        return tf
    tf.compat.v1.enable_v2_behavior()
    module = importlib.import_module("tensorflow.compat.v2")
    if not hasattr(getattr(module, "compat", None), "v1"):  # 1.14
        module.compat = tf.compat
    return module


class MissingFunctionError(Exception):
    """This release has no function of that name."""


def find_function(module, name):
    """Return a function of a module, or one that raises NotThereError if the release has none."""

    def missing(*_, **__):
        raise MissingFunctionError(name)

    return getattr(module, name, missing)
