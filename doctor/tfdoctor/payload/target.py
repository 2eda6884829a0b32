# What the target Python is and what is installed in it. Standard library only; imports nothing of TensorFlow,
# writes no file. Runs on Python 2.7 and 3.5 to 3.14. Answers with one JSON line after the marker.
from __future__ import print_function

import sys

# The script's own folder is on sys.path first: it must not shadow anything.
_HERE = sys.path.pop(0) if sys.path else ""

import json  # noqa: E402
import os  # noqa: E402
import platform  # noqa: E402
import re  # noqa: E402
import struct  # noqa: E402

MARKER = "tfdoctor-payload:"
RELEVANT = re.compile(
    r"^(~|tensorflow|tf[-_]nightly|tf[-_]|intel[-_]tensorflow|nvidia|numpy$|protobuf$|keras|torch$|jax|h5py$|ml[-_]dtypes$"
    r"|typing[-_]extensions$|tensorrt|wrapt$|absl[-_]py$|gast$|grpcio$|tensorboard$|cupy|six$|google[-_]pasta$"
    r"|flatbuffers$|opt[-_]einsum$|astunparse$|setuptools$|scipy$|pandas$|rocm|jetson)",
    re.IGNORECASE,
)
OWN = re.compile(r"^(tensorflow|tensorflow[-_](gpu|cpu|rocm|macos|intel|aarch64|directml)|tf[-_]nightly([-_](gpu|cpu))?|intel[-_]tensorflow)$", re.IGNORECASE)
LIMIT = 1 << 20


def read(path, limit=LIMIT):
    try:
        with open(path, "rb") as stream:
            return stream.read(limit).decode("utf-8", "replace")
    except (IOError, OSError):
        return None


def names(folder):
    try:
        return sorted(os.listdir(folder or "."))
    except OSError:
        return []


def metadata(folder, own):
    """Name, version, installer and (for TensorFlow itself) requirements of a dist-info or egg-info."""
    text = read(os.path.join(folder, "METADATA")) or read(os.path.join(folder, "PKG-INFO"))
    if text is None and os.path.isfile(folder):
        text = read(folder)
    result = {"requires": []}
    for line in (text or "").splitlines():
        if not line.strip():
            break  # the end of the headers
        key, _, value = line.partition(":")
        key = key.strip().lower()
        if key in ("name", "version") and key not in result:
            result[key] = value.strip()
        elif key == "requires-dist" and own:
            result["requires"].append(value.strip())
    installer = read(os.path.join(folder, "INSTALLER"), 100)
    result["installer"] = installer.strip() if installer else None
    return result


def lost_files(folder, info):
    """Shared objects that a wheel's RECORD lists and that are not there."""
    lost = []
    for line in (read(os.path.join(info, "RECORD")) or "").splitlines():
        name = line.split(",")[0]
        if ".so" in name and not name.startswith(("/", "..")) and not os.path.exists(os.path.join(folder, name)):
            lost.append(name)
    return lost[:50]


def distributions(path):
    found, seen = [], set()
    for folder in path:
        for entry in names(folder):
            base, dot, kind = entry.rpartition(".")
            if kind not in ("dist-info", "egg-info") or not dot:
                continue
            name = base.split("-")[0]
            if not RELEVANT.match(name):
                continue
            whole = os.path.join(folder, entry)
            if os.path.realpath(whole) in seen:
                continue
            seen.add(os.path.realpath(whole))
            own = bool(OWN.match(name))
            data = metadata(whole, own)
            version = data.get("version") or (base.split("-")[1] if "-" in base else "")
            found.append(
                {
                    # "~ensorflow": what pip puts aside while it replaces something, and sometimes leaves
                    "name": name if name[:1] == "~" else data.get("name") or name,
                    "version": version,
                    "location": folder,
                    "installer": data["installer"],
                    "requires": data["requires"],
                    # cuDNN opens its own parts when it is used: no loader's rules tell that one is not there
                    "lost": lost_files(folder, whole) if name.startswith("nvidia_cudnn") else [],
                }
            )
    return found


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
        for line in one["requires"]:
            if "extra" not in line.partition(";")[2]:
                wanted.add(normal(re.split(r"[^A-Za-z0-9._-]", line.strip(), maxsplit=1)[0]))
    return sorted(wanted - there - {""})


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


COMPANIONS = ("numpy", "google.protobuf", "absl", "wrapt", "six", "gast", "flatbuffers", "opt_einsum", "ml_dtypes")


def modules(path):
    """Which of TensorFlow's companions are there as modules, whether or not a distribution is registered."""
    found = []
    for name in COMPANIONS:
        inside = name.replace(".", os.sep)
        for folder in path:
            base = os.path.join(folder, inside)
            if os.path.isdir(base) or os.path.isfile(base + ".py"):
                found.append(name)
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
    for folder in path:
        if os.path.isfile(os.path.join(folder or ".", "tensorflow", "__init__.py")):
            return os.path.join(folder, "tensorflow")
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


def tensorflow(path):
    package = locate(path)
    if package is None:
        return None
    beside = os.path.join(os.path.dirname(package), "tensorflow_core")
    core = beside if os.path.isdir(os.path.join(beside, "python")) else package
    result = {"package_dir": package, "core_dir": core, "framework": None, "pywrap": None, "missing": []}
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
    closed = []
    for folder in site + [os.path.dirname(package) if package else None]:
        if folder and os.path.isdir(folder) and not os.access(folder, os.W_OK) and folder not in [c[0] for c in closed]:
            closed.append([folder, owner_of(folder)])
    return {
        "pip": any(os.path.isfile(os.path.join(folder, "pip", "__init__.py")) for folder in path),
        "ensurepip": bool(stdlib) and os.path.isdir(os.path.join(stdlib, "ensurepip")),
        "user_site": user,
        "closed": closed,
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
    shadow = None
    for candidate in ("tensorflow.py", os.path.join("tensorflow", "__init__.py")):
        if os.path.isfile(os.path.join(cwd, candidate)):
            shadow = os.path.join(cwd, candidate)
            break
    installed = distributions(path)
    found = tensorflow(path)
    answer = {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "real_executable": os.path.realpath(sys.executable),
        "bits": struct.calcsize("P") * 8,
        "machine": platform.machine(),
        "glibc": glibc(),
        "prefix": sys.prefix,
        "base_prefix": getattr(sys, "base_prefix", getattr(sys, "real_prefix", sys.prefix)),
        "abi_flags": getattr(sys, "abiflags", ""),
        "platform": plat,
        "externally_managed": bool(stdlib) and os.path.isfile(os.path.join(stdlib, "EXTERNALLY-MANAGED")),
        "sys_path": path,
        "site_packages": [folder for index, folder in enumerate(site) if folder and folder not in site[:index]],
        "distributions": installed,
        "absent": absent(path, installed),
        "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
        "conda_packages": conda_packages(sys.prefix),
        "tensorflow": found,
        "shadow": shadow,
        "mapped": mapped(stdlib),
        "modules": modules(path),
    }
    answer.update(standing(path, site, found and found["package_dir"], stdlib))
    print(MARKER + json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
