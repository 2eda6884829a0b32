# Part of target.py: lists the installed distributions and the files that differ from their RECORD.
import errno
import os
import re
import sys

from target_files import REFUSED_PATHS, has_syntax_error, is_truncated, is_foreign_object, hash_file_prefix, list_names, read_text, get_size

RELEVANT_PACKAGE = re.compile(
    r"^(~|tensorflow|tf[-_]nightly|tf[-_]|intel[-_]tensorflow|nvidia|numpy$|protobuf$|keras|torch$|jax|h5py$|ml[-_]dtypes$"
    r"|typing[-_]extensions$|tensorrt|wrapt$|absl[-_]py$|gast$|grpcio$|tensorboard$|cupy|six$|google[-_]pasta$"
    r"|flatbuffers$|opt[-_]einsum$|astunparse$|setuptools$|scipy$|openvino$|pandas$|rocm|jetson)",
    re.IGNORECASE,
)
TENSORFLOW_NAME = re.compile(r"^(tensorflow|tensorflow[-_](gpu|cpu|rocm|macos|intel|aarch64|directml)|tf[-_]nightly([-_](gpu|cpu))?|intel[-_]tensorflow)$", re.IGNORECASE)
# Packages that TensorFlow, Keras or their dependencies import if present, but do not require.
OPTIONAL_PACKAGES = frozenset(
    (
        "h5py pandas scipy pillow jax jaxlib scikit-learn matplotlib psutil huggingface-hub pydot dill tblib objgraph ipython"
        " opencv-python opencv-python-headless tf-keras tensorboard tensorflow-estimator keras pyarrow numexpr bottleneck"
    ).split()
)
LIBRARY_PACKAGE = re.compile(r"^(nvidia|tensorflow|tf[-_]nightly|intel[-_]tensorflow|cuda|cudnn)", re.IGNORECASE)
MODULE_FILE = re.compile(r"\.(?:py|pyd|so(?:\.[\w.]{1,60})?)\Z")
LIBRARY_FILE = re.compile(r"(?:\.so(?:\.[\w.]{1,60})?|/bin/ptxas|/libdevice\.10\.bc)\Z")
TAGGED_EXTENSION = re.compile(r"\.(?:cpython|pypy)[\w-]{1,40}\.so\Z")
TEST_FOLDER = re.compile(r"(^|/)tests?/")
# In a line of RECORD, a comma follows the path.
MODULE_WORDS = (".py,", ".so") + ((".pyd,",) if os.name == "nt" else ())
TOOL_WORDS = ("/ptxas,", "/libdevice.10.bc,")
MAX_RECORD_BYTES, MAX_LINE_CHARS = 8 << 20, 1000
MAX_LINES, MAX_FILES, MAX_MODULES = 20000, 400, 8000
MAX_DIFFERENCES = 20
NUMPY_1_NAME, NUMPY_2_NAME = b"numpy.core", b"numpy._core"  # in extension modules; those for NumPy 2 contain both
MAX_EXTENSIONS, MAX_EXTENSION_BYTES = 4, 1 << 20
REMAINING_HASH_BYTES = [64 << 20]  # in a list, so that functions can change it; hashing them all takes a tenth of a second
COMPILED_MODULES = ("bz2", "ctypes", "lzma", "sqlite3", "ssl", "zlib")
COMPANION_MODULES = (
    "numpy google.protobuf absl wrapt six gast flatbuffers opt_einsum ml_dtypes keras tensorflow_estimator tf_keras"
).split()


