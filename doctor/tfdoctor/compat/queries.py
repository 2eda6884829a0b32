"""What can be asked of the tables in `compat/`; pure, and each table is read only when something needs it.

    compat = Compat.load()
    compat.release("2.15.1").required_libraries

Unknown is answered with None, an empty tuple or the word `"unknown"`, never with a guess; where a
neighbour's row stands in (`nearest`), the answer says so.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal

from tfdoctor import versions
from tfdoctor.compat import decode
from tfdoctor.compat.models import Nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tfdoctor.compat.images import Flavour, Images, ImageTag, NgcImage, OfficialImage
    from tfdoctor.compat.models import Platform, Release
    from tfdoctor.compat.models_cuda import (
        CudaRelease,
        CudaSeries,
        CudnnRange,
        CudnnSupport,
        DriverMinimum,
        ForwardCompatibility,
    )
    from tfdoctor.compat.models_gpus import Gpu, GpuMatch
    from tfdoctor.compat.models_libraries import Distribution, LibraryFamily, Problem, PypiWheel
    from tfdoctor.compat.pythons import PythonBuild, Pythons

__all__ = [
    "Compat",
    "UnknownGpuError",
    "UnknownReleaseError",
    "era_stems",
    "normalize_defines",
    "split_soname",
]

_SONAME = re.compile(r"lib(?P<stem>[A-Za-z0-9_+-]+?)\.so(?:\.(?P<version>[0-9.]+))?")
_GPU_WORD = re.compile(r"[a-z0-9]+")
_GPU_GLUE = re.compile(r"\b(rtx|gtx|gts|gt|titan|quadro|tesla|geforce)(?=\d|[a-z]\d)|(?<=\d)(ti|super)\b")
_BRANDS = frozenset({"nvidia", "geforce", "tesla", "quadro", "graphics", "gpu", "corporation", "device"})


class UnknownReleaseError(LookupError):
    """No such TensorFlow release is known; `nearest` lists the closest that are, newest first."""

    def __init__(self, version: str, nearest: tuple[str, ...]) -> None:
        hint = f"; the nearest known: {', '.join(nearest)}" if nearest else ""
        super().__init__(f"there is no TensorFlow {version}{hint}")
        self.version = version
        self.nearest = nearest


class UnknownGpuError(LookupError):
    """No GPU goes by that name; `nearest` lists the closest names."""

    def __init__(self, name: str, nearest: tuple[str, ...]) -> None:
        hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
        super().__init__(f"no NVIDIA GPU called `{name}` is known{hint}")
        self.name = name
        self.nearest = nearest


def split_soname(name: str) -> tuple[str, str | None] | None:
    """`"libcudart.so.11.0"` → `("cudart", "11.0")`; no version → None in its place; not a library → None."""
    match = _SONAME.fullmatch(name)
    return None if match is None else (match["stem"], match["version"])


def normalize_defines(defines: Mapping[str, str]) -> dict[str, str]:
    """cuda_config.h's defines under this package's names: `TF_CUDART_VERSION` → `CUDART`; quotes are dropped.

    Other defines (paths, capabilities) and empty versions are left out; short names pass through.
    """
    result = {}
    for name, value in defines.items():
        short = name.removeprefix("TF_").removesuffix("_VERSION")
        text = value.strip().strip('"')
        if text and re.fullmatch(r"[0-9][0-9.]*", text) and short.isupper():
            result[short] = text
    return result


def era_stems(version: str) -> tuple[str, ...]:
    """The library stems that TF of this version wants for GPU registration, in the order in which it tries
    them.

    Measured: linkage of every GPU wheel to 1.13, runs of one release of each minor from 1.14 on.
    """
    minor = versions.numbers(version)[:2]
    if minor < (1, 1):
        return ("cudart",)
    if minor < (1, 14):
        hard = ["cublas", "cusolver", "cudart", "cudnn"]
        if minor < (1, 2):
            hard.remove("cusolver")
        return tuple(hard) if minor >= (1, 13) else (*hard, "cufft", "curand")
    stems = ["cudart", "cublas", "cublasLt", "cufft", "curand", "cusolver", "cusparse", "cudnn"]
    if minor < (2, 4):
        stems.remove("cublasLt")
    if minor >= (2, 14):
        stems.remove("curand")
    if minor >= (2, 21):
        stems.remove("cudnn")
        stems.insert(0, "cudnn")
    return tuple(stems)


_DEFINE_OF_STEM = {"cublasLt": "CUBLAS"}


class Compat:
    """All tables of one `compat/` folder. Make it with `load`."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` is a compat/ folder; None finds the one that belongs to this tfdoctor."""
        self._folder = folder

    @staticmethod
    def load(folder: Path | None = None) -> Compat:
        """The tables, read lazily and once per folder. Raises decode.DataError when a table is first
        needed."""
        return _load(folder)

    # --- tables ---

    @cached_property
    def _tensorflow(self) -> tuple[str, tuple[Release, ...]]:
        return decode.load_tensorflow(self._folder)

    @cached_property
    def _by_version(self) -> dict[str, tuple[Release, ...]]:
        table: dict[str, list[Release]] = {}
        for row in self.releases:
            table.setdefault(row.version, []).append(row)
        return {version: tuple(rows) for version, rows in table.items()}

    @cached_property
    def _cuda(self) -> decode.CudaTables:
        return decode.load_cuda(self._folder)

    @cached_property
    def _cudnn(self) -> tuple[str, tuple[CudnnRange, ...]]:
        return decode.load_cudnn(self._folder)

    @cached_property
    def _libraries(self) -> tuple[str, tuple[LibraryFamily, ...], tuple[Distribution, ...]]:
        return decode.load_libraries(self._folder)

    @cached_property
    def _problems(self) -> tuple[str, tuple[Problem, ...]]:
        return decode.load_problems(self._folder)

    @cached_property
    def _gpus(self) -> tuple[str, tuple[Gpu, ...]]:
        return decode.load_gpus(self._folder)

    @cached_property
    def _gpu_by_id(self) -> dict[str, Gpu]:
        # Of several names of one id the first one in the file is kept: they never differ in capability.
        table: dict[str, Gpu] = {}
        for gpu in self._gpus[1]:
            for pci_id in gpu.pci_ids:
                known = table.get(pci_id)
                if known is None or len(gpu.name) > len(known.name):
                    table[pci_id] = gpu
        return table

    @property
    def as_of(self) -> str:
        """The date of the release table, ISO 8601."""
        return self._tensorflow[0]

    # --- TensorFlow releases ---

    @property
    def releases(self) -> tuple[Release, ...]:
        """Every row: by version, then package; oldest first."""
        return self._tensorflow[1]

    @cached_property
    def newest(self) -> Release:
        """The newest final release."""
        return next(row for row in reversed(self.releases) if not row.is_prerelease)

    def release(self, version: str, package: str | None = None) -> Release | None:
        """The row of exactly this version, or None.

        `package` may be any distribution of libraries.toml that another speaks for (`tf-nightly`). Without
        it the row with GPU code is preferred, of those `tensorflow`. Local parts (`+nv23.03`) do not match.
        """
        rows = self._by_version.get(version) or self._by_version.get(_canonical(version), ())
        if package is not None:
            package = self._canonical_package(package)
            rows = tuple(row for row in rows if row.package == package)
        for row in rows:
            if row.gpu:
                return row
        return rows[0] if rows else None

    def _canonical_package(self, package: str) -> str:
        name = re.sub(r"[-_.]+", "-", package).lower()
        if name in {"tensorflow", "tensorflow-gpu"}:
            return name
        known = self.distribution(name)
        return known.same_as if known is not None and known.same_as else name

    def nearest(self, version: str, package: str | None = None) -> Nearest:
        """The row that says most about `version`, which need not be in the table: nightlies, candidates,
        vendors' builds, newer than the table.

        The newest release of the same minor that is not newer, else the oldest of that minor, else the newest
        row below; a version below all gets the oldest row. With `package` only its rows, if it has any.
        Raises versions.VersionSyntaxError.
        """
        exact = self.release(version, package)
        if exact is not None:
            return Nearest(exact, exact=True, extrapolated=False, reason="")
        wanted = versions.parse(version)
        base = self.release(wanted.base_version, package) if wanted.local else None
        if base is not None:
            reason = f"{version} is a build of {base.version} by somebody else: its own files decide"
            return Nearest(base, exact=False, extrapolated=False, reason=reason)
        rows = self.releases
        if package is not None:
            name = self._canonical_package(package)
            rows = tuple(row for row in rows if row.package == name) or rows
        rows = _one_per_version(rows)
        minor = wanted.release[:2]
        same = [row for row in rows if row.parsed.release[:2] == minor]
        below = [row for row in same or rows if row.parsed <= wanted]
        row = below[-1] if below else (same or rows)[0]
        newest = rows[-1]
        if wanted > newest.parsed:
            reason = f"{version} is newer than this table ({newest.version}, {self.as_of})"
            return Nearest(row, exact=False, extrapolated=True, reason=reason)
        reason = f"{version} is not in the table; {row.version} is its nearest neighbour"
        return Nearest(row, exact=False, extrapolated=False, reason=reason)

    def select(self, spec: str, package: str | None = None) -> tuple[Release, ...]:
        """The rows a person means by `spec` (see versions.Spec), newest first.

        Raises versions.VersionSyntaxError where it is no specification, UnknownReleaseError where none fits.
        """
        wanted = versions.Spec(spec)
        rows = [row for row in self.releases if package in (None, row.package)]
        chosen = wanted.select(row.version for row in rows)
        if not chosen:
            raise UnknownReleaseError(spec, self.nearest_versions(spec))
        order = {version: index for index, version in enumerate(chosen)}
        picked = [row for row in rows if row.version in order]
        return tuple(sorted(picked, key=lambda row: (order[row.version], row.package)))

    def nearest_versions(self, text: str, count: int = 3) -> tuple[str, ...]:
        """Known final versions close to `text`, for "did you mean", newest first: those of its minor, then its
        neighbours in order. Where it is no number: the newest."""
        known = [version for version in self._by_version if not versions.parse(version).is_prerelease]
        try:
            wanted = versions.numbers(text.lstrip("<>=!~ "))
        except versions.VersionSyntaxError:
            return tuple(reversed(known[-count:]))
        place = sum(versions.numbers(version) < wanted for version in known)

        def distance(index: int) -> tuple[bool, float]:
            same = versions.numbers(known[index])[:2] == wanted[:2]
            return not same, abs(index + 0.5 - place)

        near = sorted(range(len(known)), key=distance)[:count]
        return tuple(known[index] for index in sorted(near, reverse=True))

    def releases_for_python(
        self, python: str, platform: Platform = "linux", *, gpu: bool | None = True
    ) -> tuple[Release, ...]:
        """Final releases with a wheel for this Python (`"3.10"`, `"3.10.13"`), newest first.

        `gpu`: only with (True) or without (False) GPU code on that platform; None: all.
        """
        wanted = versions.major_minor(python)
        return tuple(
            row
            for row in reversed(self.releases)
            if not row.is_prerelease
            and not row.yanked
            and wanted in row.pythons(platform)
            and (gpu is None or _has_gpu(row, platform) is gpu)
        )

    def code_for(
        self, release: Release, capability: str
    ) -> Literal["native", "jit", "arch-specific", "none", "unknown"]:
        """What the wheel has for a compute capability.

        Machine code (of the same major and no higher minor); only PTX that the driver has to compile; PTX
        of which a part is specific to another architecture, so that some kernels fail; nothing; not measured.
        """
        if not release.cubin and not release.ptx:
            return "unknown" if release.gpu else "none"
        wanted = versions.parse_capability(capability)
        for text in release.cubin:
            have = versions.parse_capability(text)
            if have[0] == wanted[0] and have[1] <= wanted[1]:
                return "native"
        if any(versions.parse_capability(text) <= wanted for text in release.ptx):
            return "arch-specific" if release.ptx_arch_specific else "jit"
        return "none"

    def distribution(self, name: str) -> Distribution | None:
        """What is known of a distribution called so (`tensorflow-intel`), or None."""
        wanted = re.sub(r"[-_.]+", "-", name).lower()
        return next((row for row in self._libraries[2] if row.name == wanted), None)

    @property
    def distributions(self) -> tuple[Distribution, ...]:
        """Every distribution that is a TensorFlow or passes for one."""
        return self._libraries[2]

    # --- libraries ---

    def required_libraries_for(
        self, cuda_config: Mapping[str, str], release: Release | str
    ) -> tuple[str, ...] | None:
        """The sonames that *any* build needs for GPU registration, from its own cuda_config.h.

        `cuda_config` holds the header's defines (`TF_CUDART_VERSION` or `CUDART`); `release` is the build's
        version, or a row. In the order in which TF tries them, the driver's left out. A build without CUDA
        gives `()`. None where the header does not say enough.
        """
        version = release if isinstance(release, str) else release.version
        return _derive(normalize_defines(cuda_config), version)

    def driver_libraries_for(self, version: str) -> tuple[str, ...]:
        """The driver's sonames that TF of this version needs for a GPU: NVML too from 2.21 on.

        From 1.1 to 1.13 libcuda.so.1 is linked as well, so that without it the import fails.
        """
        if versions.numbers(version)[:2] < (2, 21):
            return ("libcuda.so.1",)
        return ("libcuda.so.1", "libnvidia-ml.so.1")

    @property
    def libraries(self) -> tuple[LibraryFamily, ...]:
        """Every library family."""
        return self._libraries[1]

    def library(self, name: str) -> LibraryFamily | None:
        """The family of a soname (`libcusolver.so.11`) or stem (`cusolver`), or None."""
        parts = split_soname(name)
        stem = name if parts is None else parts[0]
        return next((row for row in self.libraries if row.stem == stem), None)

    def soname_for(self, stem: str, cuda: str) -> str | None:
        """The soname that a library has in a CUDA toolkit: `("cusolver", "11.0")` → `libcusolver.so.10`.

        None for cuDNN and NCCL, whose version does not follow CUDA's, and where unknown.
        """
        family = self.library(stem)
        version = None if family is None else _by_cuda(family.sonames, cuda)
        if version is None:
            return None
        return f"lib{stem}.so.{version.replace('x', versions.major_minor(cuda).split('.')[1])}"

    def cuda_of_soname(self, soname: str) -> tuple[str, ...]:
        """The CUDA versions, as in libraries.toml, whose toolkit has this soname: `libcusolver.so.10` → 10,
        11.0."""
        parts = split_soname(soname)
        family = self.library(soname)
        if parts is None or family is None:
            return ()
        return tuple(cuda for cuda, version in family.sonames.items() if version == parts[1])

    def wheel_for(self, soname: str, cuda_major: int) -> PypiWheel | None:
        """NVIDIA's wheel that brings a library for this CUDA major, and the folder it is put in, or None."""
        family = self.library(soname)
        return None if family is None else family.wheels.get(cuda_major)

    def debian_package_for(self, soname: str, cuda: str | None = None) -> str | None:
        """The package of NVIDIA's own apt repository: `("libcublas.so.12", "12.5")` → `libcublas-12-5`.

        Without `cuda` only packages whose name does not depend on it (`libcudnn8`, `libnccl2`).
        """
        family, parts = self.library(soname), split_soname(soname)
        if family is None:
            return None
        name = None
        if parts is not None and parts[1] is not None:
            name = family.debian.get(f"so.{parts[1].split('.')[0]}")
        if name is None and cuda is not None:
            name = _by_cuda(family.debian, cuda)
        if name is None or "{" not in name:
            return name
        if cuda is None:
            return None
        return name.format(dash=versions.major_minor(cuda).replace(".", "-"), major=versions.numbers(cuda)[0])

    def distro_package_for(self, soname: str) -> str | None:
        """Debian's or Ubuntu's own package of this very soname (non-free, multiverse), or None."""
        family, parts = self.library(soname), split_soname(soname)
        if family is None or parts is None or parts[1] is None:
            return None
        return family.distro.get(parts[1])

    # --- CUDA and drivers ---

    @property
    def cuda_releases(self) -> tuple[CudaRelease, ...]:
        """Every toolkit release, oldest first."""
        return self._cuda.releases

    @property
    def forward_compatibility(self) -> ForwardCompatibility:
        """When cuda-compat can stand in for a newer driver."""
        return self._cuda.forward_compatibility

    def cuda_series(self, cuda: str) -> CudaSeries | None:
        """What the toolkit of this minor compiles for, or None where nobody looked."""
        wanted = versions.major_minor(cuda)
        return next((row for row in self._cuda.series if row.version == wanted), None)

    def cuda_release(self, cuda: str) -> CudaRelease | None:
        """The toolkit release of this version; of `"12.5"` the first one, of a newer patch the newest
        known."""
        rows = [row for row in self.cuda_releases if versions.has_prefix(row.version, _two(cuda))]
        if not rows:
            return None
        fitting = [row for row in rows if versions.compare(row.version, cuda) <= 0]
        return fitting[-1] if fitting else rows[0]

    def driver_minimum(self, cuda: str, os: Platform = "linux") -> DriverMinimum:
        """The driver that programs built with this CUDA need (`"12.5.1"`, `"11.2"`, `"10.1"`).

        `minimum` is None where the table has no answer. Raises versions.VersionSyntaxError.
        """
        from tfdoctor.compat.models_cuda import DriverMinimum

        major = versions.major(cuda)
        family = next((row for row in self._cuda.families if row.major == major), None)
        row = self.cuda_release(cuda)
        own = None if row is None else getattr(row, os)
        if family is None:
            why = f"CUDA {major} is newer than this table ({self._cuda.as_of})"
            return DriverMinimum(cuda, os, None, None, own, False, why, "documented", ())
        floor = getattr(family, os)
        sources = tuple(dict.fromkeys((*family.sources, *(() if row is None else row.sources))))
        if not family.minor_version_compatibility:
            why = f"CUDA {cuda} needs the driver it came with, {own or 'which is not known'}, or newer"
            return DriverMinimum(cuda, os, own, None, own, False, why, "documented", sources)
        minimum = floor
        if own is not None and floor is not None and not versions.at_least(own, floor):
            minimum = own
        if minimum is None:
            why = f"NVIDIA's table has no {os} driver for CUDA {major}"
        else:
            why = f"any CUDA {major}.x runs on driver {minimum} and newer (minor-version compatibility)"
            if row is None:
                why += f"; CUDA {cuda} itself is not in the table ({self._cuda.as_of})"
            if own is not None and own != minimum:
                why += f"; what has to be compiled from PTX needs {own}, the driver of CUDA {cuda}"
        return DriverMinimum(cuda, os, minimum, floor, own, True, why, "documented", sources)

    def newest_cuda_for_driver(self, driver: str, os: Platform = "linux") -> str | None:
        """The newest CUDA minor whose own driver is not newer than `driver`.

        None below all, and for a driver of a newer branch than the table has: that one brings a CUDA which
        nobody here has seen.
        """
        known: list[tuple[str, str]] = []
        for row in self.cuda_releases:
            own = getattr(row, os)
            if own is not None:
                known.append((versions.major_minor(row.version), own))
        have = {cuda for cuda, _ in known}
        known += [  # of the newest ones only the branch is printed yet
            (series.version, series.driver_branch.lstrip("R"))
            for series in self._cuda.series
            if series.driver_branch is not None and series.version not in have
        ]
        if versions.major(driver) > max(versions.major(own) for _, own in known):
            return None
        fitting = [cuda for cuda, own in known if versions.at_least(driver, own)]
        return max(fitting, key=versions.numbers, default=None)

    # --- cuDNN ---

    @property
    def cudnn_ranges(self) -> tuple[CudnnRange, ...]:
        """Every known run of cuDNN versions, oldest first."""
        return self._cudnn[1]

    def cudnn_range(self, version: str, cuda_major: int | None = None) -> CudnnRange | None:
        """The run that a cuDNN version (`"9.10.2.21"`, `"9.10"`) belongs to, or None where unknown."""
        for row in self.cudnn_ranges:
            if (
                versions.at_least(version, _short(row.first, version))
                and not versions.at_least(version, row.below)
                and (cuda_major is None or cuda_major in row.cuda)
            ):
                return row
        return None

    def cudnn_support(self, version: str, capability: str) -> CudnnSupport:
        """Whether this cuDNN has code for a compute capability. Raises versions.VersionSyntaxError."""
        from tfdoctor.compat.models_cuda import CudnnSupport

        row = self.cudnn_range(version)
        wanted = versions.parse_capability(capability)
        if row is None:
            why = f"cuDNN {version} was not looked into"
            return CudnnSupport(version, capability, "unknown", None, why)
        lowest = versions.parse_capability(row.lowest)
        highest = versions.parse_capability(row.highest)
        if wanted < lowest:
            why = f"cuDNN {version} has code for compute capability {row.lowest} and newer only"
            older = [other for other in self.cudnn_ranges if versions.compare(other.below, row.first) <= 0]
            had = any(versions.parse_capability(other.lowest) <= wanted for other in older)
            return CudnnSupport(version, capability, "dropped" if had else "unknown", row, why)
        if wanted <= highest or wanted[0] == highest[0]:
            why = f"cuDNN {version} has machine code from {row.lowest} to {row.highest}"
            return CudnnSupport(version, capability, "native", row, why)
        if row.ptx is not None and versions.parse_capability(row.ptx) <= wanted:
            why = f"cuDNN {version} ends at {row.highest}; {capability} compiles its PTX {row.ptx}"
            return CudnnSupport(version, capability, "jit", row, why)
        why = f"cuDNN {version} ends at compute capability {row.highest}"
        return CudnnSupport(version, capability, "too-new", row, why)

    # --- GPUs ---

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Every known GPU name, by capability, then name."""
        return self._gpus[1]

    @property
    def gpus_as_of(self) -> str:
        """The date of the GPU table, ISO 8601."""
        return self._gpus[0]

    def gpu_by_pci_id(self, pci_id: str) -> Gpu | None:
        """The GPU with this PCI device id, or None: `"2684"`, `"0x2684"`, `"10de:2684"`, `"0x268410DE"`."""
        text = pci_id.strip().lower().removeprefix("0x")
        if re.fullmatch(r"[0-9a-f]{4}10de", text):  # as nvidia-smi and NVML write it: device, then vendor
            text = text[:4]
        text = text.removeprefix("10de:")
        return self._gpu_by_id.get(text)

    def gpus_named(self, name: str) -> GpuMatch | None:
        """What a GPU's name can mean (`"Tesla V100-SXM2-16GB"`, `"RTX 3060"`, `"h100"`), or None.

        Case, punctuation and the words NVIDIA, GeForce, Tesla, Quadro do not matter. A full match wins;
        else every GPU whose name has all the words.
        """
        from tfdoctor.compat.models_gpus import GpuMatch

        words = _words(name)
        core = words - _BRANDS
        if not core:
            return None
        tests: tuple[tuple[Callable[[frozenset[str]], bool], bool], ...] = (
            (lambda have: have == words, True),
            (lambda have: have - _BRANDS == core, True),
            (lambda have: core <= have, False),
        )
        for test, exact in tests:
            found = tuple(gpu for gpu, have in self._gpu_words if test(have))
            if found:
                order = sorted({gpu.capability for gpu in found}, key=versions.parse_capability)
                return GpuMatch(name, found, tuple(order), exact)
        return None

    @cached_property
    def _gpu_words(self) -> tuple[tuple[Gpu, frozenset[str]], ...]:
        return tuple((gpu, _words(gpu.name)) for gpu in self.gpus)

    def nearest_gpu_names(self, name: str, count: int = 3) -> tuple[str, ...]:
        """Known names that look like `name`, best first."""
        import difflib

        short = {" ".join(sorted(have - _BRANDS)): gpu.name for gpu, have in self._gpu_words}
        wanted = " ".join(sorted(_words(name) - _BRANDS))
        return tuple(short[key] for key in difflib.get_close_matches(wanted, short, n=count, cutoff=0.5))

    # --- images and Pythons ---

    @cached_property
    def images(self) -> Images:
        """Container images: nvidia/cuda, tensorflow/tensorflow, NGC."""
        from tfdoctor.compat.images import load_images

        return load_images(self._folder)

    def image_tags(
        self, cuda: str, cudnn_major: int | None = None, flavour: Flavour | None = None
    ) -> tuple[ImageTag, ...]:
        """Tags of nvidia/cuda that are known to exist (see images.Images.tags)."""
        return self.images.tags(cuda, cudnn_major=cudnn_major, flavour=flavour)

    def official_image(self, tf: str) -> OfficialImage | None:
        """The tensorflow/tensorflow image of a release, whether it works or not; None: not known."""
        return self.images.of_release(tf)

    def ngc_images(self, tf: str | None = None, *, cuda: str | None = None) -> tuple[NgcImage, ...]:
        """NVIDIA's own TensorFlow images, newest first (see images.Images.of_ngc)."""
        return self.images.of_ngc(tf, cuda=cuda)

    @cached_property
    def pythons(self) -> Pythons:
        """Where Pythons come from."""
        from tfdoctor.compat.pythons import load_pythons

        return load_pythons(self._folder)

    def python_builds(self, python: str, *, system: str | None = None) -> tuple[PythonBuild, ...]:
        """Every known way to a Python (see pythons.Pythons.ways)."""
        return self.pythons.ways(python, system=system)

    # --- problems ---

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Every known problem."""
        return self._problems[1]

    def problem(self, problem_id: str) -> Problem | None:
        """The problem with this id, or None."""
        return next((row for row in self.problems if row.id == problem_id), None)

    def problems_of(
        self,
        package: str,
        version: str,
        *,
        capability: str | None = None,
        area: str | None = None,
    ) -> tuple[Problem, ...]:
        """What is known to be wrong with this release.

        With `capability` problems of other GPUs are left out; other conditions (`Problem.when`) are the
        caller's to judge. `area` narrows to one of `libraries python gpu images packaging`.
        """
        package = self._canonical_package(package)
        return tuple(
            row
            for row in self.problems
            if row.applies(package, version)
            and (area is None or row.area == area)
            and (capability is None or capability_matches(capability, row.when.get("capability")))
        )


@lru_cache(maxsize=8)
def _load(folder: Path | None) -> Compat:
    return Compat(folder)


def capability_matches(capability: str, condition: str | None) -> bool:
    """Whether a compute capability fulfils `"<7.5"`, `">=5.0,<5.2"`, `"!=3.7"`; no condition is fulfilled."""
    if condition is None:
        return True
    have = versions.parse_capability(capability)
    for part in condition.split(","):
        match = re.fullmatch(r"\s*(<=|>=|==|!=|<|>)\s*([0-9.]+)\s*", part)
        if match is None:
            msg = f"`{condition}` is not a condition on compute capabilities"
            raise versions.VersionSyntaxError(msg)
        want = versions.parse_capability(match[2])
        holds = {
            "<": have < want,
            "<=": have <= want,
            ">": have > want,
            ">=": have >= want,
            "==": have == want,
            "!=": have != want,
        }[match[1]]
        if not holds:
            return False
    return True


def _derive(defines: Mapping[str, str], version: str) -> tuple[str, ...] | None:
    """The required sonames by the rules of `stream_executor`'s loader and of the linker before it."""
    if "CUDA" not in defines:
        return () if not defines else None
    minor = versions.numbers(version)[:2]
    result = []
    for stem in era_stems(version):
        name = _DEFINE_OF_STEM.get(stem, stem.upper())
        if minor < (1, 14) and name != "CUDNN":
            number = defines["CUDA"]
        elif name == "CUDART":
            # Until 2.3 the runtime's soname followed the toolkit and had no define of its own.
            number = defines.get("CUDART", defines["CUDA"])
        else:
            number = defines.get(name) or (defines.get("CUDA_LIB", "") if name != "CUDNN" else "")
        if not number:
            return None
        result.append(f"lib{stem}.so.{number}")
    return tuple(result)


