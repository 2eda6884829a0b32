# Imports what TensorFlow imports of other packages, and nothing of TensorFlow's own: does that much of its import work?
# Nothing is imported from the working folder. A line before and after each module, so that a crash names the one that
# it happened in. Writes no file. Runs on Python 2.7 and 3.5 to 3.14.
from __future__ import print_function

import sys

AT_START = set(sys.modules)

# The script's own folder, with its part, is on sys.path first, unless Python was told to leave it out.
_SAFE = getattr(sys.flags, "safe_path", 0) or getattr(sys.flags, "isolated", 0)
if _SAFE:
    sys.path.insert(0, __file__.rpartition("/")[0])

from rehearse_keras import stand_in

sys.path.pop(0)

import json
import os
import traceback

# A program has imported none of these yet: what the rehearsal takes of them is looked for anew, as there.
for loaded in set(sys.modules) - AT_START:
    del sys.modules[loaded]

MARKER = "tfdoctor-payload:"
OUT = sys.stdout
MOST_FRAMES = 40
# How Python 2 begins what it says of a module that it does not find.
NOT_THERE = "No module named "


def say(**facts):
    OUT.write("\n" + MARKER + json.dumps(facts) + "\n")
    OUT.flush()


def frames():
    """Return the files that the error came through, the place of the error last.

    Python's own import machinery left out.
    """
    found = []
    for entry in traceback.extract_tb(sys.exc_info()[2])[-MOST_FRAMES:]:
        if (
            not entry[0].startswith("<")
            and entry[0] != __file__
            and not entry[0].endswith("importlib/__init__.py")
        ):
            if not found or found[-1] != entry[0]:
                found.append(entry[0])
    return found


def root(error):
    """Return the error that this one came of, and that one of another: packages tell theirs in the place of the
    loader's.
    """
    for _ in range(MOST_FRAMES):
        first = getattr(error, "__cause__", None) or getattr(error, "__context__", None)
        if not isinstance(first, ImportError):
            break
        error = first
    return error


def find_missing_module(error):
    """Return the module that is not there; Python 2 says its name in the text alone."""
    if type(error).__name__ == "ModuleNotFoundError":
        return error.name
    said = str(error)
    if sys.version_info[0] == 2 and type(error) is ImportError and said.startswith(NOT_THERE):
        name = said[len(NOT_THERE) :]
        at = sys.exc_info()[2]
        while at.tb_next is not None:
            at = at.tb_next
        # Of "a.b" it says "b" where there is an "a": only what was asked for from its beginning is a module's name.
        if at.tb_frame.f_code is load.__code__:
            words = [at.tb_frame.f_locals["name"]]
        else:
            words = (traceback.extract_tb(at)[-1][3] or "").replace(",", " ").split()
        if any((word + ".").startswith(name + ".") for word in words):
            return name
    return None


def failure(error):
    return {
        "type": type(error).__name__,
        "error": str(error)[:600],
        "root": str(root(error))[:600],
        "import_error": isinstance(error, ImportError),
        "attribute_error": isinstance(error, AttributeError),
        "not_found": find_missing_module(error),
        "frames": frames(),
    }


def load(name):
    __import__(name)
    return sys.modules[name]


def take(name, chain):
    """An attribute of a module, as `from name import first` takes it: a submodule will do."""
    at = sys.modules[name]
    first, _, rest = chain.partition(".")
    if not hasattr(at, first):
        try:
            load(name + "." + first)
        except ImportError as error:
            inner = getattr(error, "name", None)
            if inner is not None and inner != name + "." + first:
                raise
    at = getattr(at, first)
    for part in rest.split(".") if rest else ():
        at = getattr(at, part)


def place(name):
    module = sys.modules.get(name)
    path = getattr(module, "__file__", None)
    if not path:
        path = next(iter(getattr(module, "__path__", ())), None)
    return path


def rehearse(name, chains):
    try:
        load(name)
        for chain in chains:
            take(name, chain)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return failure(error)
    return {}


def run_source(path):
    """Execute one of TensorFlow's own generated sources: does this protobuf take it?"""
    try:
        with open(path, "rb") as stream:
            code = compile(stream.read(), path, "exec", 0, True)
        exec(code, {"__name__": "tfdoctor_rehearsal", "__file__": path})
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return failure(error)
    return {}


def tell(key, name, chains):
    """Import one module, and say what came of it."""
    say(at=name)
    answer = rehearse(name, chains)
    answer.update(name=name, file=place(name), top=place(name.split(".")[0]))
    say(**{key: answer})


def main():
    wanted = json.loads(sys.argv[1])
    for number, (name, chains) in enumerate(wanted["modules"]):
        tell("module:%d" % number, name, chains)
    for path in filter(os.path.isfile, wanted["sources"]):
        say(at=path)
        answer = run_source(path)
        say(**{"source": dict(answer, name=path)})
        if answer:
            break
    keras, version = wanted.get("keras") or ((), "")
    if keras and sys.version_info >= (3, 7):
        stand_in(version)
        for number, name in enumerate(keras):
            tell("keras:%d" % number, name, ())
    say(done=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
