# Part of target.py: which distributions are installed, and which of their files are not as their RECORD says.
import errno
import os
import re

from target_files import CLOSED, is_broken, cut, foreign, hash_file, names, read, size_of

RELEVANT = re.compile(
    r"^(~|tensorflow|tf[-_]nightly|tf[-_]|intel[-_]tensorflow|nvidia|numpy$|protobuf$|keras|torch$|jax|h5py$|ml[-_]dtypes$"
    r"|typing[-_]extensions$|tensorrt|wrapt$|absl[-_]py$|gast$|grpcio$|tensorboard$|cupy|six$|google[-_]pasta$"
    r"|flatbuffers$|opt[-_]einsum$|astunparse$|setuptools$|scipy$|pandas$|rocm|jetson)",
    re.IGNORECASE,
)
OWN = re.compile(r"^(tensorflow|tensorflow[-_](gpu|cpu|rocm|macos|intel|aarch64|directml)|tf[-_]nightly([-_](gpu|cpu))?|intel[-_]tensorflow)$", re.IGNORECASE)
WATCHED = frozenset(
    (
        "h5py pandas scipy pillow jax jaxlib scikit-learn matplotlib psutil huggingface-hub pydot dill tblib objgraph ipython"
        " opencv-python opencv-python-headless tf-keras tensorboard tensorflow-estimator keras pyarrow numexpr bottleneck"
    ).split()
)
"""What TensorFlow, Keras or one of these import where it is there, without requiring it."""
BRINGS = re.compile(r"^(nvidia|tensorflow|tf[-_]nightly|intel[-_]tensorflow|cuda|cudnn)", re.IGNORECASE)
MODULE = re.compile(r"\.(?:py|pyd|so(?:\.[\w.]{1,60})?)\Z")
LISTED = re.compile(r"(?:\.so(?:\.[\w.]{1,60})?|/bin/ptxas|/libdevice\.10\.bc)\Z")
TESTS = re.compile(r"(^|/)tests?/")
MODULE_WORDS = (".py,", ".so") + ((".pyd,",) if os.name == "nt" else ())
TOOL_WORDS = ("/ptxas,", "/libdevice.10.bc,")
RECORD_LIMIT, LONGEST = 8 << 20, 1000
MOST_LINES, MOST_FILES, MOST_MODULES = 20000, 400, 8000
MOST = 20
HASHED = [64 << 20]  # bytes that may still be read to compare them with their hash: a tenth of a second
COMPANIONS = (
    "numpy google.protobuf absl wrapt six gast flatbuffers opt_einsum ml_dtypes keras tensorflow_estimator tf_keras"
).split()


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def metadata(folder):
    """Name, version, installer and requirements of a dist-info or egg-info."""
    text = read(os.path.join(folder, "METADATA")) or read(os.path.join(folder, "PKG-INFO"))
    if text is None and os.path.isfile(folder):
        text = read(folder)
    result = {"requires": []}
    for line in (text or "").splitlines():
        if not line:
            break  # the end of the headers
        if line[0].isspace():
            continue  # the rest of a long one: a whole licence, with lines of blanks
        key, _, value = line.partition(":")
        key = key.strip().lower()
        if key in ("name", "version") and key not in result:
            result[key] = value.strip()
        elif key == "requires-dist":
            result["requires"].append(value.strip())
    installer = read(os.path.join(folder, "INSTALLER"), 100)
    result["installer"] = installer.strip() if installer else None
    return result


def list_recorded(info, words):
    """Return (path below site-packages, size, hash) of what a wheel's RECORD lists and has one of the words in its
    line.

    TensorFlow's has 20,000 lines: those that matter are found by searching, as no other line is taken apart.
    """
    path = os.path.join(info, "RECORD")
    if (size_of(path) or -1) < 0:
        return []  # not there, or no file: a FIFO would never end
    try:
        with open(path, "rb") as stream:
            content = stream.read(RECORD_LIMIT)
    except (IOError, OSError):
        return []
    text, lines, files = content.decode("utf-8", "replace"), set(), []
    for word in words:
        at = text.find(word)
        while at >= 0 and len(files) < MOST_LINES:
            first, last = max(0, at - LONGEST), at + LONGEST
            start, end = text.rfind("\n", first, at) + 1, text.find("\n", at, last)
            whole = (start or not first) and (end >= 0 or last >= len(text))  # no path is longer
            end = end if end >= 0 else last
            if whole and start not in lines:
                lines.add(start)
                fields = text[start:end].rstrip("\r").rsplit(",", 2)
                if len(fields) == 3 and not fields[0].startswith(("/", "..", '"')):
                    files.append((start, fields[0], int(fields[2]) if fields[2].isdigit() else None, fields[1]))
            at = text.find(word, end)
    return [row[1:] for row in sorted(files)]