def normalize_name(name):
    """Return the normalised form of a distribution name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_metadata(folder):
    """Return the name, the version, the installer and the requirements in a dist-info or egg-info."""
    text = read_text(os.path.join(folder, "METADATA")) or read_text(os.path.join(folder, "PKG-INFO"))
    if text is None and os.path.isfile(folder):
        text = read_text(folder)
    result = {"requires": []}
    for line in (text or "").splitlines():
        if not line:
            break  # the end of the headers
        if line[0].isspace():
            continue  # a continuation line, for example in a licence
        key, _, value = line.partition(":")
        key = key.strip().lower()
        if key in ("name", "version") and key not in result:
            result[key] = value.strip()
        elif key == "requires-dist":
            result["requires"].append(value.strip())
    installer = read_text(os.path.join(folder, "INSTALLER"), 100)
    result["installer"] = installer.strip() if installer else None
    return result


def list_recorded_files(info, words):
    """Return (relative path, size, hash) of the files in RECORD whose line contains one of the words.

    TensorFlow's RECORD has 20,000 lines, so this searches for the words instead of parsing all lines.
    """
    path = os.path.join(info, "RECORD")
    if (get_size(path) or -1) < 0:
        return []  # missing, or not a regular file (reading a FIFO would not end)
    try:
        with open(path, "rb") as stream:
            content = stream.read(MAX_RECORD_BYTES)
    except (IOError, OSError):
        return []
    text, line_starts, files = content.decode("utf-8", "replace"), set(), []
    for word in words:
        position = text.find(word)
        while position >= 0 and len(files) < MAX_LINES:
            lowest, highest = max(0, position - MAX_LINE_CHARS), position + MAX_LINE_CHARS
            start, end = text.rfind("\n", lowest, position) + 1, text.find("\n", position, highest)
            # If an end of the line was not found, the line is too long.
            is_complete = (start or not lowest) and (end >= 0 or highest >= len(text))
            end = end if end >= 0 else highest
            if is_complete and start not in line_starts:
                line_starts.add(start)
                fields = text[start:end].rstrip("\r").rsplit(",", 2)
                if len(fields) == 3 and not fields[0].startswith(("/", "..", '"')):
                    files.append((start, fields[0], int(fields[2]) if fields[2].isdigit() else None, fields[1]))
            position = text.find(word, end)
    return [entry[1:] for entry in sorted(files)]


def compare_files(folder, files):
    """Return the missing files of a wheel, and the facts about files whose size differs from RECORD.

    Files that this user may not read are added to REFUSED_PATHS.
    """
    missing, changed = [], []
    for relative_path, recorded_size, _ in files:
        path = os.path.join(folder, relative_path)
        size = get_size(path)
        if size is None:
            missing.append(relative_path)
        elif not os.access(path, os.R_OK):
            if path not in REFUSED_PATHS:
                REFUSED_PATHS.append(path)
        elif recorded_size is not None and size != recorded_size:
            change = {"path": relative_path, "recorded": recorded_size, "size": size, "cut": size >= 0 and is_truncated(path, size)}
            changed.append(dict(change, foreign=".so" in relative_path and size >= 0 and is_foreign_object(path)))
    return missing[:50], changed[:50]


def find_shared_files(owners_by_file):
    """Return the files that several distributions own, and which of them wrote the present file.

    The size, the hash or the time of installation show which distribution that is; None if it is unknown.
    """
    result = []
    for (folder, name), owners in sorted(owners_by_file.items()):
        if len(owners) < 2:
            continue
        path = os.path.join(folder, name)
        size = get_size(path)
        candidates = [owner for owner in owners if owner["size"] is None or owner["size"] == size]
        if len(candidates) > 1 and size is not None and 0 <= size <= 4 << 20:
            digest = hash_file_prefix(path)
            candidates = [owner for owner in candidates if owner["hash"] in ("", digest)] or candidates
        if len(candidates) > 1:
            candidates.sort(key=lambda owner: -owner["installed"])
            # If both were installed within a minute, it is unknown which was last.
            if candidates[0]["installed"] - candidates[1]["installed"] < 60:
                candidates = []
        result.append(
            {
                "path": name,
                "location": folder,
                "owners": [[owner["name"], owner["version"]] for owner in owners],
                "now": [candidates[0]["name"], candidates[0]["version"]] if candidates and size is not None else None,
            }
        )
    return result[:200]


def get_install_time(info):
    """Return when a distribution was installed: the modification time of RECORD, or 0.0 if there is none."""
    try:
        return os.stat(os.path.join(info, "RECORD")).st_mtime
    except OSError:
        return 0.0


def list_differences(folder, files, installed_at, is_tensorflow):
    """Return [path, difference] of the modules that differ from RECORD.

    A difference is "missing", "empty", "cut", "changed", "altered", "unreadable" or "syntax". Syntax errors are
    detected only if `is_tensorflow` is true.
    """
    result = []
    prefix = os.path.join(folder, "")
    for relative_path, recorded_size, recorded_hash in files[:MAX_MODULES]:
        if "test" in relative_path and TEST_FOLDER.search(relative_path) or not (relative_path.endswith(".py") or MODULE_FILE.search(relative_path)):
            continue
        path = prefix + relative_path
        difference = None
        try:
            status = os.stat(path)
            if not status.st_mode & 4 and not os.access(path, os.R_OK):
                difference = "unreadable"
            elif recorded_size is not None and status.st_size != recorded_size:
                difference = "empty" if not status.st_size else "cut" if status.st_size < recorded_size else "changed"
                if difference in ("cut", "changed") and not path.endswith(".py"):
                    # A stripped object is shorter, too.
                    difference = "altered" if is_foreign_object(path) else "cut" if is_truncated(path, status.st_size) else "changed"
                elif is_tensorflow and path.endswith(".py") and difference != "empty":
                    difference = "syntax" if has_syntax_error(path) else difference
            elif (
                status.st_mtime > installed_at + 2
                and recorded_hash.startswith("sha256=")
                and status.st_size <= REMAINING_HASH_BYTES[0]
            ):
                # Written after the installation: the size is the same, but the content may differ.
                REMAINING_HASH_BYTES[0] -= status.st_size
                if hash_file_prefix(path, status.st_size) != recorded_hash:
                    difference = "altered"
                    if is_tensorflow and path.endswith(".py"):
                        difference = "syntax" if has_syntax_error(path) else "changed"
                    elif is_tensorflow and not is_foreign_object(path):
                        difference = "changed"  # patchelf, strip and conda-pack change objects that work
        except (IOError, OSError) as error:
            difference = "unreadable" if error.errno == errno.EACCES else "missing"
        if difference:
            result.append([relative_path, difference])
            if len(result) == MAX_DIFFERENCES:
                break
    return result


def find_numpy_1_extension(folder, files):
    """Return the path of an extension module that was compiled for NumPy 1 only; None if none is seen.

    The smallest modules decide. The first that uses NumPy stands for the whole distribution.
    """
    sizes = sorted((size or 0, path) for path, size, _ in files if ".so" in path and not TEST_FOLDER.search(path))
    for _, path in sizes[:MAX_EXTENSIONS]:
        try:
            with open(os.path.join(folder, path), "rb") as stream:
                content = stream.read(MAX_EXTENSION_BYTES)
        except (IOError, OSError):
            continue
        if NUMPY_2_NAME in content:
            return None
        if NUMPY_1_NAME in content:
            return path
    return None


def find_foreign_extension(files):
    """Return the path of an extension module for another Python; None if there is none, or one for this Python too."""
    try:
        from importlib.machinery import EXTENSION_SUFFIXES
    except ImportError:  # Python 2 has no tags
        return None
    tagged = [path for path, _, _ in files if TAGGED_EXTENSION.search(path) and not TEST_FOLDER.search(path)]
    return tagged[0] if tagged and not any(path.endswith(tuple(EXTENSION_SUFFIXES[:-1])) for path in tagged) else None


def list_registered(path):
    """Return (normalised name, original name and version, folder, info path) of each distribution."""
    registered, seen = [], set()
    for folder in path:
        for entry in list_names(folder):
            base, dot, extension = entry.rpartition(".")
            if extension not in ("dist-info", "egg-info") or not dot:
                continue
            full_path = os.path.join(folder, entry)
            real_path = os.path.realpath(full_path)
            if real_path not in seen:
                seen.add(real_path)
                registered.append((normalize_name(base.split("-")[0]), base, folder, full_path))
    return registered


def map_required_metadata(registered):
    """Return the metadata of TensorFlow, of OPTIONAL_PACKAGES and of all their requirements, by name.

    Indirect requirements are included. If a distribution is installed twice, the first one on the path counts.
    """
    path_by_name = {}
    for name, _, _, full_path in registered:
        path_by_name.setdefault(name, full_path)
    pending = [name for name in path_by_name if TENSORFLOW_NAME.match(name) or name in OPTIONAL_PACKAGES]
    metadata = {}
    while pending:
        name = pending.pop()
        if name in metadata or name not in path_by_name:
            continue
        metadata[name] = read_metadata(path_by_name[name])
        for line in metadata[name]["requires"]:
            if "extra" not in line.partition(";")[2]:
                pending.append(normalize_name(re.split(r"[^A-Za-z0-9._-]", line.strip(), maxsplit=1)[0]))
    return metadata


def list_distributions(path):
    """Return the facts about the relevant distributions, and the files that several of them own."""
    registered = list_registered(path)
    needed_metadata = map_required_metadata(registered)
    result, seen_names, owners_by_file = [], set(), {}
    numpy_name = next((base for name, base, _, _ in registered if name == "numpy"), "")
    is_numpy_2 = re.match(r"(?i)numpy-(?!0|1\.)", numpy_name) is not None
    for name, base, folder, full_path in registered:
        spelling = base.split("-")[0]
        if name not in needed_metadata and not RELEVANT_PACKAGE.match(spelling):
            continue
        is_first = name in needed_metadata and name not in seen_names
        seen_names.add(name)
        metadata = needed_metadata[name] if is_first else read_metadata(full_path)
        has_libraries = LIBRARY_PACKAGE.match(spelling)
        words = (MODULE_WORDS if is_first else (".so",)) + (TOOL_WORDS if has_libraries else ())
        recorded_files = list_recorded_files(full_path, words) if is_first or has_libraries else []
        nvidia_requirements = [line for line in metadata["requires"] if line.lower().startswith("nvidia")]
        version = metadata.get("version") or (base.split("-")[1] if "-" in base else "")
        result.append(
            {
                # "~ensorflow" is a copy that pip makes during a replacement and sometimes does not remove.
                "name": spelling if spelling[:1] == "~" else metadata.get("name") or spelling,
                "version": version,
                "location": folder,
                "real_location": os.path.realpath(folder),
                "installer": metadata["installer"],
                "requires": metadata["requires"] if name in needed_metadata else [],
                "pins": [] if TENSORFLOW_NAME.match(spelling) else nvidia_requirements[:60],
                "differs": list_differences(folder, recorded_files, get_install_time(full_path), bool(TENSORFLOW_NAME.match(name))) if is_first else [],
            }
        )
        if is_numpy_2 and is_first and name != "numpy" and any(re.match(r"(?i)numpy\b", line) for line in metadata["requires"]):
            extension = None if TENSORFLOW_NAME.match(name) else find_numpy_1_extension(folder, recorded_files)
            result[-1]["differs"] += [[extension, "numpy-1"]] if extension else []
        if is_first:
            extension = find_foreign_extension(recorded_files)
            result[-1]["differs"] += [[extension, "other-python"]] if extension else []
        if has_libraries:
            # cuDNN opens its sub-libraries only when they are used, so the loader does not report a missing one.
            files = [entry for entry in recorded_files if LIBRARY_FILE.search(entry[0])][:MAX_FILES]
            missing, changed = compare_files(folder, files)
            own_files = [name_in_record for name_in_record, _, _ in files] if spelling.lower().startswith("nvidia") else []
            result[-1].update({"lost": missing, "changed": changed, "files": own_files})
            for name_in_record, size, digest in files:
                owners_by_file.setdefault((folder, name_in_record), []).append(
                    {
                        "name": result[-1]["name"],
                        "version": version,
                        "size": size,
                        "hash": digest,
                        "installed": get_install_time(full_path),
                    }
                )
    return result, find_shared_files(owners_by_file)


def list_missing_requirements(path, installed):
    """Return the packages that TensorFlow requires, not counting extras, and that are not installed."""
    installed_names = set()
    for folder in path:
        for entry in list_names(folder):
            base, _, extension = entry.rpartition(".")
            if extension in ("dist-info", "egg-info"):
                installed_names.add(normalize_name(base.split("-")[0]))
    required = set()
    for distribution in installed:
        for line in distribution["requires"] if TENSORFLOW_NAME.match(distribution["name"]) else ():
            if "extra" not in line.partition(";")[2]:
                required.add(normalize_name(re.split(r"[^A-Za-z0-9._-]", line.strip(), maxsplit=1)[0]))
    return sorted(required - installed_names - {""})


def list_missing_extensions():
    """Return the modules of the standard library whose compiled part Python was built without."""
    if sys.version_info[0] == 2:
        return []
    from importlib.util import find_spec

    return [module for module in COMPILED_MODULES if find_spec(module if module == "zlib" else "_" + module) is None]


def list_companions(path):
    """Return the modules in COMPANIONS that exist, even if their distribution is not registered."""
    modules = []
    for name in COMPANION_MODULES:
        relative = name.replace(".", os.sep)
        for folder in path:
            module_path = os.path.join(folder, relative)
            if os.path.isdir(module_path) or os.path.isfile(module_path + ".py"):
                modules.append(name)
                if os.path.isdir(module_path) and not os.access(module_path, os.R_OK | os.X_OK):
                    REFUSED_PATHS.append(module_path)
                break
    return modules


def list_conda_packages(prefix):
    """Return the relevant packages of a conda environment."""
    result = []
    for entry in list_names(os.path.join(prefix, "conda-meta")):
        if entry.endswith(".json") and entry.count("-") >= 2:
            name, version, build = entry[:-5].rsplit("-", 2)
            if RELEVANT_PACKAGE.match(name) or re.match(r"^(cuda|cudnn|libcu|libnv|nccl|_tflow|libgcc|libstdc)", name):
                result.append({"name": name, "version": version, "build": build})
    return result
