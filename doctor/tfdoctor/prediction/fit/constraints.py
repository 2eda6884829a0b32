"""Check whether a machine, its GPUs and its driver support a release, and collect the reasons."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.findings import Cause
from tfdoctor.core.text import join_words
from tfdoctor.prediction.build import find_capability_floor
from tfdoctor.prediction.fit.drivers import find_driver_refusal
from tfdoctor.prediction.fit.models import Caveat, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.compat import Compat, Platform, Release
    from tfdoctor.compat.images import NgcImage
    from tfdoctor.prediction.fit.models import Host, HostGpu

__all__ = [
    "Assessment",
    "check_gpus_and_driver",
    "check_machine",
    "check_ngc_image",
    "check_release",
    "describe_image_driver",
    "find_exceeded_capability",
    "find_jit_driver",
    "find_platform",
]


class Assessment:
    """The reasons against a release and its caveats, which the checks of this module add."""

    def __init__(self) -> None:
        self.reasons: list[Reason] = []
        self.caveats: list[Caveat] = []

    def add_reason(self, cause: Cause, text: str, source: str) -> None:
        """Add a reason why the release cannot be used. `source` is the entry of compat/ that proves it."""
        self.reasons.append(Reason(cause, text, source))

    def add_caveat(self, cause: Cause, text: str, source: str, *, serious: bool = True) -> None:
        """Add a caveat. The release can still be used."""
        self.caveats.append(Caveat(cause, text, source, serious))


def format_release_source(release: Release) -> str:
    """Return the name of the entry of compat/ for a release, as the source of a reason."""
    return f"tensorflow.json: {release.package} {release.version}"


def check_release(release: Release) -> tuple[Caveat, ...]:
    """Return the caveats of a release that apply to every machine."""
    assessment = Assessment()
    if release.is_prerelease:
        assessment.add_caveat(
            Cause.INCONCLUSIVE, f"{release.version} is not a final release", format_release_source(release)
        )
    if release.yanked:
        assessment.add_caveat(
            Cause.INCONCLUSIVE, f"{release.version} was withdrawn (yanked)", format_release_source(release)
        )
    return tuple(assessment.caveats)


# ---------------------------------------------------------------- machine


def check_machine(assessment: Assessment, release: Release, host: Host, *, container: bool) -> None:
    """Add the reasons why the operating system, the processor or glibc exclude a release.

    With `container`, glibc is not checked, because a container has its own.
    """
    name = f"TensorFlow {release.version}"
    if host.system == "Darwin":
        assessment.add_reason(Cause.NO_DRIVER, "there is no CUDA on macOS", "cuda.toml: [[family]]")
        return
    if host.system == "Windows" and not container:
        assessment.add_reason(
            Cause.WINDOWS_NATIVE_UNSUPPORTED,
            f"{name} has no Windows wheel with GPU code"
            if not release.windows_gpu
            else f"{name} on native Windows needs CUDA and cuDNN installed by hand; use WSL2",
            "problems.toml: windows-without-gpu",
        )
    if host.machine not in ("x86_64", "AMD64", "amd64"):
        assessment.add_reason(
            Cause.CPU_ONLY_BUILD,
            f"the {host.machine} wheels of TensorFlow have no GPU code",
            format_release_source(release),
        )
    if not container and release.glibc is not None and host.lacks_glibc(release.glibc):
        assessment.add_reason(
            Cause.GLIBC_TOO_OLD,
            f"{name} needs glibc {release.glibc}; here is {host.glibc}",
            format_release_source(release),
        )
    missing_flags = [
        flag for flag in release.cpu_instructions or () if host.cpu_flags and flag not in host.cpu_flags
    ]
    if missing_flags:
        assessment.add_reason(
            Cause.ILLEGAL_INSTRUCTION_AVX,
            f"{name} needs a processor with {', '.join(flag.upper() for flag in missing_flags)}",
            format_release_source(release),
        )


# ---------------------------------------------------------------- GPUs


def check_gpus_and_driver(
    assessment: Assessment, compat: Compat, release: Release, host: Host, cuda: str, cudnn: str | None
) -> None:
    """Add the reasons and caveats if a release with this CUDA and cuDNN does not suit the GPUs or the driver.

    The planner and `verify --simulate` both decide with this function, so that their answers agree.
    """
    reasons, caveats = _collect_gpu_results(compat, release, host.cards, cuda, cudnn)
    assessment.reasons += reasons
    assessment.caveats += caveats
    _check_driver(assessment, compat, release, host, cuda)


@lru_cache(maxsize=4096)
def _collect_gpu_results(
    compat: Compat, release: Release, gpus: tuple[HostGpu, ...], cuda: str, cudnn: str | None
) -> tuple[tuple[Reason, ...], tuple[Caveat, ...]]:
    """Return the reasons and caveats about the GPUs; cached, because hosts and releases repeat."""
    assessment = Assessment()
    if not gpus:
        _warn_about_newest_gpus(assessment, compat, cuda)
        _describe_kernel_code(assessment, compat, release, cuda)
    if any(" MIG " in gpu.name for gpu in gpus):
        assessment.add_caveat(
            Cause.NO_DEVICE,
            "CUDA gives a process one MIG instance: several instances need several processes",
            "NVIDIA Multi-Instance GPU User Guide: CUDA Device Enumeration",
            serious=False,
        )
    for gpu in _iter_distinct_gpus(gpus):
        reason_count = len(assessment.reasons)
        _check_kernel_code(assessment, compat, release, gpu)
        if len(assessment.reasons) == reason_count:
            _check_libraries(assessment, compat, gpu, cuda)
        if len(assessment.reasons) == reason_count and cudnn is not None:
            _check_cudnn(assessment, compat, gpu, cudnn)
    return tuple(assessment.reasons), tuple(assessment.caveats)


def _iter_distinct_gpus(gpus: tuple[HostGpu, ...]) -> Iterator[HostGpu]:
    """Yield the first GPU of each compute capability."""
    capabilities: set[str] = set()
    for gpu in gpus:
        if gpu.capability not in capabilities:
            capabilities.add(gpu.capability)
            yield gpu


def _format_gpu(gpu: HostGpu) -> str:
    # Without a known name, `name` is "compute capability 8.6".
    return f"{gpu.name} (compute capability {gpu.capability})" if "capability" not in gpu.name else gpu.name


def _check_kernel_code(assessment: Assessment, compat: Compat, release: Release, gpu: HostGpu) -> None:
    """Add a reason or a caveat unless the release has cubins for a GPU."""
    name, capability = f"TensorFlow {release.version}", gpu.capability
    floor = find_capability_floor(release, compat)
    if not versions.is_at_least(capability, floor):
        assessment.add_reason(
            Cause.GPU_TOO_OLD,
            f"{name} ignores cards below compute capability {floor}; {_format_gpu(gpu)} is older",
            format_release_source(release),
        )
        return
    code = compat.find_code(release, capability)
    problems = [
        problem
        for problem in compat.list_problems(
            release.package, release.version, capability=capability, area="gpu"
        )
        if set(problem.conditions) <= {"capability"}  # other conditions depend on the installation
    ]
    fatal_problem = next((problem for problem in problems if problem.severity == "error"), None)
    if fatal_problem is not None:
        assessment.add_reason(
            Cause(fatal_problem.cause),
            f"{_format_gpu(gpu)}: {fatal_problem.title}. {fatal_problem.remedy}",
            f"problems.toml: {fatal_problem.id}",
        )
        return
    newest = max(release.cubin, key=versions.parse_capability, default=None)
    if code == "none":
        is_older = newest is not None and not versions.is_at_least(capability, newest)
        available = f" (it has {', '.join(release.cubin)})" if release.cubin else ""
        assessment.add_reason(
            Cause.GPU_TOO_OLD if is_older else Cause.GPU_TOO_NEW,
            f"{name} has no code for {_format_gpu(gpu)}{available}",
            format_release_source(release),
        )
    elif code == "arch-specific":
        assessment.add_reason(
            Cause.GPU_TOO_NEW,
            f"{name} has PTX for {', '.join(release.ptx_arch_specific)} alone, which {_format_gpu(gpu)} cannot "
            "compile: operations fail with CUDA_ERROR_INVALID_PTX",
            format_release_source(release),
        )
    elif code == "jit":
        assessment.add_caveat(
            Cause.GPU_TOO_NEW,
            f"{name} has no machine code for {_format_gpu(gpu)}: the driver compiles its PTX at first use, which "
            "can take half an hour; keep ~/.nv/ComputeCache",
            format_release_source(release),
        )
        for problem in problems:
            assessment.add_caveat(
                Cause(problem.cause), f"{problem.title}. {problem.text}", f"problems.toml: {problem.id}"
            )
    elif code == "unknown":
        assessment.add_caveat(
            Cause.INCONCLUSIVE,
            f"it is not known which cards {name} has code for",
            format_release_source(release),
            serious=False,
        )


def _check_libraries(assessment: Assessment, compat: Compat, gpu: HostGpu, cuda: str) -> None:
    """Add a reason if the toolkit's libraries (cuBLAS, cuFFT and others) do not support a GPU."""
    series = compat.find_cuda_series(cuda)
    if series is None or not series.capabilities:
        return
    capabilities = [versions.parse_capability(text) for text in series.capabilities]
    capability = versions.parse_capability(gpu.capability)
    source = f"cuda.toml: [[series]] {series.version}"
    if capability < min(capabilities):
        assessment.add_reason(
            Cause.GPU_TOO_OLD,
            f"the libraries of CUDA {versions.major_minor(cuda)} begin at compute capability "
            f"{series.capabilities[0]}; {_format_gpu(gpu)} is older",
            source,
        )
    elif (newest := find_exceeded_capability(compat, cuda, gpu.capability)) is not None:
        assessment.add_reason(
            Cause.GPU_TOO_NEW,
            f"CUDA {versions.major_minor(cuda)} supports GPUs up to compute capability {newest}; "
            f"{_format_gpu(gpu)} is newer",
            source,
        )