def compare(folder, files):
    """Of a wheel's files: those that are not there, and those of another size with what is known of them."""
    lost, changed = [], []
    for name, wanted, _ in files:
        path = os.path.join(folder, name)
        size = size_of(path)
        if size is None:
            lost.append(name)
        elif not os.access(path, os.R_OK):
            if path not in CLOSED:
                CLOSED.append(path)
        elif wanted is not None and size != wanted:
            one = {"path": name, "recorded": wanted, "size": size, "cut": size >= 0 and cut(path, size)}
            changed.append(dict(one, foreign=".so" in name and size >= 0 and foreign(path)))
    return lost[:50], changed[:50]


def find_shared(claims):
    """Return files that two distributions own, and whose are there now: by size, hash, or which was installed last."""
    result = []
    for (folder, name), owners in sorted(claims.items()):
        if len(owners) < 2:
            continue
        path = os.path.join(folder, name)
        size = size_of(path)
        fitting = [one for one in owners if one["size"] is None or one["size"] == size]
        if len(fitting) > 1 and size is not None and 0 <= size <= 4 << 20:
            digest = hash_file(path)
            fitting = [one for one in fitting if one["hash"] in ("", digest)] or fitting
        if len(fitting) > 1:
            fitting.sort(key=lambda one: -one["installed"])
            if fitting[0]["installed"] - fitting[1]["installed"] < 60:
                fitting = []
        result.append(
            {
                "path": name,
                "location": folder,
                "owners": [[one["name"], one["version"]] for one in owners],
                "now": [fitting[0]["name"], fitting[0]["version"]] if fitting and size is not None else None,
            }
        )
    return result[:200]


def get_install_time(info):
    try:
        return os.stat(os.path.join(info, "RECORD")).st_mtime
    except OSError:
        return 0.0


def differences(folder, files, installed, own):
    """Modules that are not as their RECORD says: (path, "missing", "empty", "cut", "changed", "altered", "unreadable", "syntax")."""
    found = []
    before = os.path.join(folder, "")
    for name, size, digest in files[:MOST_MODULES]:
        if "test" in name and TESTS.search(name) or not (name.endswith(".py") or MODULE.search(name)):
            continue
        path = before + name
        what = None
        try:
            status = os.stat(path)
            if not status.st_mode & 4 and not os.access(path, os.R_OK):
                what = "unreadable"
            elif size is not None and status.st_size != size:
                what = "empty" if not status.st_size else "cut" if status.st_size < size else "changed"
                if what in ("cut", "changed") and not path.endswith(".py"):
                    # Stripped of its symbols, it is shorter, too.
                    what = "altered" if foreign(path) else "cut" if cut(path, status.st_size) else "changed"
                elif own and path.endswith(".py") and what != "empty":
                    what = "syntax" if is_broken(path) else what
            elif status.st_mtime > installed + 2 and digest.startswith("sha256=") and status.st_size <= HASHED[0]:
                # Written after it was installed: as long as before, and maybe another.
                HASHED[0] -= status.st_size
                what = None if hash_file(path, status.st_size) == digest else "altered"
        except (IOError, OSError) as error:
            what = "unreadable" if error.errno == errno.EACCES else "missing"
        if what:
            found.append([name, what])
            if len(found) == MOST:
                break
    return found


def list_registered(path):
    """Return (normal name, name as its folder has it, folder, whole path) of every distribution, in the path's order.
    """
    found, seen = [], set()
    for folder in path:
        for entry in names(folder):
            base, dot, kind = entry.rpartition(".")
            if kind not in ("dist-info", "egg-info") or not dot:
                continue
            whole = os.path.join(folder, entry)
            real = os.path.realpath(whole)
            if real not in seen:
                seen.add(real)
                found.append((normal(base.split("-")[0]), base, folder, whole))
    return found


