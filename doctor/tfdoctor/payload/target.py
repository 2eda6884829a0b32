# What the target Python is and what is installed in it. Standard library only; imports nothing of TensorFlow,
# writes no file. Runs on Python 2.7 and 3.5 to 3.14. Answers with one JSON line after the marker.
from __future__ import print_function

import sys

# The script's own folder is on sys.path first: it must not shadow anything.
_HERE = sys.path.pop(0) if sys.path else ""

import errno  # noqa: E402
import gc  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import re  # noqa: E402
import stat  # noqa: E402
import struct  # noqa: E402

gc.disable()  # so short a life makes little garbage, and looking for it costs a tenth of it

MARKER = "tfdoctor-payload:"
RELEVANT = re.compile(
    r"^(~|tensorflow|tf[-_]nightly|tf[-_]|intel[-_]tensorflow|nvidia|numpy$|protobuf$|keras|torch$|jax|h5py$|ml[-_]dtypes$"
    r"|typing[-_]extensions$|tensorrt|wrapt$|absl[-_]py$|gast$|grpcio$|tensorboard$|cupy|six$|google[-_]pasta$"
    r"|flatbuffers$|opt[-_]einsum$|astunparse$|setuptools$|scipy$|pandas$|rocm|jetson)",
    re.IGNORECASE,
)
OWN = re.compile(r"^(tensorflow|tensorflow[-_](gpu|cpu|rocm|macos|intel|aarch64|directml)|tf[-_]nightly([-_](gpu|cpu))?|intel[-_]tensorflow)$", re.IGNORECASE)
LIMIT = 1 << 20
MOST = 20
TESTS = re.compile(r"(^|/)tests?/")
WATCHED = frozenset(
    (
        "h5py pandas scipy pillow jax jaxlib scikit-learn matplotlib psutil huggingface-hub pydot dill tblib objgraph ipython"
        " opencv-python opencv-python-headless tf-keras tensorboard tensorflow-estimator keras pyarrow numexpr bottleneck"
    ).split()
)
"""What TensorFlow, Keras or one of these import where it is there, without requiring it."""


CLOSED = []  # what is there and may not be read or listed


def refused(path, error):
    if error.errno == errno.EACCES and path not in CLOSED:
        CLOSED.append(path)


def read(path, limit=LIMIT):
    try:
        with open(path, "rb") as stream:
            return stream.read(limit).decode("utf-8", "replace")
    except (IOError, OSError) as error:
        refused(path, error)
        return None


FOLDERS = {}


def names(folder):
    if folder not in FOLDERS:
        try:
            FOLDERS[folder] = sorted(os.listdir(folder or "."))
        except OSError as error:
            refused(folder, error)
            FOLDERS[folder] = []
    return FOLDERS[folder]


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


BRINGS = re.compile(r"^(nvidia|tensorflow|tf[-_]nightly|intel[-_]tensorflow|cuda|cudnn)", re.IGNORECASE)
RECORD_LIMIT, LONGEST = 8 << 20, 1000
MODULE = re.compile(r"\.(?:py|pyd|so(?:\.[\w.]{1,60})?)\Z")
LISTED = re.compile(r"(?:\.so(?:\.[\w.]{1,60})?|/bin/ptxas|/libdevice\.10\.bc)\Z")
MODULE_WORDS = (".py,", ".so") + ((".pyd,",) if os.name == "nt" else ())
TOOL_WORDS = ("/ptxas,", "/libdevice.10.bc,")
MOST_LINES, MOST_FILES, MOST_MODULES = 20000, 400, 8000
HASHED = [64 << 20]  # bytes that may still be read to compare them with their hash: a tenth of a second


