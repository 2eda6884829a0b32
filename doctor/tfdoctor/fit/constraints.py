"""What speaks against a release: the machine, the cards, the driver; each reason with its row of compat/. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.findings import Cause
from tfdoctor.fit.drivers import find_driver_refusal
from tfdoctor.fit.models import Caveat, Reason
from tfdoctor.predict import DEFAULT_FLOOR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.compat import Compat, Platform, Release
    from tfdoctor.compat.images import NgcImage
    from tfdoctor.fit.models import Card, Host

__all__ = [
    "Judgement",
    "check_cards",
    "check_driver",
    "check_machine",
    "check_ngc_image",
    "check_release",
    "find_newest_supported",
    "find_platform",
]


class Judgement:
    """Reasons and caveats, gathered; a cause said once of a card is not said again."""

    def __init__(self) -> None:
        self.reasons: list[Reason] = []
        self.caveats: list[Caveat] = []

    def refuse(self, cause: Cause, text: str, source: str) -> None:
        self.reasons.append(Reason(cause, text, source))

    def warn(self, cause: Cause, text: str, source: str, *, serious: bool = True) -> None:
        self.caveats.append(Caveat(cause, text, source, serious))


def format_row(release: Release) -> str:
    """Return the name of a release's row for reasons."""
    return f"tensorflow.json: {release.package} {release.version}"


def find_capability_floor(release: Release) -> str:
    """Return the compute capability below which this release ignores a card."""
    if release.registration_floor is None and release.linkage == "needed" and release.cubin:
        return min(release.cubin, key=versions.parse_capability)
    return release.registration_floor or DEFAULT_FLOOR


def check_release(release: Release) -> tuple[Caveat, ...]:
    """Return the caveats of a release that hold on every machine."""
    found = Judgement()
    if release.is_prerelease:
        found.warn(Cause.INCONCLUSIVE, f"{release.version} is not a final release", format_row(release))
    if release.yanked:
        found.warn(Cause.INCONCLUSIVE, f"{release.version} was withdrawn (yanked)", format_row(release))
    return tuple(found.caveats)


# ---------------------------------------------------------------- the machine


def check_machine(found: Judgement, release: Release, host: Host, *, container: bool) -> None:
    """Check the operating system, the processor and, for an environment on the machine, glibc."""
    name = f"TensorFlow {release.version}"
    if host.system == "Darwin":
        found.refuse(Cause.NO_DRIVER, "there is no CUDA on macOS", "cuda.toml: [[family]]")
        return
    if host.system == "Windows" and not container:
        found.refuse(
            Cause.WINDOWS_NATIVE_UNSUPPORTED,
            f"{name} has no Windows wheel with GPU code"
            if not release.windows_gpu
            else f"{name} on native Windows needs CUDA and cuDNN installed by hand; use WSL2",
            "problems.toml: windows-without-gpu",
        )
    if host.machine not in ("x86_64", "AMD64", "amd64"):
        found.refuse(
            Cause.CPU_ONLY_BUILD,
            f"the {host.machine} wheels of TensorFlow have no GPU code",
            format_row(release),
        )
    if not container and release.glibc is not None and host.lacks_glibc(release.glibc):
        found.refuse(
            Cause.GLIBC_TOO_OLD,
            f"{name} needs glibc {release.glibc}; here is {host.glibc}",
            format_row(release),
        )
    lacking = [
        flag for flag in release.cpu_instructions or () if host.cpu_flags and flag not in host.cpu_flags
    ]
    if lacking:
        found.refuse(
            Cause.ILLEGAL_INSTRUCTION_AVX,
            f"{name} needs a processor with {', '.join(flag.upper() for flag in lacking)}",
            format_row(release),
        )


# ---------------------------------------------------------------- cards


def check_cards(
    found: Judgement, compat: Compat, release: Release, host: Host, cuda: str, cudnn: str | None
) -> None:
    """Check the cards against the wheel's machine code and PTX, its CUDA libraries and its cuDNN."""
    reasons, caveats = _check_cards(compat, release, host.cards, cuda, cudnn)
    found.reasons += reasons
    found.caveats += caveats