def closure(every):
    """Return what TensorFlow requires, what that requires, and so on: normal name -> metadata of the first on the
    path.
    """
    first = {}
    for name, _, _, whole in every:
        first.setdefault(name, whole)
    todo = [name for name in first if OWN.match(name) or name in WATCHED]
    found = {}
    while todo:
        name = todo.pop()
        if name in found or name not in first:
            continue
        found[name] = metadata(first[name])
        for line in found[name]["requires"]:
            if "extra" not in line.partition(";")[2]:
                todo.append(normal(re.split(r"[^A-Za-z0-9._-]", line.strip(), maxsplit=1)[0]))
    return found


def distributions(path):
    """Return (the distributions that matter, the files that two of them own)."""
    every = list_registered(path)
    needed = closure(every)
    found, told, claims = [], set(), {}
    for name, base, folder, whole in every:
        spelt = base.split("-")[0]
        if name not in needed and not RELEVANT.match(spelt):
            continue
        first = name in needed and name not in told
        told.add(name)
        data = needed[name] if first else metadata(whole)
        brings = BRINGS.match(spelt)
        words = (MODULE_WORDS if first else (".so",)) + (TOOL_WORDS if brings else ())
        lines = list_recorded(whole, words) if first or brings else []
        version = data.get("version") or (base.split("-")[1] if "-" in base else "")
        found.append(
            {
                # "~ensorflow": what pip puts aside while it replaces something, and sometimes leaves
                "name": spelt if spelt[:1] == "~" else data.get("name") or spelt,
                "version": version,
                "location": folder,
                "real_location": os.path.realpath(folder),
                "installer": data["installer"],
                "requires": data["requires"] if name in needed else [],
                "pins": [] if OWN.match(spelt) else [one for one in data["requires"] if one.lower().startswith("nvidia")][:60],
                "differs": differences(folder, lines, get_install_time(whole), bool(OWN.match(name))) if first else [],
            }
        )
        if brings:
            # cuDNN opens its own parts when it is used: no loader's rules tell that one is not there
            files = [line for line in lines if LISTED.search(line[0])][:MOST_FILES]
            lost, changed = compare(folder, files)
            own_files = [one for one, _, _ in files] if spelt.lower().startswith("nvidia") else []
            found[-1].update({"lost": lost, "changed": changed, "files": own_files})
            for one, size, digest in files:
                claims.setdefault((folder, one), []).append(
                    {
                        "name": found[-1]["name"],
                        "version": version,
                        "size": size,
                        "hash": digest,
                        "installed": get_install_time(whole),
                    }
                )
    return found, find_shared(claims)


def absent(path, installed):
    """Return names that TensorFlow's own distributions require, without those of extras, and that nothing here has."""
    there = set()
    for folder in path:
        for entry in names(folder):
            base, _, kind = entry.rpartition(".")
            if kind in ("dist-info", "egg-info"):
                there.add(normal(base.split("-")[0]))
    wanted = set()
    for one in installed:
        for line in one["requires"] if OWN.match(one["name"]) else ():
            if "extra" not in line.partition(";")[2]:
                wanted.add(normal(re.split(r"[^A-Za-z0-9._-]", line.strip(), maxsplit=1)[0]))
    return sorted(wanted - there - {""})


def modules(path):
    """Return which of TensorFlow's companions are there as modules, whether or not a distribution is registered."""
    found = []
    for name in COMPANIONS:
        inside = name.replace(".", os.sep)
        for folder in path:
            base = os.path.join(folder, inside)
            if os.path.isdir(base) or os.path.isfile(base + ".py"):
                found.append(name)
                if os.path.isdir(base) and not os.access(base, os.R_OK | os.X_OK):
                    CLOSED.append(base)
                break
    return found


def conda_packages(prefix):
    result = []
    for entry in names(os.path.join(prefix, "conda-meta")):
        if entry.endswith(".json") and entry.count("-") >= 2:
            name, version, build = entry[:-5].rsplit("-", 2)
            if RELEVANT.match(name) or re.match(r"^(cuda|cudnn|libcu|libnv|nccl|_tflow|libgcc|libstdc)", name):
                result.append({"name": name, "version": version, "build": build})
    return result
