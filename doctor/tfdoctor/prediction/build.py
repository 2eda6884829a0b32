"""Describe the installed TensorFlow build, from its own files or else from the release table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.facts import TENSORFLOW_DISTRIBUTIONS, Absent, value_of
from tfdoctor.core.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.compat import Compat, Release
    from tfdoctor.compat.traits import TraitName
    from tfdoctor.core.facts import Distribution, Facts, TensorFlowFacts
    from tfdoctor.core.facts.python import DeniedPath

DEFAULT_MIN_CAPABILITY = "3.5"
"""The lowest compute capability of a GPU that TensorFlow registers, in every tested release."""
COMPANION_DISTRIBUTIONS = frozenset(
    {"tensorflow-intel", "tensorflow-macos", "tensorflow-aarch64", "tensorflow-directml"}
)
"""Distributions that `tensorflow` requires on some platforms, or that extend it."""


@dataclass(frozen=True, slots=True)
class Build:
    """The properties of a TensorFlow build."""

    version: str | None
    """The version; None if it is unknown or invalid."""
    release: Release | None
    """The release in the table with the nearest version; None if the table has no such release."""
    is_exact_release: bool
    """Whether `release` has exactly this version."""
    has_gpu_code: bool | None
    """Whether the build has GPU code; None if it is unknown."""
    is_rocm: bool
    linkage: str
    """How the CUDA libraries are loaded: "dlopen", "needed" (linked) or "none" if the build uses none."""
    required_libraries: tuple[str, ...]
    """Sonames of the CUDA libraries, in the order in which they are opened."""
    driver_libraries: tuple[str, ...]
    cuda: str | None
    cudnn: str | None
    min_capability: str
    """The lowest compute capability of a GPU that TensorFlow registers."""
    traits: frozenset[TraitName]
    """The release-specific behaviour of this build (compat/traits.toml)."""

    def has_trait(self, trait: TraitName) -> bool:
        """Return whether the build has this trait."""
        return trait in self.traits

    @property
    def minor_numbers(self) -> tuple[int, ...]:
        return versions.parse_numbers(self.version)[:2] if self.version else ()


def describe_build(tensorflow: TensorFlowFacts, compat: Compat) -> Build:
    """Return the properties of the installed build, from its own files or else from the release table."""
    version = tensorflow.version if tensorflow.version and versions.is_version(tensorflow.version) else None
    nearest = compat.find_nearest(version, tensorflow.distribution) if version else None
    release = nearest.release if nearest else None
    is_exact = bool(nearest and nearest.is_exact)
    is_cuda_build = tensorflow.build_info.get("is_cuda_build", "")
    has_gpu_code: bool | None = None
    if is_cuda_build in ("True", "False"):
        has_gpu_code = is_cuda_build == "True"
    elif tensorflow.cuda_config.get("TF_CUDA_VERSION"):
        has_gpu_code = True
    elif tensorflow.distribution in (
        "tensorflow-cpu",
        "tf-nightly-cpu",
        "intel-tensorflow",
        "tensorflow-macos",
    ):
        has_gpu_code = False
    elif release is not None and is_exact:
        has_gpu_code = release.gpu
    elif tensorflow.build_info or tensorflow.pywrap:
        # A build that describes itself, but names no CUDA version, has no GPU code.
        has_gpu_code = False if tensorflow.build_info and not tensorflow.cuda_config else None
    required: tuple[str, ...] | None = None
    if has_gpu_code and version:
        required = (
            compat.find_required_libraries(tensorflow.cuda_config, version)
            if tensorflow.cuda_config
            else None
        )
        if not required and release is not None:
            required = release.required_libraries
    linkage = "none"
    if has_gpu_code:
        linkage = "needed" if version and compat.find_registration(version).is_linked else "dlopen"
    return Build(
        version=version,
        release=release,
        is_exact_release=is_exact,
        has_gpu_code=has_gpu_code,
        is_rocm=tensorflow.build_info.get("is_rocm_build") == "True",
        linkage=linkage,
        required_libraries=required or (),
        driver_libraries=compat.list_driver_libraries(version) if has_gpu_code and version else (),
        cuda=tensorflow.cuda_config.get("TF_CUDA_VERSION")
        or tensorflow.build_info.get("cuda_version")
        or (release.cuda if release and is_exact else None),
        cudnn=tensorflow.cuda_config.get("TF_CUDNN_VERSION")
        or tensorflow.build_info.get("cudnn_version")
        or (release.cudnn if release and is_exact else None),
        min_capability=find_capability_floor(release, compat)
        if release is not None
        else DEFAULT_MIN_CAPABILITY,
        traits=compat.list_traits(version),
    )


def find_capability_floor(release: Release, compat: Compat) -> str:
    """Return the compute capability below which a release ignores a GPU.

    If it was not measured, return the lowest one for which a linked build (1.x) has code, or else the default.
    """
    linked = compat.find_registration(release.version).is_linked
    if release.registration_floor is None and linked and release.cubin:
        return min(release.cubin, key=versions.parse_capability)
    return release.registration_floor or DEFAULT_MIN_CAPABILITY


def find_dlopen_caller(build: Build) -> str:
    """Return which object of TensorFlow opens the CUDA libraries.

    "pywrap" means _pywrap_tensorflow_internal.so, and "framework" means libtensorflow_framework.so.
    """
    return "pywrap" if build.has_trait("opened-by-pywrap") else "framework"


def list_opened_sonames(build: Build) -> tuple[str, ...]:
    """Return the sonames of the libraries that this build opens, in order.

    The driver comes first, except that builds with the trait "runtime-first" open the CUDA runtime before it.
    """
    runtime = tuple(name for name in build.required_libraries if name.startswith("libcudart."))
    opened_first = runtime if build.has_trait("runtime-first") else ()
    others = tuple(name for name in build.required_libraries if name not in opened_first)
    return (*opened_first, *build.driver_libraries, *others)


def list_installed_builds(facts: Facts) -> tuple[str, ...]:
    """Return "name version" of each distribution that installs `tensorflow` into the same folder."""
    python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    if python is None or tensorflow is None:
        return ()
    folder = tensorflow.package_dir.rpartition("/")[0]
    return tuple(
        f"{distribution.name} {distribution.version}"
        for distribution in python.distributions
        if distribution.name in TENSORFLOW_DISTRIBUTIONS
        and distribution.name not in COMPANION_DISTRIBUTIONS
        and distribution.location == folder
    )


def find_unreadable_package(facts: Facts) -> DeniedPath | None:
    """Return the first unreadable path of TensorFlow or of a package that it imports.

    Return None if there is none or if it is unknown. An unreadable site-packages folder counts only if no
    TensorFlow is found elsewhere.
    """
    python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    if python is None or (tensorflow is None and not isinstance(facts.tensorflow, Absent)):
        return None
    package_folders = {f"{folder}/tensorflow" for folder in python.sys_path} if tensorflow is None else set()
    needed_paths = {*python.site_packages, *(f"{folder}/__init__.py" for folder in package_folders)}
    if tensorflow is not None:
        package = tensorflow.package_dir
        needed_paths = {
            package,
            f"{package}/__init__.py",
            tensorflow.core_dir,
            f"{tensorflow.core_dir}/python",
        }
    # Any package or module on the path counts, but not its metadata.
    for denied in python.closed:
        parent, _, name = denied.path.rpartition("/")
        is_module_path = parent in python.sys_path and not name.endswith((".dist-info", ".egg-info"))
        if denied.path in needed_paths or (is_module_path and denied.path not in python.sys_path):
            return denied
        if denied.closed in package_folders:  # to Python, a folder that it may not enter has no __init__.py
            return denied
    return None


def find_distributions_without_package(facts: Facts) -> tuple[Distribution, ...]:
    """Return the TensorFlow distributions that have metadata, although no `tensorflow` package exists."""
    python = value_of(facts.python)
    if not isinstance(facts.tensorflow, Absent) or python is None:
        return ()
    return tuple(
        distribution for distribution in python.distributions if distribution.name in TENSORFLOW_DISTRIBUTIONS
    )
