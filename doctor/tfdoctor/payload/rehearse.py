# Tests the part of TensorFlow's import that concerns other packages. It imports the modules of these packages
# that TensorFlow imports, and no module of TensorFlow itself or of the working directory. It prints a line before
# and after each module, so that a crash can be attributed to a module. It writes no file. Runs on Python 2.7 and
# 3.5 to 3.14.
from __future__ import print_function

import sys

MODULES_AT_START = set(sys.modules)

# The script's own folder, which contains rehearse_keras, comes first unless Python runs in safe mode.
_IS_SAFE_PATH = getattr(sys.flags, "safe_path", 0) or getattr(sys.flags, "isolated", 0)
if _IS_SAFE_PATH:
    sys.path.insert(0, __file__.rpartition("/")[0])

from rehearse_keras import install_stand_in

sys.path.pop(0)

import json
import os
import traceback

# Forget modules that a program would not have imported yet, so that the rehearsal imports them again.
for loaded_name in set(sys.modules) - MODULES_AT_START:
    del sys.modules[loaded_name]

MARKER = "tfdoctor-payload:"
OUTPUT = sys.stdout
MAX_FRAMES = 40
# Beginning of Python 2's message about a module that it cannot find.
NOT_FOUND_PREFIX = "No module named "


def print_facts(**facts):
    OUTPUT.write("\n" + MARKER + json.dumps(facts) + "\n")
    OUTPUT.flush()


def list_traceback_files():
    """Return the files in the traceback of the current error, the innermost last.

    This script and Python's import system are omitted.
    """
    paths = []
    for path, _, _, _ in traceback.extract_tb(sys.exc_info()[2])[-MAX_FRAMES:]:
        if not path.startswith("<") and path != __file__ and not path.endswith("importlib/__init__.py"):
            if not paths or paths[-1] != path:
                paths.append(path)
    return paths


def find_root_error(error):
    """Return the innermost ImportError of a chain, because packages hide the loader's error in their own."""
    for _ in range(MAX_FRAMES):
        cause = getattr(error, "__cause__", None) or getattr(error, "__context__", None)
        if not isinstance(cause, ImportError):
            break
        error = cause
    return error


def find_missing_module(error):
    """Return the name of the module that was not found; None for other errors."""
    if type(error).__name__ == "ModuleNotFoundError":
        return error.name
    message = str(error)
    if sys.version_info[0] == 2 and type(error) is ImportError and message.startswith(NOT_FOUND_PREFIX):
        name = message[len(NOT_FOUND_PREFIX) :]  # Python 2 has it only in the message
        innermost = sys.exc_info()[2]
        while innermost.tb_next is not None:
            innermost = innermost.tb_next
        # For "a.b" the message names only "b" if "a" exists. Ignore it then, because "b" alone is misleading.
        if innermost.tb_frame.f_code is import_by_name.__code__:
            requested_modules = [innermost.tb_frame.f_locals["name"]]
        else:
            _, _, _, source_line = traceback.extract_tb(innermost)[-1]
            requested_modules = (source_line or "").replace(",", " ").split()
        if any((module + ".").startswith(name + ".") for module in requested_modules):
            return name
    return None


def describe_error(error):
    """Return the facts about the current error."""
    return {
        "type": type(error).__name__,
        "error": str(error)[:600],
        "root": str(find_root_error(error))[:600],
        "import_error": isinstance(error, ImportError),
        "attribute_error": isinstance(error, AttributeError),
        "not_found": find_missing_module(error),
        "frames": list_traceback_files(),
    }


def import_by_name(name):
    """Import a module and return it."""
    __import__(name)
    return sys.modules[name]


def access_attribute(name, chain):
    """Access a chain of attributes of a module, such as "a.b". Import a submodule if necessary."""
    value = sys.modules[name]
    first, _, others = chain.partition(".")
    if not hasattr(value, first):
        try:
            import_by_name(name + "." + first)
        except ImportError as error:
            missing_name = getattr(error, "name", None)
            if missing_name is not None and missing_name != name + "." + first:
                raise  # the submodule exists, but one of its own imports failed
    value = getattr(value, first)
    for part in others.split(".") if others else ():
        value = getattr(value, part)


def get_module_path(name):
    """Return the file of a loaded module, or the folder of a namespace package; None if it is not loaded."""
    module = sys.modules.get(name)
    path = getattr(module, "__file__", None)
    if not path:
        path = next(iter(getattr(module, "__path__", ())), None)
    return path


def rehearse(name, chains):
    """Import a module and access its attributes. Return the facts about the error, or {}."""
    try:
        import_by_name(name)
        for chain in chains:
            access_attribute(name, chain)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return describe_error(error)
    return {}


def run_source(path):
    """Execute a generated protobuf source. Return the facts about the error; {} if protobuf accepts it."""
    try:
        with open(path, "rb") as stream:
            code = compile(stream.read(), path, "exec", 0, True)
        exec(code, {"__name__": "tfdoctor_rehearsal", "__file__": path})
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return describe_error(error)
    return {}


def rehearse_and_report(key, name, chains):
    """Import a module, access its attributes, and print the result under `key`."""
    print_facts(at=name)
    facts = rehearse(name, chains)
    facts.update(name=name, file=get_module_path(name), top=get_module_path(name.split(".")[0]))
    print_facts(**{key: facts})


def main():
    plan = json.loads(sys.argv[1])
    for number, (name, chains) in enumerate(plan["modules"]):
        rehearse_and_report("module:%d" % number, name, chains)
    for path in filter(os.path.isfile, plan["sources"]):
        print_facts(at=path)
        facts = run_source(path)
        print_facts(**{"source": dict(facts, name=path)})
        if facts:
            break
    keras, version = plan.get("keras") or ((), "")
    if keras and sys.version_info >= (3, 7):
        install_stand_in(version)
        for number, name in enumerate(keras):
            rehearse_and_report("keras:%d" % number, name, ())
    print_facts(done=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