def recorded(info, words):
    """(path below site-packages, size, hash) of what a wheel's RECORD lists and has one of the words in its line.

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


def size_of(path):
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else -1


def cut(path, size):
    """Whether an ELF object ends before its own headers say; False for whatever is none."""
    try:
        with open(path, "rb") as stream:
            head = stream.read(64)
            if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
                return len(head) < 64  # what is no such object is not cut but something else
            phoff, shoff = struct.unpack("<QQ", head[32:48])
            phnum, shentsize, shnum = struct.unpack("<HHH", head[56:62])
            stream.seek(min(phoff, 1 << 42))
            table = stream.read(phnum * 56)
    except (IOError, OSError):
        return False
    ends = [shoff + shnum * shentsize if shoff else 0, phoff + phnum * 56]
    for at in range(0, len(table) - 55, 56):
        offset, length = struct.unpack("<8xQ16xQ", table[at : at + 40])
        ends.append(offset + length)
    return max(ends) > size


def foreign(path):
    """Whether a file that is to be an object of this kind of machine does not begin as one."""
    try:
        with open(path, "rb") as stream:
            head = stream.read(20)
    except (IOError, OSError):
        return False
    if head.startswith(b"\x7fELF\x02\x01"):
        kernel = os.uname()[4] if hasattr(os, "uname") else ""
        return head[18:20] != MACHINES.get(kernel, head[18:20])
    return not head.startswith((b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"))


# What an ELF object has for its machine (e_machine), by the names that the kernel has.
MACHINES = {"x86_64": b"\x3e\x00", "aarch64": b"\xb7\x00"}


def compare(folder, files):
    """Of a wheel's files: those that are not there, and those of another size with what is known of them."""
    lost, changed = [], []
    for name, wanted, _ in files:
        path = os.path.join(folder, name)
        size = size_of(path)
        if size is None:
            lost.append(name)
        elif not os.access(path, os.R_OK):
            CLOSED.append(path)
        elif wanted is not None and size != wanted:
            one = {"path": name, "recorded": wanted, "size": size, "cut": size >= 0 and cut(path, size)}
            changed.append(dict(one, foreign=".so" in name and size >= 0 and foreign(path)))
    return lost[:50], changed[:50]


def shared(claims):
    """Files that two distributions own, and whose are there now: by size, hash, or which was installed last."""
    result = []
    for (folder, name), owners in sorted(claims.items()):
        if len(owners) < 2:
            continue
        path = os.path.join(folder, name)
        size = size_of(path)
        fitting = [one for one in owners if one["size"] is None or one["size"] == size]
        if len(fitting) > 1 and size is not None and 0 <= size <= 4 << 20:
            digest = hashed(path)
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


def hashed(path, limit=(4 << 20) + 1):
    import base64  # seldom needed, and slow to import
    import hashlib

    try:
        with open(path, "rb") as stream:
            digest = hashlib.sha256(stream.read(limit)).digest()
    except (IOError, OSError):
        return None
    return "sha256=" + base64.urlsafe_b64encode(digest).decode("ascii").rstrip("=")


def installed_at(info):
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
                    what = "syntax" if broken(path) else what
            elif status.st_mtime > installed + 2 and digest.startswith("sha256=") and status.st_size <= HASHED[0]:
                # Written after it was installed: as long as before, and maybe another.
                HASHED[0] -= status.st_size
                what = None if hashed(path, status.st_size) == digest else "altered"
        except (IOError, OSError) as error:
            what = "unreadable" if error.errno == errno.EACCES else "missing"
        if what:
            found.append([name, what])
            if len(found) == MOST:
                break
    return found


def broken(path):
    """Whether a source is no Python."""
    try:
        with open(path, "rb") as stream:
            compile(stream.read(LIMIT), path, "exec", 0, True)
    except (SyntaxError, ValueError, TypeError):
        return True
    except (IOError, OSError):
        pass
    return False


def registered(path):
    """(normal name, name as its folder has it, folder, whole path) of every distribution, in the path's order."""
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
    """What TensorFlow requires, what that requires, and so on: normal name -> metadata of the first on the path."""
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
    """(the distributions that matter, the files that two of them own)."""
    every = registered(path)
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
        lines = recorded(whole, words) if first or brings else []
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
                "differs": differences(folder, lines, installed_at(whole), bool(OWN.match(name))) if first else [],
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
                        "installed": installed_at(whole),
                    }
                )
    return found, shared(claims)


def absent(path, installed):
    """Names that TensorFlow's own distributions require, without those of extras, and that nothing here has."""
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


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


COMPANIONS = (
    "numpy google.protobuf absl wrapt six gast flatbuffers opt_einsum ml_dtypes keras tensorflow_estimator tf_keras"
).split()


def modules(path):
    """Which of TensorFlow's companions are there as modules, whether or not a distribution is registered."""
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