def _warn_about_newer_gpu(assessment: Assessment, compat: Compat, gpu: HostGpu, cuda: str) -> None:
    """Add a caveat if a CUDA version is older than a GPU of a generation that it supports."""
    series = compat.find_cuda_series(cuda)
    capabilities = series.capabilities if series is not None else ()
    if capabilities and gpu.capability not in capabilities and not assessment.reasons:
        assessment.add_caveat(
            Cause.GPU_TOO_NEW,
            f"CUDA {versions.major_minor(cuda)} is older than {_format_gpu(gpu)}: such a GPU runs what its libraries have "
            "for the older ones of its generation, and nothing in them was made for it",
            f"cuda.toml: [[series]] {versions.major_minor(cuda)}",
            serious=False,
        )


def _warn_about_newest_gpus(assessment: Assessment, compat: Compat, cuda: str) -> None:
    """Add a caveat for hosts with unknown GPUs if a CUDA version does not support the newest known GPUs."""
    newest_known = max((known_gpu.capability for known_gpu in compat.gpus), key=versions.parse_capability)
    if (newest := find_exceeded_capability(compat, cuda, newest_known)) is not None:
        assessment.add_caveat(
            Cause.GPU_TOO_NEW,
            f"CUDA {versions.major_minor(cuda)} supports GPUs up to compute capability {newest}",
            f"cuda.toml: [[series]] {versions.major_minor(cuda)}",
            serious=False,
        )


