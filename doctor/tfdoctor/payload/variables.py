# Lists the environment variables that the target Python has after its startup (sitecustomize, .pth files),
# the folders that the startup added to its path, and the lines of files that set these variables and folders.
# Standard library only; writes no file. Runs on Python 2.7 and 3.5 to 3.14. TFDOCTOR_GIVEN contains the variables
# that tfdoctor passed, as JSON, because a wrapper script may have changed them. Arguments: the interpreter as it
# was started, then names of variables; a name that ends with * is a prefix of variables with plain values. It prints one JSON line after the
# marker. Of each file it prints only lines that contain one of the names.
from __future__ import print_function

import sys

# Remove the script's own folder, which comes first unless Python runs in safe mode: it is not part of
# the target's path.
_IS_SAFE_PATH = getattr(sys.flags, "safe_path", 0) or getattr(sys.flags, "isolated", 0)
_SCRIPT_FOLDER = "" if _IS_SAFE_PATH or not sys.path else sys.path.pop(0)
_MODULES_AT_START = dict(sys.modules)

import glob
import json
import os
import re

try:
    import site
except Exception:  # python -S, or a stripped-down Python
    site = None

MARKER = "tfdoctor-payload:"
# A variable that is only known by its prefix can hold a secret (TF_TOKEN_x is Terraform's) unless its value is plain.
PLAIN_VALUE = re.compile(r"(?i)(?:[-+]?\d[\d.]{0,30}|true|false|yes|no|on|off|)\Z")
MAX_FILE_BYTES = 1 << 20
MAX_ITEMS = 200  # limit for the lines that are reported, and for the files that are read
MAX_LINE_CHARS = 500  # longer lines are cut, or ignored if they may name a folder