def locate(path):
    """The tensorflow package as the import system would find it, without importing it."""
    path = [folder for folder in path if folder not in CLOSED]  # Python finds nothing in what it may not list
    for folder in path:
        if os.path.isfile(os.path.join(folder or ".", "tensorflow", "__init__.py")):
            return os.path.join(folder, "tensorflow")
        if os.path.isdir(os.path.join(folder or ".", "tensorflow")):
            read(os.path.join(folder, "tensorflow", "__init__.py"), 1)  # whether it may be looked at
    for folder in path:  # a half-deleted installation
        if os.path.isdir(os.path.join(folder or ".", "tensorflow", "python")):
            return os.path.join(folder, "tensorflow")
    try:  # editable installations and other finders; this imports no parent package
        from importlib.util import find_spec

        spec = find_spec("tensorflow")
        if spec is not None and spec.origin:
            return os.path.dirname(spec.origin)
    except Exception:
        pass
    return None


def compiled(source):
    try:
        from importlib.util import cache_from_source

        return cache_from_source(source)
    except (ImportError, NotImplementedError):
        return source + "c"


def tensorflow(path):
    package = locate(path)
    if package is None:
        return None
    beside = os.path.join(os.path.dirname(package), "tensorflow_core")
    core = beside if os.path.isdir(os.path.join(beside, "python")) else package
    names(package)
    source = os.path.join(package, "__init__.py")
    if not os.access(compiled(source), os.R_OK):  # Python reads that, where it is there
        read(source, 1)
    result = {"package_dir": package, "core_dir": core, "framework": None, "pywrap": None, "missing": []}
    result["plugins"] = plugins(path)
    for entry in names(core):
        if re.match(r"^libtensorflow_framework\.(so(\.\d+)*|\d+\.dylib)$", entry):
            # several names of one file: the one with the major version is what others need
            if result["framework"] is None or re.search(r"\.so\.\d+$", entry):
                result["framework"] = os.path.join(core, entry)
    python = os.path.join(core, "python")
    for entry in names(python):
        if re.match(r"^_pywrap_tensorflow(_internal)?(\.[\w-]+)?\.(so|pyd)$", entry):
            result["pywrap"] = os.path.join(python, entry)
    if not os.path.isfile(os.path.join(package, "__init__.py")):
        result["missing"].append("__init__.py")
    if not os.path.isdir(python):
        result["missing"].append("python/")
    elif result["pywrap"] is None:
        result["missing"].append("python/_pywrap_tensorflow_internal.so")
    result["build_info"] = read(os.path.join(python, "platform", "build_info.py"))
    include = os.path.join(core, "include")
    for relative in (
        "third_party/gpus/cuda/cuda_config.h",
        "external/local_config_cuda/cuda/cuda/cuda_config.h",
    ):
        text = read(os.path.join(include, *relative.split("/")))
        if text:
            result["cuda_config"] = text
            break
    for header in ("version.h", "release_version.h"):
        text = read(os.path.join(include, "tensorflow", "core", "public", header))
        if text and "TF_MAJOR_VERSION" in text:
            result["version_header"] = text
            break
    return result


def behind(path, first):
    """The TensorFlow that would be taken were it not for the folder on the path that has the first one."""
    folder = os.path.dirname(first["package_dir"])
    rest = [one for one in path if os.path.realpath(one or ".") != os.path.realpath(folder)]
    other = tensorflow(rest) if len(rest) < len(path) else None
    if other is None or os.path.realpath(other["package_dir"]) == os.path.realpath(first["package_dir"]):
        return None
    return other


def mapped(stdlib):
    """Shared objects already in a bare interpreter: .pth files and sitecustomize can load some before TensorFlow."""
    found = []
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                fields = line.split(None, 5)
                path = fields[5].strip() if len(fields) == 6 else ""
                if ".so" in os.path.basename(path) and path not in found and not path.startswith(stdlib or "\n"):
                    found.append(path)
    except (IOError, OSError, UnicodeError):
        pass
    return found


def importable(entry):
    """The module that a folder's entry is, "" for none. A folder alone is one where it has an __init__."""
    base, dot, kind = entry.partition(".")
    if kind == "py" or (dot and kind.rpartition(".")[2] in ("so", "pyd")):
        return base
    return entry if not dot else ""


def is_package(folder, entry):
    whole = os.path.join(folder or ".", entry)
    if not os.path.isdir(whole):
        return True
    return any(importable(one) == "__init__" for one in names(whole))


