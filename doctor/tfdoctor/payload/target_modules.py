# Part of target.py: finds the TensorFlow that Python would import, and modules that hide others of that name.
import os
import re
import sys

from target_files import REFUSED_PATHS, list_names, read_text

COMMON_FOLDERS = frozenset("__pycache__ bin include lib share site-packages lib-dynload setup test tests docs examples __init__".split())


def find_tensorflow_folder(path):
    """Return the folder of the tensorflow package that Python would import; None if there is none.

    The package is not imported.
    """
    path = [folder for folder in path if folder not in REFUSED_PATHS]  # Python ignores folders that it may not list
    for folder in path:
        if os.path.isfile(os.path.join(folder or ".", "tensorflow", "__init__.py")):
            return os.path.join(folder, "tensorflow")
        if os.path.isdir(os.path.join(folder or ".", "tensorflow")):
            read_text(os.path.join(folder, "tensorflow", "__init__.py"), 1)  # records the file if it is unreadable
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


def find_archive(path):
    """Return the file of which a path names a member, such as a ZIP archive; None if its folder exists."""
    while path and not os.path.exists(path):
        path = os.path.dirname(path)
    return path if os.path.isfile(path) else None


def get_bytecode_path(source):
    """Return the path of a source file's bytecode."""
    try:
        from importlib.util import cache_from_source

        return cache_from_source(source)
    except (ImportError, NotImplementedError):
        return source + "c"


def describe_tensorflow(path):
    """Return the facts about the first TensorFlow on a path; None if there is none."""
    package = find_tensorflow_folder(path)
    if package is None:
        return None
    separate_core = os.path.join(os.path.dirname(package), "tensorflow_core")
    core = separate_core if os.path.isdir(os.path.join(separate_core, "python")) else package
    list_names(package)
    source = os.path.join(package, "__init__.py")
    if not os.access(get_bytecode_path(source), os.R_OK):  # Python reads the bytecode if it exists
        read_text(source, 1)
    result = {"package_dir": package, "core_dir": core, "framework": None, "pywrap": None, "missing": []}
    result["plugins"] = list_plugins(path)
    for entry in list_names(core):
        if re.match(r"^libtensorflow_framework\.(so(\.\d+)*|\d+\.dylib)$", entry):
            # The file can have several names. Prefer the soname, which ends with the major version.
            if result["framework"] is None or re.search(r"\.so\.\d+$", entry):
                result["framework"] = os.path.join(core, entry)
    python_folder = os.path.join(core, "python")
    for entry in list_names(python_folder):
        if re.match(r"^_pywrap_tensorflow(_internal)?(\.[\w-]+)?\.(so|pyd)$", entry):
            result["pywrap"] = os.path.join(python_folder, entry)
    result["archive"] = find_archive(package)
    if not os.path.isfile(os.path.join(package, "__init__.py")):
        result["missing"].append("__init__.py")
    if not os.path.isdir(python_folder):
        result["missing"].append("python/")
    elif result["pywrap"] is None:
        result["missing"].append("python/_pywrap_tensorflow_internal.so")
    result["build_info"] = read_text(os.path.join(python_folder, "platform", "build_info.py"))
    include_folder = os.path.join(core, "include")
    for relative in (
        "third_party/gpus/cuda/cuda_config.h",
        "external/local_config_cuda/cuda/cuda/cuda_config.h",
    ):
        text = read_text(os.path.join(include_folder, *relative.split("/")))
        if text:
            result["cuda_config"] = text
            break
    for header in ("version.h", "release_version.h"):
        text = read_text(os.path.join(include_folder, "tensorflow", "core", "public", header))
        if text and "TF_MAJOR_VERSION" in text:
            result["version_header"] = text
            break
    return result


def find_hidden_tensorflow(path, first):
    """Return the facts about the TensorFlow that the first one on the path hides; None if there is none."""
    folder = os.path.dirname(first["package_dir"])
    remaining = [entry for entry in path if os.path.realpath(entry or ".") != os.path.realpath(folder)]
    other = describe_tensorflow(remaining) if len(remaining) < len(path) else None
    if other is None or other["archive"] or os.path.realpath(other["package_dir"]) == os.path.realpath(first["package_dir"]):
        return None
    return other


def list_plugin_folders(path):
    """Return the folders in which TensorFlow searches for tensorflow-plugins, in its order."""
    import site

    folders = []
    if getattr(site, "ENABLE_USER_SITE", False) and getattr(site, "USER_SITE", None):
        folders.append(site.USER_SITE)
    folders += [folder for folder in path if "site-packages" in folder]
    folders += site.getsitepackages() if hasattr(site, "getsitepackages") else []
    return [folder for index, folder in enumerate(folders) if folder not in folders[:index]]