def _describe_kernel_code(assessment: Assessment, compat: Compat, release: Release, cuda: str) -> None:
    """Add a caveat for hosts with unknown GPUs that names the GPUs that a release has cubins for."""
    generations = compat.cards.generations
    codes = [compat.find_code(release, generation.capability) for generation in generations]
    native = [generation for generation, code in zip(generations, codes, strict=True) if code == "native"]
    if not native:
        return
    newer_codes = codes[len(codes) - codes[::-1].index("native") :]
    newer = (
        ""
        if not newer_codes or find_exceeded_capability(compat, cuda, generations[-1].capability) is not None
        else "; for newer cards, the driver compiles its PTX"
        if all(code == "jit" for code in newer_codes)
        else "; it does not work on all newer cards"
    )
    assessment.add_caveat(
        Cause.GPU_TOO_OLD,
        f"TensorFlow {release.version} has machine code for {native[0].name} to {native[-1].name} (compute capability "
        f"{native[0].capability} to {native[-1].capability}){newer}",
        format_release_source(release),
        serious=False,
    )


def find_exceeded_capability(compat: Compat, cuda: str, capability: str) -> str | None:
    """Return the newest capability that a CUDA version supports, if the GPU is of a newer generation.

    Return None if it is not newer, or if the supported capabilities are not known.
    """
    series = compat.find_cuda_series(cuda)
    if series is None or not series.capabilities:
        return None
    newest = series.capabilities[-1]
    # Code for a compute capability runs on later ones of the same generation, which is the major number.
    is_newer = versions.parse_capability(capability)[0] > versions.parse_capability(newest)[0]
    return newest if is_newer else None


