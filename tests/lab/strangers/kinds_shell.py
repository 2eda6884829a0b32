"""Changes to the shell and the working folder: variables, shadowing libraries, overlays and shadowing modules."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from lab import standins
from lab.strangers.grammar import OWN, VARIABLE_SOURCES, Kind, Meaning, make_causes
from lab.strangers.ground import Undrawn
from lab.strangers.kinds_files import damage_file, pick_library
from lab.strangers.kinds_packages import explain_companion, find_cuda_causes, install_wheels, pick_version

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from lab.strangers.ground import BaseContents
    from lab.strangers.person import User

# -- Variables ---------------------------------------------------------------------------------------

HIDING = (
    "",
    "-1",
    "1",
    "0",
    "NoDevFiles",
    "2,0",
    "GPU-deadbeef",
    "0,0",
    "1gpu",
    "all",
    "void",
    " 0",
    "0,7,1",
    "0,3,1",
    "1,5,0",
)
SWITCHES = (
    *(("TF_FORCE_GPU_ALLOW_GROWTH", value) for value in ("true", "banana")),
    *(("TF_USE_LEGACY_KERAS", value) for value in ("1", "True")),
    *(("XLA_FLAGS", value) for value in ("--xla_gpu_no_such_flag=1", "--xla_gpu_cuda_data_dir=/nowhere")),
    ("TF_XLA_FLAGS", "--tf_xla_auto_jit=2"),
    ("TF_XLA_FLAGS", "--tf_xla_no_such_flag"),
    ("TF_ENABLED_DEVICE_TYPES", "CPU"),
    ("TF_CPP_MIN_LOG_LEVEL", "3"),
    ("TF_CPP_MAX_VLOG_LEVEL", "1"),
    ("TF_GPU_ALLOCATOR", "cuda_malloc_async"),
    ("TF_GPU_THREAD_MODE", "gpu_private"),
    ("TF_ENABLE_ONEDNN_OPTS", "0"),
    ("TF_MIN_GPU_MULTIPROCESSOR_COUNT", "200"),
    ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
    ("NVIDIA_VISIBLE_DEVICES", "void"),
    ("KERAS_BACKEND", "jax"),
    ("KERAS_BACKEND", "theano"),
    *(("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", value) for value in ("python", "cpp", "upb")),
)
STARTING = (
    ("PYTHONNOUSERSITE", "1"),
    ("PYTHONSAFEPATH", "1"),
    ("PYTHONHOME", "/nowhere"),
    ("PYTHONHOME", "/usr"),
    ("PYTHONPATH", "/nowhere"),
    ("PYTHONPATH", ""),
    ("PYTHONOPTIMIZE", "2"),
    ("PYTHONWARNINGS", "error"),
    ("PYTHONWARNINGS", "ignore"),
    ("PYTHONUSERBASE", "/nowhere"),
    ("PYTHONSTARTUP", "/nowhere/startup.py"),
    ("VIRTUAL_ENV", "/nowhere/env"),
    ("CONDA_PREFIX", "/nowhere/conda"),
)
"""Variables that are read when Python starts, which only a shell can set."""
_IN_SHELLS = (OWN, OWN, OWN, "shell", "activate", "conda")


def _draw_door(rng: random.Random, doors: tuple[str, ...] = (OWN, OWN, *VARIABLE_SOURCES)) -> str:
    return rng.choice(doors)


def _draw_hiding(rng: random.Random, _ground: BaseContents) -> tuple[str, ...] | None:
    return _draw_door(rng), "CUDA_VISIBLE_DEVICES", rng.choice(HIDING)


def _draw_switch(rng: random.Random, _ground: BaseContents) -> tuple[str, ...] | None:
    return _draw_door(rng), *rng.choice(SWITCHES)


def _draw_starting(rng: random.Random, _ground: BaseContents) -> tuple[str, ...] | None:
    return _draw_door(rng, _IN_SHELLS), *rng.choice(STARTING)


def _set_variable(person: User, arguments: tuple[str, ...]) -> None:
    door, name, value = arguments
    person.set_variable(door, name, value)


def is_fixable_at(door: str) -> bool | None:
    """Return whether `fix` should repair a variable that is set there.

    Not in the caller's shell; None for Python's own files.
    """
    return {"shell": False, "activate": True, "conda": True}.get(door)


def _explain_hiding(arguments: tuple[str, ...]) -> Meaning:
    right = make_causes("hidden-by-env")
    return Meaning(right, later=right, fix=is_fixable_at(arguments[0]))


def _explain_switch(arguments: tuple[str, ...]) -> Meaning:
    right = make_causes("hidden-by-env", "package-conflict")
    if arguments[1].startswith("PROTOCOL"):
        right |= make_causes("protobuf-conflict")
    return Meaning(right, by_hand=None, fix=None)


def _explain_starting(arguments: tuple[str, ...]) -> Meaning:
    causes_by_name = {
        "PYTHONHOME": make_causes("python-unusable"),
        "PYTHONPATH": make_causes("shadowed-module"),
        "VIRTUAL_ENV": make_causes("python-unusable", "tensorflow-missing"),
        "CONDA_PREFIX": make_causes("python-unusable", "tensorflow-missing"),
    }
    return Meaning(
        causes_by_name.get(arguments[1], make_causes("hidden-by-env", "package-conflict")),
        by_hand=None,
        fix=None,
    )


# -- Shadowing libraries -----------------------------------------------------------------------------

_STATES = ("emptied", "cut", "needs-more", "works", "wrong-machine", "symbols", "text")


def _get_soname(name: str) -> str:
    """Return 'libcufft.so.11' for 'nvidia/cufft/lib/libcufft.so.11'."""
    return name.rpartition("/")[2]


def _draw_hider(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    library = pick_library(rng, ground)
    return (_draw_door(rng, _IN_SHELLS), _get_soname(library), rng.choice(_STATES)) if library else None


def _add_hiding_library(person: User, arguments: tuple[str, ...]) -> None:
    door, soname, how = arguments
    folder = person.folder("usr/local/cuda-old/lib64")
    path = folder / soname
    needs = ("libnothere.so.7",) if how == "needs-more" else ()
    imports = ("a_function_that_nobody_has",) if how == "symbols" else ()
    standins.write_library(path, person.cache, needs=needs, imports=imports)
    if how not in ("needs-more", "works", "symbols"):
        damage_file(path, how, 40)
    person.set_variable(door, "LD_LIBRARY_PATH", str(folder), front=True)


def _explain_hider(arguments: tuple[str, ...]) -> Meaning:
    door, soname, how = arguments
    right = make_causes("libs-wrong-version", "libs-transitive")
    if how not in ("needs-more", "works"):
        right |= make_causes("damaged-file")
    if "cudnn" in soname:
        right |= make_causes("cudnn-version-mismatch")
    return Meaning(right, later=right, fix=is_fixable_at(door))


def _draw_machine_library(rng: random.Random, _ground: BaseContents) -> tuple[str, ...] | None:
    return _draw_door(rng, _IN_SHELLS), rng.choice(
        ("libstdc++.so.6", "libz.so.1", "libgcc_s.so.1", "libcuda.so.1")
    )


def _hide_machine_library(person: User, arguments: tuple[str, ...]) -> None:
    door, soname = arguments
    folder = person.folder("opt/tool/lib")
    if soname == standins.CUDA:
        standins.write_stub_driver(folder / soname, person.cache)
    else:
        standins.write_library(folder / soname, person.cache)
    person.set_variable(door, "LD_LIBRARY_PATH", str(folder), front=True)


def _explain_machine_library(arguments: tuple[str, ...]) -> Meaning:
    door, soname = arguments
    if soname == standins.CUDA:
        return Meaning(make_causes("stub-libcuda"), fix=is_fixable_at(door))
    right = make_causes(
        "libstdcxx-too-old", "libs-wrong-version", "damaged-file", "libs-transitive", "python-unusable"
    )
    return Meaning(right, later=right, fix=is_fixable_at(door))


def _draw_path(rng: random.Random, _ground: BaseContents) -> tuple[str, ...] | None:
    return _draw_door(rng, _IN_SHELLS), rng.choice(("nowhere", "empty", "nothing"))


def _replace_path(person: User, arguments: tuple[str, ...]) -> None:
    door, replacement = arguments
    value = {"nowhere": "/nowhere/lib64", "empty": str(person.folder("usr/lib64")), "nothing": ""}[
        replacement
    ]
    person.set_variable(door, "LD_LIBRARY_PATH", value)


def _explain_path(words: tuple[str, ...]) -> Meaning:
    right = make_causes("libs-not-on-path", "libs-not-installed", "cudnn-missing", "import-missing-cuda-lib")
    return Meaning(right, by_hand=None, fix=None)


def _draw_preload(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    preloaded = rng.choice(("nowhere", "stub", "library", "not-elf", "tcmalloc"))
    soname = _get_soname(pick_library(rng, ground) or "libcudart.so.12")
    return _draw_door(rng, _IN_SHELLS), preloaded, soname


def _set_preload(person: User, arguments: tuple[str, ...]) -> None:
    door, preloaded, soname = arguments
    folder = person.folder("opt/preload")
    path = {
        "nowhere": folder / "libgone.so",
        "stub": folder / "libcuda.so",
        "library": folder / soname,
        "not-elf": folder / "libtext.so",
        "tcmalloc": folder / "libtcmalloc.so.4",
    }[preloaded]
    if preloaded == "stub":
        standins.write_stub_driver(path, person.cache)
    elif preloaded in ("library", "tcmalloc"):
        standins.write_library(path, person.cache)
    elif preloaded == "not-elf":
        path.write_text("no library\n", encoding="utf-8")
    person.set_variable(door, "LD_PRELOAD", str(path))


def _explain_preload(arguments: tuple[str, ...]) -> Meaning:
    door, preloaded, _ = arguments
    right = (
        make_causes("stub-libcuda")
        if preloaded == "stub"
        else find_cuda_causes("cudnn") | make_causes("damaged-file")
    )
    return Meaning(right, later=right, fix=is_fixable_at(door))


# -- Overlays ----------------------------------------------------------------------------------------

_OVERLAID = (
    "numpy",
    "protobuf",
    "typing-extensions",
    "keras",
    "six",
    "absl-py",
    "wrapt",
    "packaging",
    "h5py",
)


def _draw_overlay(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    how = rng.choice(("PYTHONPATH", "PYTHONPATH", "pth", "user"))
    name = rng.choice(_OVERLAID)
    if rng.random() < 0.12 and ground.release >= (2, 8):
        versions = [candidate for candidate in ground.versions("tensorflow-cpu") if "rc" not in candidate]
        name, version = "tensorflow-cpu", rng.choice(versions[:3])
    else:
        version = pick_version(rng, ground.versions(name))
    return how, _draw_door(rng, (OWN, OWN, "shell")), name, version


def _add_overlay(person: User, arguments: tuple[str, ...]) -> None:
    how, door, name, version = arguments
    if how == "user":
        python = ".".join(person.site.parent.name.removeprefix("python").split("."))
        folder = person.home / f".local/lib/python{python}/site-packages"
        config = person.root / "pyvenv.cfg"
        text = config.read_text(encoding="utf-8")
        config.unlink()  # a virtual environment uses the user's packages only together with the system's
        config.write_text(
            text.replace("include-system-site-packages = false", "include-system-site-packages = true"),
            encoding="utf-8",
        )
    else:
        folder = person.folder("shared libs/python")
    install_wheels(person, "--no-deps", "--target", str(folder), f"{name}=={version}")
    if how == "PYTHONPATH":
        person.set_variable(door, "PYTHONPATH", str(folder), front=True)
    elif how == "pth":
        line = f"import sys; sys.path.insert(0, {str(folder)!r})\n" if door == "shell" else f"{folder}\n"
        (person.site / "zz_shared.pth").write_text(line, encoding="utf-8")


def _explain_overlay(arguments: tuple[str, ...]) -> Meaning:
    name = arguments[2]
    right = make_causes("shadowed-module")
    right |= make_causes("cpu-only-build") if name == "tensorflow-cpu" else explain_companion(name).causes
    return Meaning(right, later=right, fix=None)


# -- Shadowing modules -----------------------------------------------------------------------------------------

_SHADOWS = (
    *(
        "tensorflow.py",
        "tensorflow/",
        "numpy.py",
        "keras/",
        "keras.py",
        "random.py",
        "types.py",
        "logging.py",
    ),
    *(
        "six.py",
        "typing_extensions.py",
        "google/",
        "google.py",
        "packaging.py",
        "test.py",
        "secrets.py",
        "queue.py",
    ),
    *(
        "inspect.py",
        "platform.py",
        "copy.py",
        "string.py",
        "token.py",
        "h5py.py",
        "wrapt.py",
        "absl.py",
        "enum.py",
    ),
    *(
        "json/",
        "utils.py",
        "termcolor.py",
        "signal.py",
        "time.py",
        "socket.py",
        "pandas.py",
        "jax/",
        "array.py",
    ),
    *(
        "calendar.py",
        "email.py",
        "statistics.py",
        "profile.py",
        "code.py",
        "abc.py",
        "io.py",
        "ssl.py",
        "http/",
    ),
)
_CONTENTS = ("print", "empty", "raises", "own-import")


def _draw_shadow(rng: random.Random, _ground: BaseContents) -> tuple[str, ...] | None:
    return rng.choice(("here", "here", "here", "PYTHONPATH")), rng.choice(_SHADOWS), rng.choice(_CONTENTS)


def _add_shadow(person: User, arguments: tuple[str, ...]) -> None:
    location, name, content = arguments
    folder = person.here if location == "here" else person.folder("my code")
    text = {
        "print": "print('hello')\n",
        "empty": "",
        "raises": "raise SystemExit('my own program')\n",
        "own-import": "import tensorflow as tf\n\nprint(tf.config.list_physical_devices('GPU'))\n",
    }[content]
    path: Path = folder / name
    if name.endswith("/"):
        path.mkdir(parents=True, exist_ok=True)
        path /= "__init__.py" if content != "empty" else "notes.txt"
    path.write_text(text, encoding="utf-8")
    if location == "PYTHONPATH":
        person.set_variable("shell", "PYTHONPATH", str(folder), front=True)


def _explain_shadow(_words: tuple[str, ...]) -> Meaning:
    return Meaning(make_causes("shadowed-module"), later=make_causes("shadowed-module"), fix=None)


def _draw_site(rng: random.Random, _ground: BaseContents) -> tuple[str, ...] | None:
    return (
        rng.choice(("broken-pth", "pth-nowhere", "sitecustomize-raises", "egg-link", "own-sitecustomize")),
    )


def _break_site(person: User, arguments: tuple[str, ...]) -> None:
    site = person.site
    texts = {
        "broken-pth": ("zz_old.pth", "import no_such_module_at_all\n"),
        "pth-nowhere": ("zz_old.pth", "/nowhere/src\n"),
        "sitecustomize-raises": ("sitecustomize.py", "raise RuntimeError('old')\n"),
        "egg-link": ("easy-install.pth", "/nowhere/project\n"),
        "own-sitecustomize": ("sitecustomize.py", "import sys\nsys.setrecursionlimit(3000)\n"),
    }
    name, text = texts[arguments[0]]
    path = site / name
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    path.unlink(missing_ok=True)
    path.write_text(before + text, encoding="utf-8")


def _explain_site(_words: tuple[str, ...]) -> Meaning:
    right = make_causes("python-unusable", "damaged-file", "package-conflict")
    return Meaning(right, by_hand=None, fix=None)


def _draw_target(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    name = rng.choice(("numpy", "protobuf", "typing-extensions", "six"))
    return name, pick_version(rng, ground.versions(name))


def _install_target(person: User, arguments: tuple[str, ...]) -> None:
    """Run `pip install --target .`, which fills the working folder with packages."""
    name, version = arguments
    shutil.rmtree(person.here)
    install_wheels(person, "--no-deps", "--target", str(person.work / "project"), f"{name}=={version}")


# -- Files in the home folder, and what comes first --------------------------------------------------


def _draw_keras_file(rng: random.Random, _ground: BaseContents) -> tuple[str, ...] | None:
    return rng.choice(("torch", "jax", "theano", "tensorflow", "")), rng.choice(
        ("home", "home", "KERAS_HOME")
    )


def _write_keras_file(person: User, arguments: tuple[str, ...]) -> None:
    backend, place = arguments
    folder = person.home / ".keras" if place == "home" else person.folder("keras")
    folder.mkdir(exist_ok=True)
    text = f'{{"floatx": "float32", "epsilon": 1e-07, "backend": "{backend}"}}' if backend else "{}"
    (folder / "keras.json").write_text(text + "\n", encoding="utf-8")
    if place == "KERAS_HOME":
        person.set_variable("shell", "KERAS_HOME", str(folder))


def _draw_profile(rng: random.Random, _ground: BaseContents) -> tuple[str, ...] | None:
    return rng.choice((".bashrc", ".profile")), "CUDA_VISIBLE_DEVICES", rng.choice(("", "-1", "NoDevFiles"))


def _set_in_profile(person: User, arguments: tuple[str, ...]) -> None:
    """Export a variable in a file that the user's shell reads when it starts."""
    file, name, value = arguments
    (person.home / file).write_text(f"# mine\nexport {name}={value!r}\n", encoding="utf-8")
    person.set_variable("shell", name, value)