@lru_cache(maxsize=4096)
def _check_cards(
    compat: Compat, release: Release, cards: tuple[Card, ...], cuda: str, cudnn: str | None
) -> tuple[tuple[Reason, ...], tuple[Caveat, ...]]:
    found = Judgement()
    if not cards:
        _check_newest_cards(found, compat, cuda)
    for card in _different(cards):
        before = len(found.reasons)
        _code(found, compat, release, card)
        if len(found.reasons) == before:
            _check_libraries(found, compat, card, cuda)
        if len(found.reasons) == before and cudnn is not None:
            _cudnn(found, compat, card, cudnn)
    return tuple(found.reasons), tuple(found.caveats)


def _different(cards: tuple[Card, ...]) -> Iterator[Card]:
    seen: set[str] = set()
    for card in cards:
        if card.capability not in seen:
            seen.add(card.capability)
            yield card


def _label(card: Card) -> str:
    return (
        f"{card.name} (compute capability {card.capability})" if "capability" not in card.name else card.name
    )


def _code(found: Judgement, compat: Compat, release: Release, card: Card) -> None:
    name, capability = f"TensorFlow {release.version}", card.capability
    floor = find_capability_floor(release)
    if not versions.is_at_least(capability, floor):
        found.refuse(
            Cause.GPU_TOO_OLD,
            f"{name} ignores cards below compute capability {floor}; {_label(card)} is older",
            format_row(release),
        )
        return
    code = compat.code_for(release, capability)
    problems = [
        problem
        for problem in compat.problems_of(release.package, release.version, capability=capability, area="gpu")
        if set(problem.when) <= {"capability"}
    ]
    bad = next((problem for problem in problems if problem.severity == "error"), None)
    if bad is not None:
        found.refuse(
            Cause(bad.cause), f"{_label(card)}: {bad.title}. {bad.remedy}", f"problems.toml: {bad.id}"
        )
        return
    newest = max(release.cubin, key=versions.parse_capability, default=None)
    if code == "none":
        older = newest is not None and not versions.is_at_least(capability, newest)
        inside = f" (it has {', '.join(release.cubin)})" if release.cubin else ""
        found.refuse(
            Cause.GPU_TOO_OLD if older else Cause.GPU_TOO_NEW,
            f"{name} has no code for {_label(card)}{inside}",
            format_row(release),
        )
    elif code == "arch-specific":
        found.refuse(
            Cause.GPU_TOO_NEW,
            f"{name} has PTX for {', '.join(release.ptx_arch_specific)} alone, which {_label(card)} cannot "
            "compile: operations fail with CUDA_ERROR_INVALID_PTX",
            format_row(release),
        )
    elif code == "jit":
        found.warn(
            Cause.GPU_TOO_NEW,
            f"{name} has no machine code for {_label(card)}: the driver compiles its PTX at first use, which "
            "can take half an hour; keep ~/.nv/ComputeCache",
            format_row(release),
        )
        for problem in problems:
            found.warn(
                Cause(problem.cause), f"{problem.title}. {problem.text}", f"problems.toml: {problem.id}"
            )
    elif code == "unknown":
        found.warn(
            Cause.INCONCLUSIVE,
            f"it is not known which cards {name} has code for",
            format_row(release),
            serious=False,
        )


