"""Make TensorFlow log the placement of operations in any program, for `tfdoctor run --placement`.

Python imports a module with this name at startup. It finds this one because `run` puts its folder first on
PYTHONPATH. When TensorFlow's session and context modules are imported, this module changes them to enable
log_device_placement. The environment's own sitecustomize is imported as usual. Runs on Python 2.7 to 3.14.
"""

import os
import sys

_THIS_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _log_in_sessions(module):
    """Enable logging in the ConfigProto of each session (TensorFlow 1)."""
    original_init = module.BaseSession.__init__

    def __init__(self, target="", graph=None, config=None):
        logging_config = module.config_pb2.ConfigProto()
        if config is not None:
            logging_config.CopyFrom(config)
        logging_config.log_device_placement = True
        original_init(self, target, graph, logging_config)

    module.BaseSession.__init__ = __init__


def _log_in_contexts(module):
    """Enable logging in each context (TensorFlow 2, and eager execution in 1)."""
    original_init = module.Context.__init__

    def __init__(self, *args, **options):
        original_init(self, *args, **options)
        if hasattr(self, "_log_device_placement"):
            self._log_device_placement = True

    module.Context.__init__ = __init__


_CHANGE_FUNCTIONS = {"tensorflow.python.client.session": _log_in_sessions, "tensorflow.python.eager.context": _log_in_contexts}


class _Finder(object):
    """A finder that comes first, and wraps the loaders of the modules in `_CHANGE_FUNCTIONS` only."""

    def __init__(self):
        self.handled_names = set()

    def find_spec(self, name, path=None, target=None):
        """Return the spec of a module to change (Python 3)."""
        if name not in _CHANGE_FUNCTIONS or name in self.handled_names:
            return None
        self.handled_names.add(name)  # `find_spec` calls this finder again, which must then ignore the name
        from importlib.util import find_spec

        spec = find_spec(name)
        loader = getattr(spec, "loader", None)
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        original_exec_module = loader.exec_module

        def exec_module(module):
            original_exec_module(module)
            _change_module(name, module)

        loader.exec_module = exec_module
        return spec

    def find_module(self, name, path=None):
        """Return this finder as the loader of a module to change (Python 2)."""
        if sys.version_info[0] > 2 or name not in _CHANGE_FUNCTIONS or name in self.handled_names:
            return None
        self.handled_names.add(name)
        return self

    def load_module(self, name):
        __import__(name)
        _change_module(name, sys.modules[name])
        return sys.modules[name]


def _change_module(name, module):
    """Enable logging in a module that was just loaded."""
    try:
        _CHANGE_FUNCTIONS[name](module)
    except Exception:  # the program must run; if nothing was logged, `tfdoctor run` reports it
        pass


def _import_next():
    """Import the sitecustomize that Python would have found without this one."""
    this_module = sys.modules.pop("sitecustomize", None)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _THIS_FOLDER]
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if this_module is not None:
            sys.modules["sitecustomize"] = this_module
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise


sys.meta_path.insert(0, _Finder())
_import_next()