def _check_cudnn(assessment: Assessment, compat: Compat, gpu: HostGpu, cudnn: str) -> None:
    """Add a reason or a caveat if a cuDNN version does not fully support a GPU."""
    support = compat.find_cudnn_support(cudnn, gpu.capability)
    source = (
        f"cudnn.toml: [[range]] {support.version_range.first_version}"
        if support.version_range is not None
        else "cudnn.toml"
    )
    if support.verdict == "dropped":
        assessment.add_reason(Cause.GPU_TOO_OLD, f"{_format_gpu(gpu)}: {support.explanation}", source)
    elif support.verdict == "too-new":
        highest = support.version_range.max_capability if support.version_range is not None else "0.0"
        if versions.parse_capability(gpu.capability)[0] > versions.parse_capability(highest)[0]:
            assessment.add_reason(Cause.GPU_TOO_NEW, f"{_format_gpu(gpu)}: {support.explanation}", source)
    elif support.verdict == "jit":
        assessment.add_caveat(
            Cause.GPU_TOO_NEW, f"{_format_gpu(gpu)}: {support.explanation}", source, serious=False
        )


def check_ngc_image(assessment: Assessment, compat: Compat, image: NgcImage, host: Host) -> None:
    """Add the reasons and caveats for an NGC image, whose TensorFlow is NVIDIA's own build."""
    source = f"images.toml: [[ngc]] {image.tag}"
    min_capability, note = compat.images.find_min_capability(image), ""
    if image.min_capability is None:
        note = " (assumed from NVIDIA's other images; no page for this one was read)"
    for gpu in _iter_distinct_gpus(host.cards):
        if min_capability is not None and not versions.is_at_least(gpu.capability, min_capability):
            assessment.add_reason(
                Cause.GPU_TOO_OLD,
                f"{image.name} begins at compute capability {min_capability}{note}; {_format_gpu(gpu)} is older",
                source,
            )
        else:
            _check_libraries(assessment, compat, gpu, image.cuda)
            _warn_about_newer_gpu(assessment, compat, gpu, image.cuda)
            if image.cudnn is not None:
                _check_cudnn(assessment, compat, gpu, image.cudnn)
    if not host.cards:
        _warn_about_newest_gpus(assessment, compat, image.cuda)
        if min_capability is not None:
            text = f"{image.name} begins at compute capability {min_capability}{note}"
            assessment.add_caveat(Cause.GPU_TOO_OLD, text, source, serious=False)
    _check_last_branch(assessment, compat, image.cuda, host)
    if host.driver is None or image.driver is None or not check_driver_support(assessment, compat, host):
        return
    if host.has_driver_at_least(image.driver):
        _warn_about_branch(assessment, host.driver, image.driver, source)
        return
    compat_driver = image.find_compat_driver(host.driver)
    if compat_driver is not None and host.has_driver_at_least(compat_driver) and host.has_data_center_gpus:
        assessment.add_caveat(
            Cause.DRIVER_TOO_OLD,
            f"{image.name} is made for driver {image.driver}; {format_driver_branch(compat_driver)} runs it, too, by "
            "NVIDIA's forward compatibility for data-center cards",
            source,
        )
        return
    minimum = compat.find_driver_minimum(image.cuda, find_platform(host))
    if minimum.minimum is not None and host.has_driver_at_least(minimum.minimum):
        assessment.add_caveat(
            Cause.DRIVER_TOO_OLD,
            f"{image.name} needs driver {image.driver}; {host.driver} runs it by minor-version "
            "compatibility, except for code that has to be compiled from PTX",
            source,
        )
    else:
        assessment.add_reason(
            Cause.DRIVER_TOO_OLD,
            f"{describe_image_driver(compat, image, host)}; here is {host.driver}",
            source,
        )


def format_driver_branch(driver: str) -> str:
    """Return a driver, from which on its branch works, as text: "branch 470 from 470.57 on"."""
    branch = f"branch {versions.major(driver)}"
    return f"{branch} from {driver} on" if "." in driver else branch


def describe_image_driver(compat: Compat, image: NgcImage, host: Host) -> str:
    """Return the driver that an NGC image needs, with the older branches that data-centre GPUs allow.

    They are omitted if the host has other GPUs, and those that do not support the host's GPUs.
    """
    text = f"{image.name} needs driver {image.driver} or newer"
    if host.has_data_center_gpus is False:
        return text
    if not image.compat_drivers:
        return f"{text} (on data-center cards, NVIDIA's notes for the image may allow older branches)"
    branches = [
        format_driver_branch(driver)
        for driver in image.compat_drivers
        if not any(
            find_driver_refusal(compat, str(versions.major(driver)), gpu, find_platform(host))
            for gpu in host.cards
        )
    ]
    return f"{text} (on data-center cards also {join_words(branches)})" if branches else text


# ---------------------------------------------------------------- driver