def _check_libraries(found: Judgement, compat: Compat, card: Card, cuda: str) -> None:
    """Check a card against cuBLAS, cuFFT and the others, which know the cards that their toolkit could compile
    for.
    """
    series = compat.cuda_series(cuda)
    if series is None or not series.capabilities:
        return
    have = [versions.parse_capability(text) for text in series.capabilities]
    wanted = versions.parse_capability(card.capability)
    source = f"cuda.toml: [[series]] {series.version}"
    if wanted < min(have):
        found.refuse(
            Cause.GPU_TOO_OLD,
            f"the libraries of CUDA {versions.major_minor(cuda)} begin at compute capability "
            f"{series.capabilities[0]}; {_label(card)} is older",
            source,
        )
    elif (ends := find_newest_supported(compat, cuda, card.capability)) is not None:
        found.refuse(
            Cause.GPU_TOO_NEW,
            f"the libraries of CUDA {versions.major_minor(cuda)} end at compute capability {ends}; "
            f"{_label(card)} is newer",
            source,
        )


def _check_newest_cards(found: Judgement, compat: Compat, cuda: str) -> None:
    """Warn that newer cards are too new, if the host's cards are not known."""
    known = max((gpu.capability for gpu in compat.gpus), key=versions.parse_capability)
    if (ends := find_newest_supported(compat, cuda, known)) is not None:
        found.warn(
            Cause.GPU_TOO_NEW,
            f"the libraries of CUDA {versions.major_minor(cuda)} end at compute capability {ends}: a card of a newer "
            "generation cannot use them",
            f"cuda.toml: [[series]] {versions.major_minor(cuda)}",
            serious=False,
        )


def find_newest_supported(compat: Compat, cuda: str, capability: str) -> str | None:
    """Return the newest capability that the libraries of this CUDA support, if the card is of a newer generation."""
    series = compat.cuda_series(cuda)
    if series is None or not series.capabilities:
        return None
    newest = series.capabilities[-1]
    newer = versions.parse_capability(capability)[0] > versions.parse_capability(newest)[0]
    return newest if newer else None


def _cudnn(found: Judgement, compat: Compat, card: Card, cudnn: str) -> None:
    support = compat.cudnn_support(cudnn, card.capability)
    source = f"cudnn.toml: [[range]] {support.range.first}" if support.range is not None else "cudnn.toml"
    if support.verdict == "dropped":
        found.refuse(Cause.GPU_TOO_OLD, f"{_label(card)}: {support.explanation}", source)
    elif support.verdict == "too-new":
        highest = support.range.highest if support.range is not None else "0.0"
        if versions.parse_capability(card.capability)[0] > versions.parse_capability(highest)[0]:
            found.refuse(Cause.GPU_TOO_NEW, f"{_label(card)}: {support.explanation}", source)
    elif support.verdict == "jit":
        found.warn(Cause.GPU_TOO_NEW, f"{_label(card)}: {support.explanation}", source, serious=False)


def check_ngc_image(found: Judgement, compat: Compat, image: NgcImage, host: Host) -> None:
    """Check the cards and the driver against one of NVIDIA's own images, whose TensorFlow is NVIDIA's build."""
    source = f"images.toml: [[ngc]] {image.tag}"
    lowest, said = compat.images.lowest_of(image), ""
    if image.lowest is None:
        said = " (assumed from NVIDIA's other images; no page for this one was read)"
    for card in _different(host.cards):
        if lowest is not None and not versions.is_at_least(card.capability, lowest):
            found.refuse(
                Cause.GPU_TOO_OLD,
                f"{image.name} begins at compute capability {lowest}{said}; {_label(card)} is older",
                source,
            )
        else:
            _check_libraries(found, compat, card, image.cuda)
            if image.cudnn is not None:
                _cudnn(found, compat, card, image.cudnn)
    _branch_of_cards(found, compat, image.cuda, host)
    if host.driver is None or image.driver is None or not can_drive_cards(found, compat, host):
        return
    if host.reaches(image.driver):
        _warn_older_in_branch(found, host.driver, image.driver, source)
        return
    minimum = compat.driver_minimum(image.cuda, find_platform(host))
    if minimum.minimum is not None and host.reaches(minimum.minimum):
        found.warn(
            Cause.DRIVER_TOO_OLD,
            f"{image.name} was made for driver {image.driver}; {host.driver} runs it by minor-version "
            "compatibility, except for code that has to be compiled from PTX",
            source,
        )
    else:
        found.refuse(
            Cause.DRIVER_TOO_OLD, f"{image.name} needs driver {image.driver}; here is {host.driver}", source
        )


