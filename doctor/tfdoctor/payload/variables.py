# Which environment variables the target Python has once its own start (sitecustomize, .pth files) is over, which
# folders that start has put on its path, and which lines of which files name them. Standard library only, writes no
# file. Runs on Python 2.7 and 3.5 to 3.14.
# The variable TFDOCTOR_GIVEN has, as JSON, those that were handed over: a script that starts Python may change them.
# Arguments: the interpreter as it was started, then names of variables; one that ends with * stands for a prefix.
# Answers with one JSON line after the marker. Of files it gives away nothing but lines with one of those names.
from __future__ import print_function

import sys

# The script's own folder is on sys.path first, unless Python was told to leave it out: it is no part of the answer.
_SAFE = getattr(sys.flags, "safe_path", 0) or getattr(sys.flags, "isolated", 0)
_HERE = "" if _SAFE or not sys.path else sys.path.pop(0)
_BEFORE = dict(sys.modules)

import glob
import json
import os
import re

try:
    import site
except Exception:  # python -S, and one that is stripped
    site = None

MARKER = "tfdoctor-payload:"
LIMIT = 1 << 20
MOST = 200
"""Lines that are answered, and files that are read."""
WIDE = 500


def text(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def read(path):
    try:
        with open(path, "rb") as stream:
            return text(stream.read(LIMIT))
    except (IOError, OSError, ValueError):
        return ""


def get_start_variables():
    """Return the variables as the system gave them to this process; None if it does not say."""
    try:
        with open("/proc/self/environ", "rb") as stream:
            raw = stream.read(1 << 22)
    except (IOError, OSError):
        return None
    found = {}
    for entry in raw.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name:
            found.setdefault(text(name), text(value))
    return found or None


def is_same(left, right):
    # A name that is no UTF-8 reads differently in both; that is no change.
    return left == right or (left is not None and right is not None and "\ufffd" in left)


def startup_files():
    """Return what Python's own start ran that is not its standard library: sitecustomize first, then .pth files, then
    what these have imported.
    """
    first, last = [], []
    library = os.path.dirname(os.path.realpath(os.__file__))
    for name, module in sorted(_BEFORE.items()):
        path = getattr(module, "__file__", None)
        if not path or name == "__main__":
            continue
        if path.endswith((".pyc", ".pyo")):
            path = path[:-1]
        folder = os.path.dirname(os.path.realpath(path))
        inside = folder == library or folder.startswith(library + os.sep)
        custom = name in ("sitecustomize", "usercustomize")
        if custom:
            first.append(path)
        elif path.endswith(".py") and (not inside or "-packages" in folder[len(library) :]):
            last.append(path)
    for folder in sys.path:
        if os.path.basename(folder) in ("site-packages", "dist-packages"):
            first += sorted(glob.glob(os.path.join(glob_escape(folder), "*.pth")))
    return (first + last)[:MOST]


def glob_escape(folder):
    return re.sub(r"([*?[])", r"[\1]", folder)


def activation_files(before):
    """Return the scripts that activating this environment runs, where it is activated, and what those read."""
    prefix = sys.prefix
    conda = os.path.isdir(os.path.join(prefix, "conda-meta"))
    active = before.get("CONDA_PREFIX" if conda else "VIRTUAL_ENV")
    if not active or os.path.realpath(active) != os.path.realpath(prefix):
        return []
    if conda:
        found = sorted(glob.glob(os.path.join(glob_escape(prefix), "etc", "conda", "activate.d", "*.sh")))
        found.append(os.path.join(prefix, "conda-meta", "state"))
    else:
        found = [os.path.join(prefix, "bin", "activate")]
    more = []
    for path in found:
        for match in re.finditer(r"(?m)^\s*(?:\.|source)\s+(['\"]?)(/[^\s'\"$`;&|]+)\1", read(path)):
            more.append(match.group(2))
    return (found + more)[:MOST]


def lines(path, kind, wanted):
    found = []
    content = read(path)
    if not any(name in content for name in wanted):
        return found
    for number, line in enumerate(content.split("\n"), 1):
        if line.lstrip().startswith("#"):
            continue
        if kind == "start" and path.endswith(".pth") and not line.startswith(("import ", "import\t")):
            continue
        for name in wanted:
            if re.search(r"(?<![A-Za-z0-9_])%s(?![A-Za-z0-9_])" % re.escape(name), line):
                found.append({"name": name, "path": path, "line": number, "text": line[:WIDE], "kind": kind})
    return found


def list_added_folders(before):
    """Return folders on Python's path that are neither its own nor the environment's, nor on PYTHONPATH."""
    library = os.path.dirname(os.path.realpath(os.__file__))
    given = [os.path.abspath(entry) for entry in before.get("PYTHONPATH", "").split(os.pathsep) if entry]
    homes = tuple(
        os.path.join(one, "")
        for one in (sys.prefix, getattr(sys, "base_prefix", sys.prefix), getattr(site, "USER_BASE", None))
        if one
    )
    found = []
    for folder in sys.path:
        own = os.path.basename(folder) in ("site-packages", "dist-packages") and folder.startswith(homes)
        inside = os.path.join(os.path.realpath(folder), "").startswith(os.path.join(library, ""))
        new = text(folder) not in found and os.path.abspath(folder) not in given
        if new and os.path.isdir(folder) and not own and not inside:
            found.append(text(folder))
    return found


def folder_lines(path, folders):
    """Return the lines that put a folder on the path: a line of a .pth file that is one, or that runs, as any other
    does.
    """
    found = []
    for number, line in enumerate(read(path).split("\n"), 1):
        if "#" in line[:1] or not line.strip() or len(line) > WIDE:
            continue
        runs = not path.endswith(".pth") or line.startswith(("import ", "import\t"))
        whole = os.path.normpath(os.path.join(os.path.dirname(path), line.rstrip()))
        for folder in folders:
            named = re.search(r"%s/?(?![^'\"])" % re.escape(folder.rstrip("/")), line) if runs else whole == folder
            if named:
                found.append(
                    {"name": "sys.path", "entry": folder, "path": path, "line": number, "text": line, "kind": "start"}
                )
    return found


def main():
    interpreter, asked = (sys.argv[1:] or [""])[0], sys.argv[2:]
    names = set(name for name in asked if not name.endswith("*"))
    prefixes = tuple(name[:-1] for name in asked if name.endswith("*"))

    def matters(name):
        return name in names or (bool(prefixes) and name.startswith(prefixes))

    now = dict((text(name), text(value)) for name, value in os.environ.items())
    before = get_start_variables()
    base = now if before is None else before
    changed = [name for name in sorted(set(now) | set(base)) if not is_same(base.get(name), now.get(name))]
    places = []
    moved = [name for name in changed if matters(name)]
    if moved:
        for path in startup_files():
            places += lines(path, "start", moved)
    folders = list_added_folders(base)
    if folders:
        for path in startup_files():
            places += folder_lines(path, folders)
    given = sorted(name for name in base if matters(name))
    if given:
        for path in activation_files(base):
            places += lines(path, "activation", given)
        if read(interpreter)[:2] == "#!":
            places += lines(interpreter, "wrapper", given)
        places += lines("/etc/environment", "machine", given)
    try:
        handed = json.loads(os.environ.get("TFDOCTOR_GIVEN", ""))
    except ValueError:
        handed = base
    answer = {
        "started": None if before is None else dict((n, v) for n, v in before.items() if matters(n)),
        "given": dict((n, v) for n, v in handed.items() if matters(n)),
        "now": dict((n, v) for n, v in now.items() if matters(n)),
        # of all others nothing but the names that the start has set: a misspelt one may be among them
        "added": [name for name in changed if name in now and not matters(name)][:MOST],
        "folders": folders[:MOST],
        "places": places[:MOST],
    }
    print(MARKER + json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
