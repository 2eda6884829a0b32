# Describes the target Python and what is installed in it. Standard library only; imports nothing of
# TensorFlow and writes no file. Runs on Python 2.7 and 3.5 to 3.14. Prints one JSON line after the marker.
# Its parts, target_*.py, must be in the same folder.
from __future__ import print_function

import sys

# Remove the script's own folder, which comes first unless Python runs in safe mode: it must not shadow
# modules.
_IS_SAFE_PATH = getattr(sys.flags, "safe_path", 0) or getattr(sys.flags, "isolated", 0)
_SCRIPT_FOLDER = "" if _IS_SAFE_PATH or not sys.path else sys.path.pop(0)

import gc
import json
import os
import struct

gc.disable()  # garbage collection would take a tenth of the time of this short process

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from target_files import list_overriding_libraries, list_names, list_refused_paths, list_mapped_libraries, list_noexec_folders, get_owner
from target_modules import find_hidden_tensorflow, find_shadowing_file, list_shadows, describe_tensorflow
from target_packages import list_missing_extensions, list_missing_requirements, list_conda_packages, list_distributions, list_companions

sys.path.pop(0)

MARKER = "tfdoctor-payload:"


def get_implementation():
    """Return the name of the Python implementation, such as "CPython".

    `platform.python_implementation` returns the same, but importing `platform` takes longer than this whole script.
    """
    name = sys.implementation.name if hasattr(sys, "implementation") else "pypy" if "PyPy" in sys.version else "cpython"
    return {"cpython": "CPython", "pypy": "PyPy"}.get(name, name)


def get_machine():
    if hasattr(os, "uname"):
        return os.uname()[4]
    import platform

    return platform.machine()


def get_glibc_version():
    """Return the glibc version; None if it is unknown."""
    for name in ("CS_GNU_LIBC_VERSION", 2):  # Python 2 does not know the name, only glibc's number for it
        try:
            value = os.confstr(name)
        except (AttributeError, OSError, ValueError):
            continue
        if value and value.startswith("glibc "):
            return value.split()[1]
    return None


def describe_target(path, site_folders, package, stdlib):
    """Return the facts that decide how and where packages can be installed for this Python."""
    try:
        from site import ENABLE_USER_SITE, getusersitepackages

        user_site = getusersitepackages() if ENABLE_USER_SITE else None
    except Exception:
        user_site = None
    unwritable_folders = []
    for folder in site_folders + [os.path.dirname(package) if package else None]:
        is_unwritable = bool(folder) and os.path.isdir(folder) and not os.access(folder, os.W_OK)
        if is_unwritable and folder not in [known for known, _ in unwritable_folders]:
            unwritable_folders.append([folder, get_owner(folder)])
    return {
        "pip": any(os.path.isfile(os.path.join(folder, "pip", "__init__.py")) for folder in path),
        "ensurepip": bool(stdlib) and os.path.isdir(os.path.join(stdlib, "ensurepip")),
        "user_site": user_site,
        "unwritable": unwritable_folders,
    }


def main():
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream, None) is None:
            return 1
    path = [folder for folder in sys.path if folder != _SCRIPT_FOLDER]
    try:
        import sysconfig

        site_folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        stdlib = sysconfig.get_path("stdlib")
        platform_name = sysconfig.get_platform()
    except Exception:
        site_folders, stdlib, platform_name = [], None, ""
    working_folder = os.getcwd()
    program_path = path if _IS_SAFE_PATH else [working_folder] + path  # sys.path of a program in the working directory
    installed, shared = list_distributions(program_path)
    tensorflow = describe_tensorflow(path)
    facts = {
        "version": sys.version.split()[0],
        "implementation": get_implementation(),
        "executable": sys.executable,
        "real_executable": os.path.realpath(sys.executable),
        "bits": struct.calcsize("P") * 8,
        "machine": get_machine(),
        "glibc": get_glibc_version(),
        "prefix": sys.prefix,
        "base_prefix": getattr(sys, "base_prefix", getattr(sys, "real_prefix", sys.prefix)),
        "abi_flags": getattr(sys, "abiflags", ""),
        "platform": platform_name,
        "externally_managed": bool(stdlib) and os.path.isfile(os.path.join(stdlib, "EXTERNALLY-MANAGED")),
        "sys_path": path,
        "site_packages": [folder for index, folder in enumerate(site_folders) if folder and folder not in site_folders[:index]],
        "distributions": installed,
        "shared": shared,
        "absent": list_missing_requirements(path, installed),
        "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
        "conda_packages": list_conda_packages(sys.prefix),
        "tensorflow": tensorflow,
        "behind": find_hidden_tensorflow(path, tensorflow) if tensorflow else None,
        "shadow": find_shadowing_file(working_folder, path if tensorflow else []),
        "shadows": list_shadows(program_path),
        "mapped": list_mapped_libraries(stdlib),
        "modules": list_companions(path),
        "lacks": list_missing_extensions(),
        "noexec": list_noexec_folders(path),
        "carried": list_overriding_libraries(),
    }
    for folder in site_folders:
        list_names(folder or ".")  # a site-packages that this user may not enter is not on sys.path
    facts["closed"] = list_refused_paths()
    facts.update(describe_target(path, site_folders, tensorflow and tensorflow["package_dir"], stdlib))
    print(MARKER + json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
