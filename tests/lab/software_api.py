"""TensorFlow 2's API, which 1.14 and 1.15 have, too; for a Python with TensorFlow."""

import importlib


def tensorflow():
    """The module whose functions are those of TensorFlow 2."""
    tf = importlib.import_module("tensorflow")
    if not tf.__version__.startswith("1."):
        return tf
    tf.compat.v1.enable_v2_behavior()
    module = importlib.import_module("tensorflow.compat.v2")
    if not hasattr(getattr(module, "compat", None), "v1"):  # 1.14
        module.compat = tf.compat
    return module


class NotThereError(Exception):
    """This release has no function of that name."""


def known(module, name):
    """A function of a module; one that raises NotThereError where the release has none."""

    def missing(*_, **__):
        raise NotThereError(name)

    return getattr(module, name, missing)
