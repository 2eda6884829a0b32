"""Changes to packages: companions at other versions, removed or halved; the CUDA wheels; TensorFlow itself."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from lab.strangers.grammar import Kind, Meaning, make_causes
from lab.strangers.ground import BaseContents, Undrawn, normalize_name

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from lab.strangers.person import User

BESIDE = (
    *(
        "pandas",
        "scipy",
        "jax",
        "tf-keras",
        "tensorflow-io-gcs-filesystem",
        "tensorboard",
        "dm-tree",
        "pillow",
    ),
    *(
        "matplotlib",
        "google-api-core",
        "pydot",
        "tensorflow-estimator",
        "portpicker",
        "ml-dtypes",
        "cloudpickle",
    ),
    *("tblib", "dill", "psutil", "pyarrow", "numexpr", "bottleneck", "tensorflow-probability"),
)
"""Packages that users have beside TensorFlow; TensorFlow or Keras imports some of them if they are installed.
"""
SMALL = ("cuda-runtime", "nvjitlink", "curand", "cuda-cupti", "cuda-nvcc", "cuda-nvrtc", "cufft")
"""Parts of CUDA whose wheels are below 250 MB."""
_CAUSES_OF = {
    "numpy": make_causes("numpy-abi"),
    "ml-dtypes": make_causes("numpy-abi"),
    "h5py": make_causes("numpy-abi"),
    "pandas": make_causes("numpy-abi"),
    "scipy": make_causes("numpy-abi"),
    "jax": make_causes("numpy-abi"),
    "protobuf": make_causes("protobuf-conflict"),
    "googleapis-common-protos": make_causes("protobuf-conflict"),
    "tensorboard": make_causes("protobuf-conflict"),
    "google-api-core": make_causes("protobuf-conflict"),
}
_CAUSES_OF_CUDA = {
    "cudnn": make_causes("cudnn-missing", "cudnn-version-mismatch"),
    "nvjitlink": make_causes("libs-transitive"),
    "cuda-nvcc": make_causes("libdevice-or-ptxas-missing"),
    "cuda-cupti": make_causes("cupti-missing"),
    "nccl": make_causes("nccl-failure"),
}


def explain_companion(name: str) -> Meaning:
    """Return the meaning of a companion whose version or build makes TensorFlow's import fail."""
    return Meaning(make_causes("package-conflict") | _CAUSES_OF.get(name, frozenset()))


def find_cuda_causes(part: str) -> frozenset:
    """Return the causes of a part of CUDA ("cudnn", "nvjitlink") that is missing or of another version."""
    part_causes = next((names for stem, names in _CAUSES_OF_CUDA.items() if part.endswith(stem)), frozenset())
    return make_causes("libs-not-installed", "libs-wrong-version", "libs-transitive") | part_causes


def pick_version(rng: random.Random, versions: list[str]) -> str:
    """Return one of the versions, given newest first.

    Each minor release is equally likely, however many patches it has.
    """
    by_release: dict[str, list[str]] = {}
    for version in versions:
        by_release.setdefault(".".join(version.split(".")[:2]), []).append(version)
    return rng.choice(by_release[rng.choice(list(by_release))])


_IMPORTED_PACKAGES = (
    *(
        "numpy",
        "protobuf",
        "typing-extensions",
        "ml-dtypes",
        "h5py",
        "wrapt",
        "keras",
        "six",
        "absl-py",
        "gast",
    ),
    *(
        "astunparse",
        "flatbuffers",
        "opt-einsum",
        "termcolor",
        "packaging",
        "google-pasta",
        "setuptools",
        "rich",
    ),
    *("optree", "namex", "requests", "tensorflow-estimator", "keras-preprocessing", "tensorboard", "numpy"),
)


def pick_companion(rng: random.Random, ground: BaseContents) -> str:
    """Return a distribution, mostly one that TensorFlow or Keras imports."""
    imported = [name for name in _IMPORTED_PACKAGES if name in ground.companions]
    if imported and rng.random() < 0.75:
        return rng.choice(imported)
    return rng.choice(sorted(ground.companions))


# -- Companions --------------------------------------------------------------------------------------


