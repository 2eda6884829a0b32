# Part of target.py: what Python finds for a name, and which TensorFlow that is.
import os
import re
import sys

from target_files import CLOSED, names, read

EVERYWHERE = frozenset("__pycache__ bin include lib share site-packages lib-dynload setup test tests docs examples __init__".split())


def locate(path):
    """Return the tensorflow package as the import system would find it, without importing it."""
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


def find_compiled(source):
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
    if not os.access(find_compiled(source), os.R_OK):  # Python reads that, where it is there
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


def find_behind(path, first):
    """Return the TensorFlow that would be taken were it not for the folder on the path that has the first one."""
    folder = os.path.dirname(first["package_dir"])
    rest = [one for one in path if os.path.realpath(one or ".") != os.path.realpath(folder)]
    other = tensorflow(rest) if len(rest) < len(path) else None
    if other is None or os.path.realpath(other["package_dir"]) == os.path.realpath(first["package_dir"]):
        return None
    return other


def plugin_folders(path):
    """Return where TensorFlow looks for tensorflow-plugins, in its order."""
    import site

    found = []
    if getattr(site, "ENABLE_USER_SITE", False) and getattr(site, "USER_SITE", None):
        found.append(site.USER_SITE)
    found += [folder for folder in path if "site-packages" in folder]
    found += site.getsitepackages() if hasattr(site, "getsitepackages") else []
    return [folder for index, folder in enumerate(found) if folder not in found[:index]]


def plugins(path):
    """Return the files that TensorFlow loads by itself when it is imported: those of tensorflow-plugins/."""
    found = []
    for folder in plugin_folders(path):
        place = os.path.join(folder, "tensorflow-plugins")
        found += [os.path.join(place, entry) for entry in names(place) if re.search(r"\.so(\.\d[^/]*)?$", entry)]
    return found[:50]


def importable(entry):
    """Return the module that a folder's entry is, "" for none.

    A folder alone is one where it has an __init__.
    """
    base, dot, kind = entry.partition(".")
    if kind == "py" or (dot and kind.rpartition(".")[2] in ("so", "pyd")):
        return base
    return entry if not dot else ""


def is_package(folder, entry):
    whole = os.path.join(folder or ".", entry)
    if not os.path.isdir(whole):
        return True
    return any(importable(one) == "__init__" for one in names(whole))


def list_zipped(path):
    """Return the names in the top folder of a ZIP archive (an egg, say).

    None if the file is something else.
    """
    if not os.path.isfile(path):
        return []
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            inside = archive.namelist()
    except (OSError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipfile):
        return []
    return sorted(set(one.partition("/")[0] for one in inside))


def find_hiding(cwd, path):
    """Return what a program that is started here takes for TensorFlow before any package on the path.

    None: nothing does.
    """
    for candidate in ("tensorflow.py", os.path.join("tensorflow", "__init__.py")):
        if os.path.isfile(os.path.join(cwd, candidate)):
            return os.path.join(cwd, candidate)
    for folder in path:
        if os.path.isdir(os.path.join(folder, "tensorflow")):
            break  # within one folder the package comes first
        if os.path.isfile(os.path.join(folder, "tensorflow.py")):
            return os.path.join(folder, "tensorflow.py")
    return None


def shadows(path):
    """Modules that are found twice: (name, the file or folder that Python takes, the folder that has it, too)."""
    first, found = {}, []
    for name in sys.builtin_module_names:
        first[name] = None
    seen = set()
    for folder in path:
        real = os.path.realpath(folder or ".")
        if real in seen:
            continue
        seen.add(real)
        here = {}
        for entry in (names(folder) if os.path.isdir(real) else list_zipped(real))[:20000]:
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