def decode(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def read(path):
    """Return the beginning of a file as text; "" if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return decode(stream.read(MAX_FILE_BYTES))
    except (IOError, OSError, ValueError):
        return ""


def get_start_variables():
    """Return the environment variables that this process was started with; None if they are unknown."""
    try:
        with open("/proc/self/environ", "rb") as stream:
            raw = stream.read(1 << 22)
    except (IOError, OSError):
        return None
    variables = {}
    for entry in raw.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name:
            variables.setdefault(decode(name), decode(value))
    return variables or None


def is_same_value(left, right):
    # Both sides decode a value that is not UTF-8 differently, so it always looks changed.
    return left == right or (left is not None and right is not None and "\ufffd" in left)


def list_startup_files():
    """Return the files that ran when Python started, except for its standard library.

    sitecustomize comes first, then .pth files, then the modules that they imported.
    """
    startup, imported = [], []
    library = os.path.dirname(os.path.realpath(os.__file__))
    for name, module in sorted(_MODULES_AT_START.items()):
        path = getattr(module, "__file__", None)
        if not path or name == "__main__":
            continue
        if path.endswith((".pyc", ".pyo")):
            path = path[:-1]
        folder = os.path.dirname(os.path.realpath(path))
        is_in_library = folder == library or folder.startswith(library + os.sep)
        is_custom = name in ("sitecustomize", "usercustomize")
        if is_custom:
            startup.append(path)
        elif path.endswith(".py") and (not is_in_library or "-packages" in folder[len(library) :]):
            imported.append(path)
    for folder in sys.path:
        if os.path.basename(folder) in ("site-packages", "dist-packages"):
            startup += sorted(glob.glob(os.path.join(escape_glob(folder), "*.pth")))
    return (startup + imported)[:MAX_ITEMS]


def escape_glob(folder):
    return re.sub(r"([*?[])", r"[\1]", folder)


def list_activation_files(start_variables):
    """Return the scripts that activated this environment and the files that they source, if it is active."""
    prefix = sys.prefix
    conda = os.path.isdir(os.path.join(prefix, "conda-meta"))
    active_prefix = start_variables.get("CONDA_PREFIX" if conda else "VIRTUAL_ENV")
    if not active_prefix or os.path.realpath(active_prefix) != os.path.realpath(prefix):
        return []
    if conda:
        scripts = sorted(glob.glob(os.path.join(escape_glob(prefix), "etc", "conda", "activate.d", "*.sh")))
        scripts.append(os.path.join(prefix, "conda-meta", "state"))
    else:
        scripts = [os.path.join(prefix, "bin", "activate")]
    sourced_files = []
    for path in scripts:
        for match in re.finditer(r"(?m)^\s*(?:\.|source)\s+(['\"]?)(/[^\s'\"$`;&|]+)\1", read(path)):
            sourced_files.append(match.group(2))
    return (scripts + sourced_files)[:MAX_ITEMS]


def list_profile_files():
    """Return (kind, file) of the files that shells read when they start: the machine's, then the user's."""
    machine = ["/etc/environment", "/etc/profile", "/etc/bash.bashrc"] + sorted(glob.glob("/etc/profile.d/*.sh"))
    home = os.environ.get("HOME", "")
    own = (".profile", ".bash_profile", ".bash_login", ".zshenv", ".zprofile", ".zshrc", ".bashrc", ".bash_aliases")
    files = [("machine", path) for path in machine]
    return files + ([("profile", os.path.join(home, name)) for name in own] if os.path.isabs(home) else [])


def find_lines(path, kind, names):
    """Return the lines of a file that contain one of the names. Comments are ignored.

    In a .pth file only the lines that Python executes count, which begin with "import".
    """
    matches = []
    content = read(path)
    if not any(name in content for name in names):
        return matches
    for number, line in enumerate(content.split("\n"), 1):
        if line.lstrip().startswith("#"):
            continue
        if kind == "start" and path.endswith(".pth") and not line.startswith(("import ", "import\t")):
            continue
        for name in names:
            if re.search(r"(?<![A-Za-z0-9_])%s(?![A-Za-z0-9_])" % re.escape(name), line):
                matches.append({"name": name, "path": path, "line": number, "text": line[:MAX_LINE_CHARS], "kind": kind})
    return matches


def list_added_folders(start_variables):
    """Return the folders on Python's path that come neither from its installation nor from PYTHONPATH."""
    library = os.path.dirname(os.path.realpath(os.__file__))
    python_path = [os.path.abspath(entry) for entry in start_variables.get("PYTHONPATH", "").split(os.pathsep) if entry]
    prefixes = tuple(
        os.path.join(prefix, "")
        for prefix in (sys.prefix, getattr(sys, "base_prefix", sys.prefix), getattr(site, "USER_BASE", None))
        if prefix
    )
    added_folders = []
    for folder in sys.path:
        is_site = os.path.basename(folder) in ("site-packages", "dist-packages") and folder.startswith(prefixes)
        is_in_library = os.path.join(os.path.realpath(folder), "").startswith(os.path.join(library, ""))
        is_new = decode(folder) not in added_folders and os.path.abspath(folder) not in python_path
        if is_new and os.path.isdir(folder) and not is_site and not is_in_library:
            added_folders.append(decode(folder))
    return added_folders


def find_folder_lines(path, folders):
    """Return the lines that may add a folder to the path: .pth entries, or code that names a folder."""
    matches = []
    for number, line in enumerate(read(path).split("\n"), 1):
        if "#" in line[:1] or not line.strip() or len(line) > MAX_LINE_CHARS:
            continue
        is_code = not path.endswith(".pth") or line.startswith(("import ", "import\t"))
        line_path = os.path.normpath(os.path.join(os.path.dirname(path), line.rstrip()))
        for folder in folders:
            is_match = re.search(r"%s/?(?![^'\"])" % re.escape(folder.rstrip("/")), line) if is_code else line_path == folder
            if is_match:
                matches.append(
                    {"name": "sys.path", "entry": folder, "path": path, "line": number, "text": line, "kind": "start"}
                )
    return matches


def main():
    interpreter, patterns = (sys.argv[1:] or [""])[0], sys.argv[2:]
    names = set(name for name in patterns if not name.endswith("*"))
    prefixes = tuple(name[:-1] for name in patterns if name.endswith("*"))

    def is_relevant(name, value):
        return name in names or (bool(prefixes) and name.startswith(prefixes) and PLAIN_VALUE.match(value or ""))

    def select_relevant(variables):
        return dict((name, value) for name, value in variables.items() if is_relevant(name, value))

    current_variables = dict((decode(name), decode(value)) for name, value in os.environ.items())
    start_variables = get_start_variables()
    initial_variables = current_variables if start_variables is None else start_variables
    changed_names = [
        name
        for name in sorted(set(current_variables) | set(initial_variables))
        if not is_same_value(initial_variables.get(name), current_variables.get(name))
    ]
    lines = []
    changed_relevant = [
        name for name in changed_names if is_relevant(name, current_variables.get(name, initial_variables.get(name)))
    ]
    if changed_relevant:
        for path in list_startup_files():
            lines += find_lines(path, "start", changed_relevant)
    folders = list_added_folders(initial_variables)
    if folders:
        for path in list_startup_files():
            lines += find_folder_lines(path, folders)
    relevant_names = sorted(select_relevant(initial_variables))
    if relevant_names:
        for path in list_activation_files(initial_variables):
            lines += find_lines(path, "activation", relevant_names)
        if read(interpreter)[:2] == "#!":
            lines += find_lines(interpreter, "wrapper", relevant_names)
        for kind, path in list_profile_files()[:MAX_ITEMS]:
            lines += find_lines(path, kind, relevant_names)
    try:
        passed_variables = json.loads(os.environ.get("TFDOCTOR_GIVEN", ""))
    except ValueError:
        passed_variables = initial_variables
    facts = {
        "started": None if start_variables is None else select_relevant(start_variables),
        "given": select_relevant(passed_variables),
        "now": select_relevant(current_variables),
        # Names of irrelevant variables that startup added, because a relevant one may be misspelt.
        "added": [
            name for name in changed_names if name in current_variables and not is_relevant(name, current_variables[name])
        ][:MAX_ITEMS],
        "folders": folders[:MAX_ITEMS],
        "places": lines[:MAX_ITEMS],
    }
    print(MARKER + json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