def zipped(path):
    """The names in the top folder of a ZIP archive (an egg, say); none where the file is something else."""
    if not os.path.isfile(path):
        return []
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            inside = archive.namelist()
    except (OSError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipfile):
        return []
    return sorted(set(one.partition("/")[0] for one in inside))


def hiding(cwd, path):
    """What a program that is started here takes for TensorFlow before any package on the path; None: nothing does."""
    for candidate in ("tensorflow.py", os.path.join("tensorflow", "__init__.py")):
        if os.path.isfile(os.path.join(cwd, candidate)):
            return os.path.join(cwd, candidate)
    for folder in path:
        if os.path.isdir(os.path.join(folder, "tensorflow")):
            break  # within one folder the package comes first
        if os.path.isfile(os.path.join(folder, "tensorflow.py")):
            return os.path.join(folder, "tensorflow.py")
    return None


def shadows(path, cwd):
    """Modules that are found twice: (name, the file or folder that Python takes, the folder that has it, too).

    The working folder comes first, as for programs that are started there.
    """
    first, found = {}, []
    for name in sys.builtin_module_names:
        first[name] = None
    safe = getattr(sys.flags, "safe_path", False) or getattr(sys.flags, "isolated", False)
    seen = set()
    for folder in ([] if safe else [cwd]) + path:
        real = os.path.realpath(folder or ".")
        if real in seen:
            continue
        seen.add(real)
        here = {}
        for entry in (names(folder) if os.path.isdir(real) else zipped(real))[:20000]:
            name = importable(entry)
            if name and name not in here:
                here[name] = entry
        for name, entry in here.items():
            known = first.get(name, "")
            if known == "":
                first[name] = (folder, entry)
            elif known is not None and name not in EVERYWHERE and len(found) < 200:
                if is_package(*known):  # of folders without an __init__, too, of which all on the path are one package
                    found.append([name, os.path.join(*known), folder])
                else:
                    first[name] = (folder, entry)  # a folder without __init__ gives way to a real package
    return found


EVERYWHERE = frozenset("__pycache__ bin include lib share site-packages lib-dynload setup test tests docs examples __init__".split())


def plugin_folders(path):
    """Where TensorFlow looks for tensorflow-plugins, in its order."""
    import site

    found = []
    if getattr(site, "ENABLE_USER_SITE", False) and getattr(site, "USER_SITE", None):
        found.append(site.USER_SITE)
    found += [folder for folder in path if "site-packages" in folder]
    found += site.getsitepackages() if hasattr(site, "getsitepackages") else []
    return [folder for index, folder in enumerate(found) if folder not in found[:index]]


def plugins(path):
    """The files that TensorFlow loads by itself when it is imported: those of tensorflow-plugins/."""
    found = []
    for folder in plugin_folders(path):
        place = os.path.join(folder, "tensorflow-plugins")
        found += [os.path.join(place, entry) for entry in names(place) if re.search(r"\.so(\.\d[^/]*)?$", entry)]
    return found[:50]


def closed():
    """[path, what forbids it, its owner, whether that is this user, its mode] of what may not be read."""
    found, kept = [], sorted(set(CLOSED), key=lambda path: (("-info" + os.sep) in path, CLOSED.index(path)))
    for path in kept:
        if len(found) >= 60:
            break
        at, status = path, None
        while status is None:
            try:
                status = os.stat(at)
            except OSError:
                if os.path.dirname(at) == at:
                    break
                at = os.path.dirname(at)
        if status is None:
            found.append([path, path, None, None, None])
            continue
        try:
            import pwd

            owner = pwd.getpwuid(status.st_uid).pw_name
        except (ImportError, KeyError):
            owner = str(status.st_uid)
        if ("-info" + os.sep) in path and any(known[1] == at for known in found):
            continue  # METADATA and RECORD of one folder
        found.append([path, at, owner, status.st_uid == os.geteuid(), "%o" % (status.st_mode & 0o7777)])
    return found


SYSTEM_LIBRARY = re.compile(
    r"^lib(z|stdc\+\+|gcc_s|ffi|ssl|crypto|lzma|bz2|expat|uuid|gomp|gfortran|openblas\w*|blas|lapack|m|c|dl|rt|pthread)\.so"
)


def carried():
    """What LD_LIBRARY_PATH and LD_PRELOAD put before the libraries of the system that Python's own modules use."""
    found = [name for name in os.environ.get("LD_PRELOAD", "").replace(":", " ").split()]
    for folder in os.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":"):
        found += [os.path.join(folder, name) for name in names(folder) if folder and SYSTEM_LIBRARY.match(name)]
    return found[:20]


