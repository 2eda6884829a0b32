"""Has TensorFlow log where operations go, in a program that does not ask for it: `tfdoctor run --placement`.

Python imports a module of this name at its start; this one is found because `run` puts its folder first on PYTHONPATH.
It waits for TensorFlow's sessions and contexts, which get log_device_placement, and lets the environment's own
sitecustomize do its work. For every Python that a TensorFlow runs on, 2.7 to 3.14: plain code, no annotations.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _sessions(module):
    """TensorFlow 1: each session's ConfigProto."""
    made = module.BaseSession.__init__

    def __init__(self, target="", graph=None, config=None):
        logged = module.config_pb2.ConfigProto()
        if config is not None:
            logged.CopyFrom(config)
        logged.log_device_placement = True
        made(self, target, graph, logged)

    module.BaseSession.__init__ = __init__


def _contexts(module):
    """TensorFlow 2, and eager execution in 1: the context."""
    made = module.Context.__init__

    def __init__(self, *args, **named):
        made(self, *args, **named)
        if hasattr(self, "_log_device_placement"):
            self._log_device_placement = True

    module.Context.__init__ = __init__


_CHANGED = {"tensorflow.python.client.session": _sessions, "tensorflow.python.eager.context": _contexts}


class _Finder(object):
    """Is asked for every module first, and answers for these alone: with what the others find, changed once it ran."""

    def __init__(self):
        self.asked = set()

    def find_spec(self, name, path=None, target=None):
        """Python 3."""
        if name not in _CHANGED or name in self.asked:
            return None
        self.asked.add(name)
        from importlib.util import find_spec

        spec = find_spec(name)
        loader = getattr(spec, "loader", None)
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        execute = loader.exec_module

        def exec_module(module):
            execute(module)
            _change(name, module)

        loader.exec_module = exec_module
        return spec

    def find_module(self, name, path=None):
        """Python 2."""
        if sys.version_info[0] > 2 or name not in _CHANGED or name in self.asked:
            return None
        self.asked.add(name)
        return self

    def load_module(self, name):
        __import__(name)
        _change(name, sys.modules[name])
        return sys.modules[name]


def _change(name, module):
    try:
        _CHANGED[name](module)
    except Exception:  # the program comes first: then nothing is logged, and that is said at the end
        pass


def _import_others():
    """Import the sitecustomize that would have been found without this one."""
    ours = sys.modules.pop("sitecustomize", None)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if ours is not None:
            sys.modules["sitecustomize"] = ours
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise


sys.meta_path.insert(0, _Finder())
_import_others()