def _draw_other_python(rng: random.Random, _ground: BaseContents) -> tuple[str, ...] | None:
    return (rng.choice(("shim", "link")),)


def _put_python_first(person: User, arguments: tuple[str, ...]) -> None:
    """Put another Python before the activated environment on PATH, as ~/.bashrc does for pyenv's shims."""
    if person.story.way != "activated":
        message = "the environment is not activated"
        raise Undrawn(message)
    folder = person.folder("elsewhere/shims" if arguments[0] == "shim" else "elsewhere/bin")
    for name in ("python", "python3"):
        path = folder / name
        if arguments[0] == "link":
            path.symlink_to("/usr/bin/python3")
        else:
            path.write_text('#!/bin/sh\nexec /usr/bin/python3 "$@"\n', encoding="utf-8")
            path.chmod(0o755)
    person.append(person.root / "bin" / "activate", f"PATH={folder}:$PATH", "export PATH")


def _draw_empty_entry(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    library = pick_library(rng, ground)
    if library is None or "/" not in library:  # of a toolkit outside the environment
        return None
    return rng.choice((":{}", "{}:", "/nowhere::{}")), library, rng.choice(("cut", "emptied", "works"))


def _add_empty_entry(person: User, arguments: tuple[str, ...]) -> None:
    """Make an empty entry of LD_LIBRARY_PATH, in a working folder that contains a library of that name."""
    pattern, library, state = arguments
    before = person.variables.get("LD_LIBRARY_PATH", "/nowhere/lib")
    person.set_variable("shell", "LD_LIBRARY_PATH", pattern.format(before))
    copy = person.here / _get_soname(library)
    shutil.copy2(person.site / library, copy)
    if state != "works":
        damage_file(copy, state, 50)


KINDS = (
    Kind(
        "keras-file",
        4,
        _draw_keras_file,
        _write_keras_file,
        lambda _words: Meaning(
            make_causes("hidden-by-env"), later=make_causes("package-conflict", "hidden-by-env"), fix=None
        ),
    ),
    Kind(
        "profile-variable",
        4,
        _draw_profile,
        _set_in_profile,
        lambda _words: Meaning(make_causes("hidden-by-env"), fix=False),
    ),
    Kind(
        "other-python",
        4,
        _draw_other_python,
        _put_python_first,
        lambda _words: Meaning(make_causes("python-unusable", "tensorflow-missing"), fix=None),
        group="place",
    ),
    Kind(
        "empty-entry",
        4,
        _draw_empty_entry,
        _add_empty_entry,
        lambda _words: Meaning(make_causes("damaged-file"), later=make_causes("damaged-file"), fix=None),
        group="search-path",
    ),
    Kind("hiding-variable", 8, _draw_hiding, _set_variable, _explain_hiding),
    Kind("switch", 8, _draw_switch, _set_variable, _explain_switch),
    Kind("starting-variable", 5, _draw_starting, _set_variable, _explain_starting),
    Kind("hiding-library", 10, _draw_hider, _add_hiding_library, _explain_hider),
    Kind("machine-library", 3, _draw_machine_library, _hide_machine_library, _explain_machine_library),
    Kind("search-path", 3, _draw_path, _replace_path, _explain_path, group="search-path"),
    Kind("preload", 3, _draw_preload, _set_preload, _explain_preload, group="preload"),
    Kind("overlay", 8, _draw_overlay, _add_overlay, _explain_overlay, group="overlay"),
    Kind("shadow", 9, _draw_shadow, _add_shadow, _explain_shadow),
    Kind("site-file", 2, _draw_site, _break_site, _explain_site),
    Kind(
        "target-here",
        2,
        _draw_target,
        _install_target,
        lambda words: _explain_overlay(("", "", words[0])),
        group="overlay",
    ),
)