def _by_cuda(table: Mapping[str, str], cuda: str) -> str | None:
    """The entry of a CUDA version in a table by minor or major."""
    minor = versions.major_minor(cuda)
    return table.get(minor, table.get(str(versions.major(cuda))))


def _two(cuda: str) -> str:
    return ".".join(cuda.split(".")[:2])


def _short(first: str, version: str) -> str:
    """`first` cut to as many numbers as `version` has: 9.10 lies in a range that starts at 9.10.1."""
    count = len(version.split("+", maxsplit=1)[0].split("-", maxsplit=1)[0].split("."))
    return ".".join(first.split(".")[:count])


def _canonical(version: str) -> str:
    try:
        return str(versions.parse(version))
    except versions.VersionSyntaxError:
        return version


def _has_gpu(row: Release, platform: Platform) -> bool:
    return row.gpu if platform == "linux" else bool(row.windows_gpu)


def _one_per_version(rows: Iterable[Release]) -> tuple[Release, ...]:
    """The GPU row of each version, else its only row."""
    best: dict[str, Release] = {}
    for row in rows:
        known = best.get(row.version)
        if known is None or (row.gpu and not known.gpu):
            best[row.version] = row
    return tuple(best.values())


def _words(name: str) -> frozenset[str]:
    text = re.sub(r"\((?:r|tm)\)", " ", name.lower())
    text = _GPU_GLUE.sub(lambda match: f" {match[0]} ", text)
    return frozenset(_GPU_WORD.findall(text))
