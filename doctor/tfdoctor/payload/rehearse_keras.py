# Part of rehearse.py: something in the place of TensorFlow, so that Keras can be imported without it.
#
# Keras imports TensorFlow, and a rehearsal must not. What Keras takes of TensorFlow while it is imported is names, classes
# to derive from, decorators and calls whose results nobody looks at: whatever it asks for is an Anything here.
import os
import re
import sys
import types

DECORATED = (types.FunctionType, type, property, staticmethod, classmethod)
SPECIAL = ("__internal__", "__operators__")  # TensorFlow's own names that look like Python's
NOWHERE = os.path.join(os.devnull, "keras")


class Anything(object):
    """Any name of TensorFlow's: has every attribute, can be called, derived from and compared, and is a class to those who ask."""

    __bases__ = ()
    __class__ = property(lambda self: type)

    def __getattr__(self, name):
        if name.startswith("__") and name not in SPECIAL:
            raise AttributeError(name)
        if name == "unwrap":  # tf.__internal__.decorator.unwrap: (decorators, what they decorate)
            return lambda one: ([], one)
        made = Wrapper if name == "TFModuleWrapper" else Anything()
        self.__dict__[name] = made
        return made

    def __call__(self, *args, **options):
        last = args[-1] if args else None
        return last if isinstance(last, DECORATED) and type(last) is not Anything else self

    def __mro_entries__(self, bases):
        classes = [base for base in bases if type(base) is not Anything]
        stands = [base for base in bases if type(base) is Anything]
        return () if self is not stands[-1] or any(issubclass(one, StandInBase) for one in classes) else (StandInBase,)

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

    def __itself(self, *others):
        return self

    def __setitem__(self, key, value):
        pass

    def __exit__(self, *error):
        return False

    def __less(self, other):
        return False

    __getitem__ = __enter__ = __neg__ = __itself
    __or__ = __ror__ = __and__ = __rand__ = __add__ = __radd__ = __mul__ = __rmul__ = __itself
    __sub__ = __rsub__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __itself
    __lt__ = __gt__ = __le__ = __ge__ = __less


class Wrapper(object):
    """TensorFlow's wrapper of a module: Keras puts what it returns in the place of the module."""

    def __new__(cls, module, *args, **options):
        return module


class StandInBase(object):
    """What is derived from a class of TensorFlow's is derived from this."""

    def __init__(self, *args, **options):
        pass

    def __init_subclass__(cls, **options):
        pass

    def __getattr__(self, name):
        return Anything.__getattr__(self, name)


OPEN = ("import *", "globals()", "setattr(", "__getattr__", "exec(", "__dict__")  # then more is there than the text names


class Module(types.ModuleType):
    """A module of TensorFlow's. It has every name, but for what the installed file is sure not to have."""

    def __getattr__(self, name):
        if name == "keras":
            raise AttributeError(name)
        if self.__name__.endswith(".data_structures") and not name.startswith("__"):
            return type(name, (StandInBase,), {})  # optree takes nothing but true classes, and looks at them from C++
        if not name.startswith("__") and lacks(self.__dict__.get("__real__"), name):
            raise AttributeError("module %r has no attribute %r" % (self.__name__, name))
        return Anything.__getattr__(self, name)


def lacks(real, name):
    """Return whether the module with this file or folder (None: not known) has no such name."""
    if real is None or exists(real, name):
        return False
    path = os.path.join(real, "__init__.py") if os.path.isdir(real) else real
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except (OSError, ValueError):
        return False
    if any(words in text for words in OPEN):
        return False
    return re.search(r"\b%s\b" % re.escape(name), text) is None


def exists(folder, name):
    """Return the module of this name in a folder of TensorFlow's: its folder or file, or None."""
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    found = [one for one in names if one.partition(".")[0] == name]
    found.sort(key=lambda one: (one != name, one != name + ".py"))
    return os.path.join(folder, found[0]) if found else None


class Finder(object):
    """Finds every module of TensorFlow, but for what is sure not to be installed."""

    def __init__(self, version, folder):
        self.version, self.folder = version, folder

    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        if parts[0] != "tensorflow":
            return None
        from importlib.machinery import ModuleSpec

        spec = ModuleSpec(name, self, is_package=True)
        spec.loader_state = self.real(parts[1:])
        if len(parts) > 1 and spec.loader_state is None:
            if lacks(self.real(parts[1:-1]), parts[-1]):
                return None
        return spec

    def real(self, parts):
        """Return the file or folder of one of TensorFlow's modules; None if it is not known."""
        if self.folder is None or not parts:
            return None  # what lies in the package itself is put together while it is imported
        for place in (os.path.join(self.folder, "_api", "v2"), self.folder):
            for part in parts:
                place = place and exists(place, part)
            if place:
                return place
        return None

    def create_module(self, spec):
        return Module(spec.name)

    def exec_module(self, module):
        module.__path__ = []
        module.__version__ = self.version
        module.__real__ = module.__spec__.loader_state


def find_installed():
    """Return TensorFlow's folder, or None; nothing is imported."""
    from importlib.machinery import PathFinder

    try:
        spec = PathFinder.find_spec("tensorflow")
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return places[0] if places else None


def stand_in(version):
    """From now on `import tensorflow` gives the stand-in. Keras is kept from making its settings file, where there is none."""
    sys.meta_path.insert(0, Finder(version, find_installed()))
    home = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    if not os.path.isfile(os.path.join(home, "keras.json")):
        os.environ["KERAS_HOME"] = NOWHERE