def noexec(path):
    """[folder, mount point] of folders with libraries whose file system lets nothing be executed."""
    flag, found = getattr(os, "ST_NOEXEC", 8), []

    def forbids(folder):
        try:
            return bool(os.statvfs(folder).f_flag & flag)
        except (AttributeError, OSError):
            return False

    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    for folder in path + [entry for entry in libraries if entry]:
        at = os.path.realpath(folder)
        if sys.platform.startswith("linux") and os.path.isdir(at) and forbids(at):
            while os.path.dirname(at) != at and forbids(os.path.dirname(at)):
                at = os.path.dirname(at)
            found.append([folder, at])
    return found[:60]


def implementation():
    """As `platform` says it, which takes longer to load than all that is asked of it here."""
    name = sys.implementation.name if hasattr(sys, "implementation") else "pypy" if "PyPy" in sys.version else "cpython"
    return {"cpython": "CPython", "pypy": "PyPy"}.get(name, name)


def machine():
    if hasattr(os, "uname"):
        return os.uname()[4]
    import platform

    return platform.machine()


def glibc():
    try:
        value = os.confstr("CS_GNU_LIBC_VERSION")
        if value and value.startswith("glibc "):
            return value.split()[1]
    except (AttributeError, OSError, ValueError):
        pass
    return None


def standing(path, site, package, stdlib):
    """What is needed to know which command can change this Python, and where that command puts things."""
    try:
        from site import ENABLE_USER_SITE, getusersitepackages

        user = getusersitepackages() if ENABLE_USER_SITE else None
    except Exception:
        user = None
    unwritable = []
    for folder in site + [os.path.dirname(package) if package else None]:
        if folder and os.path.isdir(folder) and not os.access(folder, os.W_OK) and folder not in [c[0] for c in unwritable]:
            unwritable.append([folder, owner_of(folder)])
    return {
        "pip": any(os.path.isfile(os.path.join(folder, "pip", "__init__.py")) for folder in path),
        "ensurepip": bool(stdlib) and os.path.isdir(os.path.join(stdlib, "ensurepip")),
        "user_site": user,
        "unwritable": unwritable,
    }


def owner_of(path):
    try:
        import pwd

        return pwd.getpwuid(os.stat(path).st_uid).pw_name
    except Exception:
        return ""


def main():
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream, None) is None:
            return 1
    path = [folder for folder in sys.path if folder != _HERE]
    try:
        import sysconfig

        site = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        stdlib = sysconfig.get_path("stdlib")
        plat = sysconfig.get_platform()
    except Exception:
        site, stdlib, plat = [], None, ""
    cwd = os.getcwd()
    safe = getattr(sys.flags, "safe_path", False) or getattr(sys.flags, "isolated", False)
    installed, doubly = distributions(path if safe else [cwd] + path)  # as for programs that are started there
    found = tensorflow(path)
    answer = {
        "version": sys.version.split()[0],
        "implementation": implementation(),
        "executable": sys.executable,
        "real_executable": os.path.realpath(sys.executable),
        "bits": struct.calcsize("P") * 8,
        "machine": machine(),
        "glibc": glibc(),
        "prefix": sys.prefix,
        "base_prefix": getattr(sys, "base_prefix", getattr(sys, "real_prefix", sys.prefix)),
        "abi_flags": getattr(sys, "abiflags", ""),
        "platform": plat,
        "externally_managed": bool(stdlib) and os.path.isfile(os.path.join(stdlib, "EXTERNALLY-MANAGED")),
        "sys_path": path,
        "site_packages": [folder for index, folder in enumerate(site) if folder and folder not in site[:index]],
        "distributions": installed,
        "shared": doubly,
        "absent": absent(path, installed),
        "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
        "conda_packages": conda_packages(sys.prefix),
        "tensorflow": found,
        "behind": behind(path, found) if found else None,
        "shadow": hiding(cwd, path if found else []),
        "shadows": shadows(path, cwd),
        "mapped": mapped(stdlib),
        "modules": modules(path),
        "noexec": noexec(path),
        "carried": carried(),
    }
    answer["closed"] = closed()
    answer.update(standing(path, site, found and found["package_dir"], stdlib))
    print(MARKER + json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
