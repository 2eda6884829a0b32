# Part of rehearse.py: a stand-in for TensorFlow, so that Keras can be imported without TensorFlow.
#
# Keras imports TensorFlow, but a rehearsal must not. During its import, Keras uses TensorFlow's names only as
# base classes, decorators, and functions whose results do not matter. Here all names are instances of Anything.
import os
import re
import sys
import types

DECORATED_TYPES = (types.FunctionType, type, property, staticmethod, classmethod)
SPECIAL_TENSORFLOW_NAMES = ("__internal__", "__operators__")  # names of TensorFlow that look like Python's special names
# Code that defines names dynamically.
DYNAMIC_NAME_PHRASES = ("import *", "globals()", "setattr(", "__getattr__", "exec(", "__dict__")
UNUSABLE_FOLDER = os.path.join(os.devnull, "keras")


class Anything(object):
    """A stand-in for any TensorFlow name.

    It has every attribute, passes as a class, and can be called, subclassed and compared.
    """

    __bases__ = ()
    __class__ = property(lambda self: type)  # so that isinstance(stand_in, type) is true

    def __getattr__(self, name):
        if name.startswith("__") and name not in SPECIAL_TENSORFLOW_NAMES:
            raise AttributeError(name)
        if name == "unwrap":  # tf.__internal__.decorator.unwrap: (decorators, what they decorate)
            return lambda decorated: ([], decorated)
        value = ModuleWrapper if name == "TFModuleWrapper" else Anything()
        self.__dict__[name] = value
        return value

    def __call__(self, *args, **options):
        """Return the last argument if it can be a decorated object; otherwise this stand-in."""
        last = args[-1] if args else None
        return last if isinstance(last, DECORATED_TYPES) and type(last) is not Anything else self

    def __mro_entries__(self, bases):
        """Return StandInBase for the last stand-in in `bases`, unless another base inherits it; else ()."""
        real_bases = [base for base in bases if type(base) is not Anything]
        stand_ins = [base for base in bases if type(base) is Anything]
        if self is not stand_ins[-1] or any(issubclass(base, StandInBase) for base in real_bases):
            return ()
        return (StandInBase,)

    def __instancecheck__(self, other):
        return False

    __subclasscheck__ = __contains__ = __instancecheck__

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 0

    def __int__(self):
        return 0

    __index__ = __int__

    def __float__(self):
        return 0.0

    def __return_self(self, *others):
        return self

    def __setitem__(self, key, value):
        pass

    def __exit__(self, *error):
        return False

    def __return_false(self, other):
        return False

    __getitem__ = __enter__ = __neg__ = __return_self
    __or__ = __ror__ = __and__ = __rand__ = __add__ = __radd__ = __mul__ = __rmul__ = __return_self
    __sub__ = __rsub__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __return_self
    __lt__ = __gt__ = __le__ = __ge__ = __return_false


class ModuleWrapper(object):
    """A stand-in for TensorFlow's module wrapper, which Keras uses. It returns the wrapped module."""

    def __new__(cls, module, *args, **options):
        return module


class StandInBase(object):
    """The base class that replaces a TensorFlow class in the bases of another class."""

    def __init__(self, *args, **options):
        pass

    def __init_subclass__(cls, **options):
        pass

    def __getattr__(self, name):
        return Anything.__getattr__(self, name)


class StandInModule(types.ModuleType):
    """A stand-in for a TensorFlow module. It has every name that the installed module may define."""

    def __getattr__(self, name):
        if name == "keras":
            raise AttributeError(name)
        if self.__name__.endswith(".data_structures") and not name.startswith("__"):
            return type(name, (StandInBase,), {})  # optree accepts only real classes, and inspects them from C++
        if not name.startswith("__") and is_name_missing(self.__dict__.get("__real__"), name):
            raise AttributeError("module %r has no attribute %r" % (self.__name__, name))
        return Anything.__getattr__(self, name)


def is_name_missing(module_path, name):
    """Return whether a module certainly does not define a name.

    `module_path` is the installed file or folder of the module; None if it is unknown.
    """
    if module_path is None or find_module_path(module_path, name):
        return False
    path = os.path.join(module_path, "__init__.py") if os.path.isdir(module_path) else module_path
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            source = file.read()
    except (OSError, ValueError):
        return False
    if any(phrase in source for phrase in DYNAMIC_NAME_PHRASES):
        return False
    return re.search(r"\b%s\b" % re.escape(name), source) is None


def find_module_path(folder, name):
    """Return the file or folder of the module `name` in a folder; None if there is none."""
    try:
        entries = os.listdir(folder)
    except OSError:
        return None
    matches = [entry for entry in entries if entry.partition(".")[0] == name]
    matches.sort(key=lambda entry: (entry != name, entry != name + ".py"))
    return os.path.join(folder, matches[0]) if matches else None


class Finder(object):
    """An import finder and loader for stand-in modules, except for those that are certainly not installed."""

    def __init__(self, version, folder):
        self.version, self.folder = version, folder

    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        if parts[0] != "tensorflow":
            return None
        from importlib.machinery import ModuleSpec

        spec = ModuleSpec(name, self, is_package=True)
        spec.loader_state = self.find_installed_path(parts[1:])
        if len(parts) > 1 and spec.loader_state is None:
            if is_name_missing(self.find_installed_path(parts[1:-1]), parts[-1]):
                return None
        return spec

    def find_installed_path(self, parts):
        """Return the file or folder of the TensorFlow module with these name parts; None if it is unknown."""
        if self.folder is None or not parts:
            return None  # the names of `tensorflow` itself are assembled during its import
        for path in (os.path.join(self.folder, "_api", "v2"), self.folder):
            for part in parts:
                path = path and find_module_path(path, part)
            if path:
                return path
        return None

    def create_module(self, spec):
        return StandInModule(spec.name)

    def exec_module(self, module):
        module.__path__ = []
        module.__version__ = self.version
        module.__real__ = module.__spec__.loader_state


def find_tensorflow_folder():
    """Return TensorFlow's folder; None if it is not installed. TensorFlow is not imported."""
    from importlib.machinery import PathFinder

    try:
        spec = PathFinder.find_spec("tensorflow")
    except (ImportError, ValueError):
        return None
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    return folders[0] if folders else None


def install_stand_in(version):
    """Make `import tensorflow` use the stand-in, and prevent Keras from creating its settings file."""
    sys.meta_path.insert(0, Finder(version, find_tensorflow_folder()))
    home = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    if not os.path.isfile(os.path.join(home, "keras.json")):
        os.environ["KERAS_HOME"] = UNUSABLE_FOLDER