# ---------------------------------------------------------------- driver


def check_driver(found: Judgement, compat: Compat, release: Release, host: Host, cuda: str) -> None:
    """Check the driver against what CUDA needs and against the newest that the cards can have."""
    minimum = compat.driver_minimum(cuda, find_platform(host))
    source = f"cuda.toml: [[family]] {versions.major(cuda)}"
    if not can_drive_cards(found, compat, host):
        return
    if host.driver is not None and minimum.minimum is not None:
        if not host.reaches(minimum.minimum):
            found.refuse(
                Cause.DRIVER_TOO_OLD,
                f"CUDA {versions.major_minor(cuda)} needs driver {minimum.minimum} or newer; here is "
                f"{host.driver}",
                source,
            )
            return
        _warn_older_in_branch(found, host.driver, minimum.minimum, source)
        _check_jit_driver(found, compat, release, host)
    _branch_of_cards(found, compat, cuda, host)


def can_drive_cards(found: Judgement, compat: Compat, host: Host) -> bool:
    """Return whether the driver drives all cards: not older than one of them, nor of a branch past its last."""
    if host.driver is None or host.shown:
        return True
    before = len(found.reasons)
    for card in _different(host.cards):
        why = find_driver_refusal(compat, host.driver, card, find_platform(host))
        if why is not None:
            found.refuse(*why)
    return len(found.reasons) == before


def _warn_older_in_branch(found: Judgement, driver: str, minimum: str, source: str) -> None:
    """Warn that an older driver of a branch (`450`) would not do: a branch stands for its newest."""
    if not versions.is_at_least(driver, minimum):
        found.warn(
            Cause.DRIVER_TOO_OLD,
            f"of driver {driver} its newest is meant: {minimum} or newer is needed",
            source,
            serious=False,
        )


def find_platform(host: Host) -> Platform:
    """Return whose driver numbers count: in WSL and Docker Desktop those of the Windows driver."""
    return "windows" if host.wsl or host.system == "Windows" else "linux"


def _check_jit_driver(found: Judgement, compat: Compat, release: Release, host: Host) -> None:
    """Check whether the driver knows the PTX that it has to compile where machine code is missing."""
    if host.driver is None:
        return
    for card in _different(host.cards):
        needed = _to_compile(compat, release, card.capability)
        if needed is None:
            continue
        cuda, share = needed
        own = compat.driver_minimum(cuda, find_platform(host)).own
        if own is None or host.reaches(own):
            continue
        row_of_cuda = compat.cuda_release(cuda)
        found.refuse(
            Cause.DRIVER_TOO_OLD,
            f"{share} kernels of TensorFlow {release.version} have to be compiled for {_label(card)}, which "
            f"needs driver {own} (CUDA {versions.major_minor(cuda)}); here is {host.driver}",
            f"cuda.toml: [[release]] {row_of_cuda.version if row_of_cuda is not None else ''}".rstrip(),
        )


@lru_cache(maxsize=4096)
def _to_compile(compat: Compat, release: Release, capability: str) -> tuple[str, str] | None:
    return compat.to_compile(release, capability)


def _branch_of_cards(found: Judgement, compat: Compat, cuda: str, host: Host) -> None:
    minimum = compat.driver_minimum(cuda).minimum
    if minimum is None:
        return
    for card in _different(host.cards):
        branch = compat.cards.find_ended(card.capability)
        if branch is not None and versions.major(minimum) > versions.major(branch.last):
            found.refuse(
                Cause.GPU_TOO_OLD,
                f"CUDA {versions.major_minor(cuda)} needs driver {minimum}, and the last driver for "
                f"{_label(card)} is of branch {branch.last}",
                f"cuda.toml: [[family]] {versions.major(cuda)}",
            )
