"""Queries of the tables in `compat/`. Each table is loaded when it is first needed.

    compat = Compat.load()
    compat.find_release("2.15.1").required_libraries

Code outside this package uses only `Compat` to query the tables. A query of one table is implemented in the module of the
table, and a query of several tables here. If something is unknown, the result is None, an empty tuple or `"unknown"`,
never a guess. If a similar release is used instead (`find_nearest`), the result says so.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from tfdoctor.compat import releases
from tfdoctor.compat.folder import data_dir
from tfdoctor.compat.releases import find_code
from tfdoctor.core import versions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from tfdoctor.compat.api_names import ApiNames
    from tfdoctor.compat.arm64 import Arm64
    from tfdoctor.compat.cards import Cards
    from tfdoctor.compat.companions import Companion, CompanionTable, UnlimitedVersions
    from tfdoctor.compat.conda_names import CondaNames
    from tfdoctor.compat.cuda import CudaRelease, CudaSeries, CudaTable, DriverMinimum
    from tfdoctor.compat.cudnn import CudnnRange, CudnnSupport, CudnnTable
    from tfdoctor.compat.fat_binaries import Coverage, FatBinaries
    from tfdoctor.compat.flags import Flags
    from tfdoctor.compat.functions import Functions
    from tfdoctor.compat.gpus import Gpu, GpuMatch, GpuTable
    from tfdoctor.compat.images import Images
    from tfdoctor.compat.imported import ImportNeeds
    from tfdoctor.compat.kernels import Kernels
    from tfdoctor.compat.libraries import LibraryFamily, LibraryTable, PypiWheel, Registration, TfDistribution
    from tfdoctor.compat.locks import Locks
    from tfdoctor.compat.manifests import Manifests
    from tfdoctor.compat.problems import Problem, ProblemTable
    from tfdoctor.compat.prune import Leftover
    from tfdoctor.compat.pythons import Pythons
    from tfdoctor.compat.releases import Code, Nearest, Platform, Release, Releases
    from tfdoctor.compat.remedies import BookEntry
    from tfdoctor.compat.source_lines import SourceLines
    from tfdoctor.compat.traits import Trait, TraitName, Traits
    from tfdoctor.compat.wheels import CudaSets

__all__ = ["Compat"]


class Compat:
    """All tables of a `compat/` folder. Use `load` to create it."""

    def __init__(self, folder: Path | None = None) -> None:
        """Use the tables in `folder`, or those of this tfdoctor if it is None."""
        self._requested_folder = folder

    @staticmethod
    def load(folder: Path | None = None) -> Compat:
        """Return the tables of a folder, always the same object for a folder.

        A table is loaded when it is first needed; that raises decode.DataError if it is invalid.
        """
        return _load(folder)

    def prepare(self) -> None:
        """Load the tables that are needed for every TensorFlow. Raise decode.DataError if one is invalid."""
        _ = self._releases, self._libraries, self._companions, self._problems, self._traits

    @cached_property
    def folder(self) -> Path:
        """The folder of the tables."""
        return data_dir("compat") if self._requested_folder is None else self._requested_folder

    # --- tables ---

    @cached_property
    def _releases(self) -> Releases:
        return releases.load_releases(self.folder)

    @cached_property
    def _cuda(self) -> CudaTable:
        from tfdoctor.compat.cuda import load_cuda

        return load_cuda(self.folder)

    @cached_property
    def _cudnn(self) -> CudnnTable:
        from tfdoctor.compat.cudnn import load_cudnn

        return load_cudnn(self.folder)

    @cached_property
    def _libraries(self) -> LibraryTable:
        from tfdoctor.compat.libraries import load_libraries

        return load_libraries(self.folder)

    @cached_property
    def _problems(self) -> ProblemTable:
        from tfdoctor.compat.problems import load_problems

        return load_problems(self.folder)

    @cached_property
    def remedies(self) -> tuple[BookEntry, ...]:
        """The remedies for particular messages and places."""
        from tfdoctor.compat.remedies import load_remedies

        return load_remedies(self.folder)

    @cached_property
    def _gpus(self) -> GpuTable:
        from tfdoctor.compat.gpus import load_gpus

        return load_gpus(self.folder)

    @cached_property
    def _companions(self) -> CompanionTable:
        from tfdoctor.compat.companions import load_companions

        return load_companions(self.folder)

    @cached_property
    def _traits(self) -> Traits:
        from tfdoctor.compat.traits import load_traits

        return load_traits(self.folder)

    @cached_property
    def cards(self) -> Cards:
        """Properties that follow from a compute capability."""
        from tfdoctor.compat.cards import load_cards

        return load_cards(self.folder)

    @cached_property
    def _fat_binaries(self) -> FatBinaries:
        from tfdoctor.compat.fat_binaries import load_fat_binaries

        return load_fat_binaries(self.folder)

    @cached_property
    def kernels(self) -> Kernels:
        """Kernels of each operation by device and data type."""
        from tfdoctor.compat.kernels import load_kernels

        return load_kernels(self.folder)

    @cached_property
    def arm64(self) -> Arm64:
        """Machines with a 64-bit ARM processor."""
        from tfdoctor.compat.arm64 import load_arm64

        return load_arm64(self.folder)

    @cached_property
    def conda_names(self) -> CondaNames:
        """conda packages and their names on the package index."""
        from tfdoctor.compat.conda_names import load_conda_names

        return load_conda_names(self.folder)

    @cached_property
    def api_names(self) -> ApiNames:
        """Names that only TensorFlow 1 or only TensorFlow 2 has."""
        from tfdoctor.compat.api_names import load_api_names

        return load_api_names(self.folder)

    @cached_property
    def flags(self) -> Flags:
        """Flags that TensorFlow reads from environment variables."""
        from tfdoctor.compat.flags import load_flags

        return load_flags(self.folder)

    @cached_property
    def source_lines(self) -> SourceLines:
        """Source lines from which each release logs."""
        from tfdoctor.compat.source_lines import load_source_lines

        return load_source_lines(self.folder)

    @cached_property
    def functions(self) -> Functions:
        """Lines of the functions in TensorFlow's own Python files."""
        from tfdoctor.compat.functions import load_functions

        return load_functions(self.folder)

    @cached_property
    def images(self) -> Images:
        """Container images: nvidia/cuda, tensorflow/tensorflow, NGC."""
        from tfdoctor.compat.images import load_images

        return load_images(self.folder)

    @cached_property
    def manifests(self) -> Manifests:
        """Manifests of container images from the registries."""
        from tfdoctor.compat.manifests import load_manifests

        return load_manifests(self.folder)

    @cached_property
    def pythons(self) -> Pythons:
        """Sources of Python versions."""
        from tfdoctor.compat.pythons import load_pythons

        return load_pythons(self.folder)

    @cached_property
    def cuda_sets(self) -> CudaSets:
        """Sets of NVIDIA's wheels that belong together."""
        from tfdoctor.compat.wheels import load_cuda_wheels

        return load_cuda_wheels(self.folder)

    @cached_property
    def locks(self) -> Locks:
        """Exact versions and hashes that pip installs."""
        from tfdoctor.compat.locks import Locks

        return Locks(self.folder)

    @cached_property
    def leftovers(self) -> tuple[Leftover, ...]:
        """Files that an image does not need."""
        from tfdoctor.compat.prune import load_prune

        return load_prune(self.folder).leftovers

    # --- cached queries, which are repeated while options are compared ---

    @cached_property
    def _cuda_release(self) -> Callable[[str], CudaRelease | None]:
        return lru_cache(maxsize=256)(self._cuda.find_release)

    @cached_property
    def _driver_minimum(self) -> Callable[[str, Platform], DriverMinimum]:
        return lru_cache(maxsize=256)(self._cuda.find_driver_minimum)

    @cached_property
    def _find_applying(self) -> Callable[[str, str], tuple[Problem, ...]]:
        """A cached function that returns the problems of a package and version."""

        def find_applying(name: str, version: str) -> tuple[Problem, ...]:
            return tuple(problem for problem in self.problems if problem.affects_release(name, version))

        return lru_cache(maxsize=1024)(find_applying)

    # --- TensorFlow releases ---

    @property
    def as_of(self) -> str:
        """Date of the release table, ISO 8601."""
        return self._releases.as_of

    @property
    def releases(self) -> tuple[Release, ...]:
        """All releases, sorted by version, then package; oldest first."""
        return self._releases.releases

    @cached_property
    def gpu_releases(self) -> tuple[Release, ...]:
        """Final releases that use a GPU."""
        return tuple(release for release in self.releases if release.gpu and not release.is_prerelease)

    @property
    def newest(self) -> Release:
        """Newest final release."""
        return self._releases.newest

    def find_release(self, version: str, package: str | None = None) -> Release | None:
        """Return the release of exactly this version; None if it is not known.

        A local part (`+nv23.03`) does not match. `package` may also be a distribution that has the contents of another
        one, such as `tf-nightly`. If it is None, a release with GPU code is preferred, then `tensorflow`.
        """
        return self._releases.find_release(version, self._canonical_package(package))

    def _canonical_package(self, package: str | None) -> str | None:
        """Return the name of the package that stands for `package` in the release table; None for None."""
        if package is None:
            return None
        name = re.sub(r"[-_.]+", "-", package).lower()
        if name in {"tensorflow", "tensorflow-gpu"}:
            return name
        entry = self.find_distribution(name)
        return entry.equivalent_distribution if entry is not None and entry.equivalent_distribution else name

    def find_nearest(self, version: str, package: str | None = None) -> Nearest:
        """Return the release that is most similar to `version`, which may not be in the table."""
        return self._releases.find_nearest(version, self._canonical_package(package))

    def select(self, spec: str, package: str | None = None) -> tuple[Release, ...]:
        """Return the releases that the user selects with `spec`, newest first (see releases.Releases)."""
        return self._releases.select(spec, package)

    def find_nearest_versions(self, text: str, count: int = 3) -> tuple[str, ...]:
        """Return final versions that are close to `text`, newest first, as suggestions for messages."""
        return self._releases.find_nearest_versions(text, count)

    def list_releases_for_python(
        self, python: str, platform: Platform = "linux", *, gpu: bool | None = True
    ) -> tuple[Release, ...]:
        """Return the final releases with a wheel for this Python, newest first (see releases.Releases)."""
        return self._releases.list_for_python(python, platform, gpu=gpu)

    def find_code(self, release: Release, capability: str) -> Code:
        """Return the kind of code that the wheel has for a compute capability (see the module `releases`)."""
        return find_code(release, capability)

    def get_coverage(self, release: Release, capability: str) -> Coverage | None:
        """Return how many of a release's fat binaries a GPU can run; None if they were not measured."""
        from tfdoctor.compat.fat_binaries import compute_coverage

        counts = self.find_binary_counts(release)
        return compute_coverage(counts, capability) if counts is not None else None

    def find_binary_counts(self, release: Release) -> Mapping[str, int] | None:
        """Return a release's number of fat binaries for each set of architectures; None if not measured."""
        counts = self._fat_binaries.get_counts(release.version)
        if counts is None:
            similar = self._find_same_code(release)
            counts = self._fat_binaries.get_counts(similar.version) if similar is not None else None
        return counts

    def _find_same_code(self, release: Release) -> Release | None:
        """Return a measured patch release with the same architectures and CUDA; None if there is none."""
        for version in self._fat_binaries.versions:
            candidate = self.find_release(version) if versions.major_minor(version) == release.minor else None
            if candidate is not None and all(
                getattr(candidate, name) == getattr(release, name)
                for name in ("cubin", "ptx", "ptx_arch_specific", "cuda")
            ):
                return candidate
        return None

    def find_ptx_requirement(self, release: Release, capability: str) -> tuple[str, str] | None:
        """Return (CUDA version, share): the driver must support that CUDA to compile this share of kernels.

        An example is `("12.5", "most")`. If the ISA version of the PTX is not known, the CUDA version is that of the wheel.
        The result is None if nothing must be compiled, or if no version is known.
        """
        coverage = self.get_coverage(release, capability)
        if coverage is None:
            share, isa = ("all" if find_code(release, capability) == "jit" else ""), None
        else:
            share, isa = (coverage.compiled_share if coverage.compiled_count else ""), coverage.newest_isa
        cuda = (self._cuda.find_by_ptx(isa) if isa is not None else None) or release.cuda
        return (cuda, share) if share and cuda is not None else None

    def find_cuda_for_ptx(self, isa: str) -> str | None:
        """Return the first CUDA minor whose driver compiles PTX of an ISA version."""
        return self._cuda.find_by_ptx(isa)

    def find_distribution(self, name: str) -> TfDistribution | None:
        """Return the distribution with a name such as `tensorflow-intel`; None if it is not known."""
        return self._libraries.find_distribution(name)

    def get_trait(self, name: TraitName) -> Trait:
        """Return a behavior, with the releases that have it."""
        return self._traits.get_trait(name)

    def list_traits(self, version: str | None) -> frozenset[TraitName]:
        """Return the behaviors of a TensorFlow version; for None, those that are as old as the first release."""
        minor = versions.parse_numbers(version)[:2] if version else ()
        return frozenset(trait.name for trait in self._traits.traits if trait.applies_to(minor))

    def has_trait(self, version: str, name: TraitName) -> bool:
        """Return whether a TensorFlow version has a behavior."""
        return self.get_trait(name).applies_to(versions.parse_numbers(version)[:2])

    @property
    def distributions(self) -> tuple[TfDistribution, ...]:
        """All known distributions that contain TensorFlow or have a similar name."""
        return self._libraries.distributions

    # --- libraries ---

    def find_registration(self, version: str) -> Registration:
        """Return how a TensorFlow version loads its libraries (see libraries.LibraryTable)."""
        return self._libraries.find_registration(version)

    def find_required_libraries(
        self, cuda_config: Mapping[str, str], release: Release | str
    ) -> tuple[str, ...] | None:
        """Return the sonames that a build needs to register GPUs, according to its cuda_config.h.

        `cuda_config` contains the defines of that header (`TF_CUDART_VERSION` or `CUDART`). `release` is a release or its
        version. The sonames, without those of the driver, are in the order in which TensorFlow opens them. The result is
        empty if there are no defines, and None if a required version is not among them.
        """
        version = release if isinstance(release, str) else release.version
        return self._libraries.find_required(cuda_config, version)

    def list_driver_libraries(self, version: str) -> tuple[str, ...]:
        """Return the driver's sonames that a TensorFlow version needs to use a GPU."""
        return self.find_registration(version).driver_sonames

    @property
    def libraries(self) -> tuple[LibraryFamily, ...]:
        """All known libraries."""
        return self._libraries.libraries

    def find_library(self, name: str) -> LibraryFamily | None:
        """Return the library with a soname (`libcusolver.so.11`) or stem (`cusolver`), or None."""
        return self._libraries.find_library(name)

    def find_soname(self, stem: str, cuda: str) -> str | None:
        """Return the soname of a library in a CUDA toolkit; None if it is not known."""
        return self._libraries.find_soname(stem, cuda)

    def list_cuda_with_soname(self, soname: str) -> tuple[str, ...]:
        """Return the CUDA versions in libraries.toml whose toolkit has this soname."""
        return self._libraries.list_cuda_with_soname(soname)

    def find_wheel(self, soname: str, cuda_major: int) -> PypiWheel | None:
        """Return NVIDIA's wheel that contains a library for a CUDA major version; None if there is none."""
        return self._libraries.find_wheel(soname, cuda_major)

    def find_nvidia_package(self, soname: str, cuda: str | None = None) -> str | None:
        """Return the package in NVIDIA's apt repository that contains a library; None if there is none."""
        return self._libraries.find_nvidia_package(soname, cuda)

    # --- CUDA, drivers, cuDNN ---

    @property
    def cuda_releases(self) -> tuple[CudaRelease, ...]:
        """All known toolkit releases, oldest first."""
        return self._cuda.releases

    def find_cuda_series(self, cuda: str) -> CudaSeries | None:
        """Return the compile targets of a toolkit's minor version; None if they are not known."""
        return self._cuda.find_series(cuda)

    @property
    def all_cuda_series(self) -> tuple[CudaSeries, ...]:
        """All toolkit minors whose compile targets are known, oldest first."""
        return self._cuda.all_series

    def find_cuda_release(self, cuda: str) -> CudaRelease | None:
        """Return the toolkit release of this version (see cuda.CudaTable)."""
        return self._cuda_release(cuda)

    def find_driver_minimum(self, cuda: str, os: Platform = "linux") -> DriverMinimum:
        """Return the driver that programs built with a CUDA version need.

        Raise versions.VersionSyntaxError if `cuda` is not a version.
        """
        return self._driver_minimum(cuda, os)

    def find_newest_cuda_for_driver(self, driver: str, os: Platform = "linux") -> str | None:
        """Return the newest CUDA minor that came with this driver or an older one."""
        return self._cuda.find_newest_for_driver(driver, os)

    @property
    def wheel_toolkits(self) -> dict[int, str]:
        """The toolkit whose sonames NVIDIA's wheels have, by CUDA major version."""
        return self._cuda.map_wheel_toolkits()

    @property
    def newest_cudnn_major(self) -> int:
        """Major version of the newest known cuDNN."""
        return self._cudnn.newest_major

    def find_dropping_cudnn(self, capability: str, major: int) -> str | None:
        """Return the minor of a cuDNN major version that dropped a compute capability; None if no minor did."""
        return self._cudnn.find_dropping_version(capability, major)

    def find_conda_cudnn(self, cuda: str, built: str | None) -> str | None:
        """Return the cuDNN for conda's `cudatoolkit` (see cudnn.CudnnTable)."""
        return self._cudnn.find_conda_version(cuda, built)

    @property
    def cudnn_ranges(self) -> tuple[CudnnRange, ...]:
        """All known ranges of cuDNN versions, oldest first."""
        return self._cudnn.ranges

    def find_cudnn_range(self, version: str, cuda_major: int | None = None) -> CudnnRange | None:
        """Return the range that contains a cuDNN version; None if there is none."""
        return self._cudnn.find_range(version, cuda_major)

    def find_cudnn_support(self, version: str, capability: str) -> CudnnSupport:
        """Return which code a cuDNN version has for a compute capability.

        Raise versions.VersionSyntaxError if an argument is invalid.
        """
        return self._cudnn.find_support(version, capability)

    # --- GPUs ---

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """All known GPU names, sorted by capability, then name."""
        return self._gpus.gpus

    @property
    def gpus_as_of(self) -> str:
        """Date of the GPU table, ISO 8601."""
        return self._gpus.as_of

    def find_gpu_by_pci_id(self, pci_id: str) -> Gpu | None:
        """Return the GPU with a PCI device ID; None if it is not known."""
        return self._gpus.find_by_pci_id(pci_id)

    def find_gpus_by_name(self, name: str) -> GpuMatch | None:
        """Return the GPUs that match a name; None if none does."""
        return self._gpus.find_by_name(name)

    def find_similar_gpu_names(self, name: str, count: int = 3) -> tuple[str, ...]:
        """Return up to `count` known names that are similar to `name`, the best match first."""
        return self._gpus.find_similar_names(name, count)

    # --- images, Pythons and packages ---

    @property
    def companions(self) -> tuple[Companion, ...]:
        """Packages that break TensorFlow if both are installed, in the order of the file."""
        return self._companions.companions

    @property
    def unlimited_versions(self) -> tuple[UnlimitedVersions, ...]:
        """The versions of NumPy and protobuf that pip selects if no requirement limits them."""
        return self._companions.unlimited_versions

    def list_companion_limits(self, tensorflow: str, requires: Sequence[str] = ()) -> dict[str, str]:
        """Return the requirement that limits each package (see companions.CompanionTable)."""
        return self._companions.list_limits(tensorflow, requires)

    def find_incompatible_packages(
        self,
        tensorflow: str | None,
        distributions: Mapping[str, str],
        environment: Mapping[str, str],
        absent: Collection[str] = (),
    ) -> tuple[Companion, ...]:
        """Return the companions that apply to an environment (see companions.CompanionTable)."""
        return self._companions.find_incompatible_packages(tensorflow, distributions, environment, absent)

    def find_import_needs(self, version: str | None) -> ImportNeeds | None:
        """Return what the import of a TensorFlow version needs (see the module `imported`)."""
        from tfdoctor.compat.imported import find_import_needs

        return find_import_needs(self.folder, version)

    # --- problems ---

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All known problems."""
        return self._problems.problems

    def find_problem(self, problem_id: str) -> Problem | None:
        """Return the problem with this ID; None if there is none."""
        return next((problem for problem in self.problems if problem.id == problem_id), None)

    def list_problems(
        self,
        package: str,
        version: str,
        *,
        capability: str | None = None,
        area: str | None = None,
    ) -> tuple[Problem, ...]:
        """Return the known problems of a release.

        `capability` excludes the problems of other GPUs. The caller must check the other conditions (`Problem.when`).
        `area` is one of libraries, python, gpu, images and packaging; None means all.
        """
        from tfdoctor.compat.problems import capability_matches

        name = self._canonical_package(package) or package
        return tuple(
            problem
            for problem in self._find_applying(name, version)
            if (area is None or problem.area == area)
            and (capability is None or capability_matches(capability, problem.conditions.get("capability")))
        )


@lru_cache(maxsize=8)
def _load(folder: Path | None) -> Compat:
    return Compat(folder)