def list_plugins(path):
    """Return the shared objects in tensorflow-plugins/, which TensorFlow's import loads."""
    paths = []
    for folder in list_plugin_folders(path):
        plugin_folder = os.path.join(folder, "tensorflow-plugins")
        paths += [os.path.join(plugin_folder, entry) for entry in list_names(plugin_folder) if re.search(r"\.so(\.\d[^/]*)?$", entry)]
    return paths[:50]


def get_module_name(entry):
    """Return the module name of a directory entry; "" if the entry cannot be a module.

    A name without a dot counts as a folder. `is_package` tests whether it has an __init__.
    """
    base, dot, kind = entry.partition(".")
    if kind == "py" or (dot and kind.rpartition(".")[2] in ("so", "pyd")):
        return base
    return entry if not dot else ""


def is_package(folder, entry):
    """Return whether a directory entry is a file, or a folder with an __init__."""
    path = os.path.join(folder or ".", entry)
    if not os.path.isdir(path):
        return True
    return any(get_module_name(name) == "__init__" for name in list_names(path))


def share_package(folder, other_folder):
    """Return whether two parts of a namespace package, such as google, have a package of the same name."""
    packages = [
        set(entry for entry in list_names(path) if os.path.isdir(os.path.join(path, entry)) and is_package(path, entry))
        if os.path.isdir(path)
        else set()
        for path in (folder, other_folder)
    ]
    return bool(packages[0] & packages[1])


def is_left_over(path):
    """Return whether a path is a folder with nothing but bytecode, which pip leaves of what Python compiled later."""
    if not os.path.isdir(path):
        return False
    for _, folders, files in os.walk(path):
        folders[:] = [folder for folder in folders if folder != "__pycache__"]
        if files:
            return False
    return True


def list_zipped(path, *wanted):
    """Return the top-level names in a ZIP archive, such as an egg, or which of the members `wanted` it has.

    Return [] if the file is something else.
    """
    if not os.path.isfile(path):
        return []
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except (OSError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipfile):
        return []
    return [name for name in wanted if name in members] if wanted else sorted(set(member.partition("/")[0] for member in members))


def find_shadowing_file(cwd, path):
    """Return the file that a program in `cwd` imports instead of the tensorflow package, or None.

    That may be one in a ZIP archive on the path, from which no shared object can be loaded.
    """
    for relative_path in ("tensorflow.py", os.path.join("tensorflow", "__init__.py")):
        if os.path.isfile(os.path.join(cwd, relative_path)):
            return os.path.join(cwd, relative_path)
    for folder in path:
        if os.path.isdir(os.path.join(folder, "tensorflow")):
            break  # a package has precedence over a module in the same folder
        if os.path.isfile(os.path.join(folder, "tensorflow.py")):
            return os.path.join(folder, "tensorflow.py")
        zipped = list_zipped(folder, "tensorflow/__init__.py", "tensorflow.py")
        if zipped:
            return os.path.join(folder, zipped[0])
    return None


def list_shadows(path):
    """Return the modules that exist in several folders of the path.

    Each entry is [name, file or folder that Python imports, another folder that has the module].
    """
    first_entries, shadows = {}, []
    for name in sys.builtin_module_names:
        first_entries[name] = None  # built-in modules come before the path
    visited = set()
    for folder in path:
        real_folder = os.path.realpath(folder or ".")
        if real_folder in visited:
            continue
        visited.add(real_folder)
        entries = {}
        for entry in (list_names(folder) if os.path.isdir(real_folder) else list_zipped(real_folder))[:20000]:
            name = get_module_name(entry)
            if name and name not in entries:
                entries[name] = entry
        for name, entry in entries.items():
            earlier = first_entries.get(name, "")  # "" if no earlier folder has the module
            if earlier == "":
                first_entries[name] = (folder, entry)
            elif earlier is not None and name not in COMMON_FOLDERS and len(shadows) < 200:
                if is_left_over(os.path.join(folder, entry)):
                    continue
                if is_package(*earlier) or share_package(os.path.join(*earlier), os.path.join(folder, entry)):
                    shadows.append([name, os.path.join(*earlier), folder])
                elif is_package(folder, entry):
                    first_entries[name] = (folder, entry)  # a real package has precedence over a folder without __init__
    return shadows