def _draw_version(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    name = pick_companion(rng, ground)
    version = pick_version(rng, ground.versions(name))
    if version == ground.companions[name]:
        return None
    return name, version, rng.choice(("alone", "alone", "with-deps"))


def _draw_beside(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    name = rng.choice(BESIDE)
    if name in ground.companions:
        return None
    return name, pick_version(rng, ground.versions(name)), rng.choice(("alone", "with-deps", "with-deps"))


def _install(person: User, arguments: tuple[str, ...]) -> None:
    name, version, deps = arguments
    install_wheels(person, *(("--no-deps",) if deps == "alone" else ()), f"{name}=={version}")


def install_wheels(person: User, *arguments: str) -> None:
    """Install wheels. Raise Undrawn if there is no such wheel or the index does not answer."""
    try:
        person.install("--only-binary", ":all:", *arguments)
    except subprocess.CalledProcessError as error:
        message = f"cannot install {' '.join(arguments)}: {(error.stderr or b'')[-300:]!r}"
        raise Undrawn(message) from error
    except subprocess.TimeoutExpired as error:
        message = f"cannot install {' '.join(arguments)} in time"
        raise Undrawn(message) from error


def _draw_dropped(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    return (pick_companion(rng, ground),)


def _drop(person: User, names: tuple[str, ...]) -> None:
    try:
        person.uninstall(*names)
    except subprocess.CalledProcessError as error:
        message = f"cannot uninstall {names}"
        raise Undrawn(message) from error


# -- Half removed ------------------------------------------------------------------------------------

_HALVES = ("files-gone", "record-gone", "some-gone", "leftover")


def _draw_halved(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    return pick_companion(rng, ground), rng.choice(_HALVES), str(rng.randrange(1000))


def _halve(person: User, arguments: tuple[str, ...]) -> None:
    name, how, number = arguments
    info, files = find_distribution(person, name)
    if how == "record-gone":
        shutil.rmtree(info)
        return
    top_folders = sorted(
        {path.relative_to(person.site).parts[0] for path in files} - {info.name, "__pycache__", ".."}
    )
    if how == "leftover":
        # pip leaves such renamed folders on Windows or after Ctrl-C.
        (person.site / f"~{info.name[1:]}").mkdir()
        for top_folder in top_folders[:1]:
            (person.site / f"~{top_folder[1:]}").mkdir(exist_ok=True)
        return
    package_files = [path for path in files if info not in path.parents and path.is_file()]
    chosen = (
        package_files
        if how == "files-gone"
        else [path for index, path in enumerate(package_files) if (index + int(number)) % 3 == 0]
    )
    for path in chosen:
        path.unlink()


def find_distribution(person: User, name: str) -> tuple[Path, list[Path]]:
    """Return the dist-info folder and the files in its RECORD below site-packages. Raise Undrawn."""
    for info in sorted(person.site.glob("*.dist-info")):
        if normalize_name(info.name.removesuffix(".dist-info").rpartition("-")[0]) == name:
            record = (info / "RECORD").read_text(encoding="utf-8").splitlines()
            paths = [person.site / line.rsplit(",", 2)[0].strip('"') for line in record]
            return info, [path for path in paths if ".." not in path.parts]
    message = f"{name} is not there"
    raise Undrawn(message)


def _explain_halved(arguments: tuple[str, ...]) -> Meaning:
    return Meaning(explain_companion(arguments[0]).causes | make_causes("damaged-file"))


# -- TensorFlow itself -------------------------------------------------------------------------------

_TENSORFLOW = (
    "record-gone",
    "renamed",
    "python-gone",
    "some-gone",
    "init-gone",
    "cpu-over",
    "cpu-over-and-gone",
)


def _draw_tensorflow(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    how = rng.choice(_TENSORFLOW)
    if how.startswith("cpu") and ground.release < (2, 8):
        return None  # its wheels are large and not cached
    return how, str(rng.randrange(1000))


def _break_tensorflow(person: User, arguments: tuple[str, ...]) -> None:
    how, number = arguments
    info, files = find_distribution(person, "tensorflow-gpu" if person.story.base == "1.15" else "tensorflow")
    package = person.site / ("tensorflow_core" if person.story.base == "1.15" else "tensorflow")
    if how == "record-gone":
        shutil.rmtree(info)
    elif how == "renamed":
        package.rename(package.with_name("~" + package.name[1:]))
    elif how == "python-gone":
        shutil.rmtree(package / "python")
    elif how == "init-gone":
        (package / "__init__.py").unlink()
    elif how == "some-gone":
        python = [path for path in files if path.suffix == ".py" and package in path.parents]
        for index, path in enumerate(python):
            if (index + int(number)) % 40 == 0:
                path.unlink(missing_ok=True)
    else:
        version = info.name.removesuffix(".dist-info").rpartition("-")[2]
        install_wheels(person, "--no-deps", f"tensorflow-cpu=={version}")
        if how == "cpu-over-and-gone":
            person.uninstall("tensorflow-cpu")


def _explain_tensorflow(arguments: tuple[str, ...]) -> Meaning:
    causes_by_change = {
        "record-gone": make_causes("damaged-file", "tensorflow-missing"),
        "renamed": make_causes("damaged-file", "tensorflow-missing"),
        "cpu-over": make_causes("both-packages", "cpu-only-build"),
        "cpu-over-and-gone": make_causes(
            "both-packages", "damaged-file", "tensorflow-missing", "cpu-only-build"
        ),
    }
    right = causes_by_change.get(arguments[0], make_causes("damaged-file"))
    return Meaning(right, later=right if arguments[0] in ("record-gone", "some-gone") else frozenset())


# -- CUDA's wheels -----------------------------------------------------------------------------------


def _draw_cuda_dropped(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    return (rng.choice(sorted(ground.nvidia)),) if ground.nvidia else None


def _explain_cuda(arguments: tuple[str, ...]) -> Meaning:
    right = find_cuda_causes(arguments[0].rpartition("-cu1")[0] or arguments[0])
    return Meaning(right, later=right)


def _draw_cuda_version(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    small = [name for name in sorted(ground.nvidia) if any(part in name for part in SMALL)]
    if not small:
        return None
    name = rng.choice(small)
    version = pick_version(rng, ground.versions(name))
    return None if version == ground.nvidia[name] else (name, version, "alone")


def _draw_laid_over(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    if not ground.nvidia:
        return None
    part = rng.choice(("cuda-runtime", "nvjitlink", "curand", "cuda-cupti", "cuda-nvcc"))
    suffix = "cu11" if any(name.endswith("cu11") for name in ground.nvidia) else "cu12"
    other = rng.choice(sorted({"cu11", "cu12"} - {suffix}) * 2 + ["cu13"])
    if part == "nvjitlink" and other == "cu11":
        return None
    name = f"nvidia-{part}" if other == "cu13" else f"nvidia-{part}-{other}"
    versions = [version for version in ground.versions(name) if version[0] != "0"]
    if not versions:
        return None
    return name, pick_version(rng, versions), rng.choice(("kept", "removed"))


def _lay_over(person: User, arguments: tuple[str, ...]) -> None:
    name, version, ending = arguments
    install_wheels(person, "--no-deps", f"{name}=={version}")
    if ending == "removed":
        person.uninstall(name)


def _explain_laid_over(arguments: tuple[str, ...]) -> Meaning:
    right = find_cuda_causes(arguments[0].rpartition("-cu1")[0] or arguments[0]) | make_causes("damaged-file")
    return Meaning(right, later=right)


def _draw_all_dropped(_rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    return () if ground.nvidia else None


def _drop_all(person: User, _words: tuple[str, ...]) -> None:
    person.uninstall(*person.cuda_wheels())


def _draw_companion_over(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    name = rng.choice(("numpy", "protobuf", "h5py", "ml-dtypes", "wrapt"))
    versions = [version for version in ground.versions(name) if version != ground.companions.get(name)]
    return (name, pick_version(rng, versions)) if name in ground.companions and versions else None


def _lay_companion_over(person: User, arguments: tuple[str, ...]) -> None:
    """Add the files that another version has and the installed one lacks, as conda and pip over each other do."""
    name, version = arguments
    folder = person.folder("laid-over")
    install_wheels(person, "--no-deps", "--target", str(folder), f"{name}=={version}")
    for path in sorted(folder.rglob("*")):
        target = person.site / path.relative_to(folder)
        if path.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)


KINDS = (
    Kind(
        "companion-laid-over",
        5,
        _draw_companion_over,
        _lay_companion_over,
        lambda words: explain_companion(words[0]),
    ),
    Kind("companion-version", 26, _draw_version, _install, lambda words: explain_companion(words[0])),
    Kind("beside", 10, _draw_beside, _install, lambda words: explain_companion(words[0])),
    Kind("companion-dropped", 7, _draw_dropped, _drop, lambda words: explain_companion(words[0])),
    Kind("companion-halved", 7, _draw_halved, _halve, _explain_halved),
    Kind(
        "tensorflow-broken", 5, _draw_tensorflow, _break_tensorflow, _explain_tensorflow, group="tensorflow"
    ),
    Kind("cuda-dropped", 6, _draw_cuda_dropped, _drop, _explain_cuda),
    Kind(
        "cuda-all-dropped", 2, _draw_all_dropped, _drop_all, lambda _words: Meaning(find_cuda_causes("cudnn"))
    ),
    Kind("cuda-version", 5, _draw_cuda_version, _install, _explain_cuda),
    Kind("cuda-laid-over", 5, _draw_laid_over, _lay_over, _explain_laid_over),
)