def _check_driver(assessment: Assessment, compat: Compat, release: Release, host: Host, cuda: str) -> None:
    """Add the reasons and caveats if the host's driver does not support a CUDA version or the GPUs.

    The last driver branch that supports a GPU must also be new enough for the CUDA version.
    """
    minimum = compat.find_driver_minimum(cuda, find_platform(host))
    source = f"cuda.toml: [[family]] {versions.major(cuda)}"
    if not check_driver_support(assessment, compat, host):
        return
    if host.driver is not None and minimum.minimum is not None:
        if not host.has_driver_at_least(minimum.minimum):
            assessment.add_reason(
                Cause.DRIVER_TOO_OLD,
                f"CUDA {versions.major_minor(cuda)} needs driver {minimum.minimum} or newer; here is "
                f"{host.driver}",
                source,
            )
            return
        _warn_about_branch(assessment, host.driver, minimum.minimum, source)
        _check_jit_driver(assessment, compat, release, host)
    _check_last_branch(assessment, compat, cuda, host)


def check_driver_support(assessment: Assessment, compat: Compat, host: Host) -> bool:
    """Add a reason for each GPU that the driver does not support, and return whether it supports all.

    A GPU that the driver itself reports is supported.
    """
    if host.driver is None or host.has_driver_gpus:
        return True
    reason_count = len(assessment.reasons)
    for gpu in _iter_distinct_gpus(host.cards):
        refusal = find_driver_refusal(compat, host.driver, gpu, find_platform(host))
        if refusal is not None:
            cause, text, source = refusal
            assessment.add_reason(cause, text, source)
    return len(assessment.reasons) == reason_count


def _warn_about_branch(assessment: Assessment, driver: str, minimum: str, source: str) -> None:
    """Add a caveat if the driver is a branch (`450`), and only newer drivers of the branch are suitable."""
    if not versions.is_at_least(driver, minimum):
        assessment.add_caveat(
            Cause.DRIVER_TOO_OLD,
            f"of branch {driver}, only driver {minimum} or newer works",
            source,
            serious=False,
        )


def find_platform(host: Host) -> Platform:
    """Return the platform whose driver versions count. In WSL it is "windows"."""
    return "windows" if host.is_wsl or host.system == "Windows" else "linux"


def _check_jit_driver(assessment: Assessment, compat: Compat, release: Release, host: Host) -> None:
    """Add a reason if the driver cannot compile the PTX of kernels that have no cubin for a GPU."""
    for gpu in _iter_distinct_gpus(host.cards):
        compilation = find_jit_driver(compat, release, gpu.capability, find_platform(host))
        if compilation is None or host.has_driver_at_least(compilation[0]):
            continue
        own_driver, cuda, share = compilation
        cuda_release = compat.find_cuda_release(cuda)
        assessment.add_reason(
            Cause.DRIVER_TOO_OLD,
            f"{share} kernels of TensorFlow {release.version} have no machine code for {_format_gpu(gpu)}: the "
            f"driver compiles them from PTX, and theirs is of CUDA {versions.major_minor(cuda)}, which takes driver "
            f"{own_driver} or newer; here is {host.driver}",
            f"cuda.toml: [[release]] {cuda_release.version if cuda_release is not None else ''}".rstrip(),
        )


@lru_cache(maxsize=4096)
def find_jit_driver(
    compat: Compat, release: Release, capability: str, platform: Platform
) -> tuple[str, str, str] | None:
    """Return (oldest driver, its CUDA version, share of the kernels) to compile a release's PTX for a GPU.

    Return None if nothing has to be compiled, or if the driver is not known.
    """
    compilation = compat.find_ptx_requirement(release, capability)
    if compilation is None:
        return None
    cuda, share = compilation
    driver = compat.find_driver_minimum(cuda, platform).toolkit_driver
    return (driver, cuda, share) if driver is not None else None


def _check_last_branch(assessment: Assessment, compat: Compat, cuda: str, host: Host) -> None:
    """Add a reason if a CUDA version needs a newer driver branch than the last one that supports a GPU."""
    min_driver = compat.find_driver_minimum(cuda).minimum
    if min_driver is None:
        return
    for gpu in _iter_distinct_gpus(host.cards):
        unsupported_gpus = compat.cards.find_unsupported(gpu.capability)
        if unsupported_gpus is not None and versions.major(min_driver) > versions.major(
            unsupported_gpus.last_branch
        ):
            assessment.add_reason(
                Cause.GPU_TOO_OLD,
                f"CUDA {versions.major_minor(cuda)} needs driver {min_driver}, and the last driver for "
                f"{_format_gpu(gpu)} is of branch {unsupported_gpus.last_branch}",
                f"cuda.toml: [[family]] {versions.major(cuda)}",
            )
