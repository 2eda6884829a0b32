"""Verify with a simulated GPU: check the code in the fat binaries, and compute in software."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.compat.fat_binaries import KernelCoverage, compute_coverage
from tfdoctor.core import versions
from tfdoctor.core.facts import value_of
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.core.text import upper_first
from tfdoctor.prediction.build import describe_build
from tfdoctor.prediction.fit.constraints import Assessment, check_gpus_and_driver, check_ngc_image
from tfdoctor.prediction.fit.models import Host
from tfdoctor.prediction.library_versions import find_cuda_version, find_cudnn_version
from tfdoctor.verification import software
from tfdoctor.verification.findings import make_finding
from tfdoctor.verification.simulate.kernels import read_gpu_code
from tfdoctor.verification.software import COMPUTING_STAGES, NOT_SIMULATED

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.compat.fat_binaries import Coverage
    from tfdoctor.core.facts import Facts, PythonFacts, TensorFlowFacts
    from tfdoctor.core.findings import Report
    from tfdoctor.prediction.build import Build
    from tfdoctor.prediction.fit.models import Reason
    from tfdoctor.system import System
    from tfdoctor.verification.session import VerificationRun
    from tfdoctor.verification.simulate.request import SimulatedGpus

__all__ = [
    "COMPUTING_STAGES",
    "can_list_gpus",
    "check_kernels",
    "check_simulated_driver",
    "list_rejection_reasons",
]

CODE_CAUSES = (Cause.DRIVER_TOO_OLD, Cause.GPU_TOO_NEW, Cause.GPU_TOO_OLD)
"""Causes that depend only on the release's GPU code, the GPU and the driver, so that simulations can show them."""


def check_simulated_driver(run: VerificationRun, facts: Facts) -> bool:
    """Record a failure of the stage `driver` that only simulations cause. Return whether there is one.

    Either the driver does not support the GPUs, or the loader finds another libcuda before the stand-in.
    """
    simulated, cuda = run.verify_request.simulated_gpus, value_of(facts.driver.cuda)
    if simulated is not None and not simulated.visible_cards and cuda is not None and not cuda.count:
        run.record_failure("driver", "; ".join(simulated.refusal_reasons), Cause.NO_DEVICE)
        run.findings.append(_make_unsupported_gpu_finding(simulated))
        return True
    other_libcuda = run.other_libcuda
    # 34 is CUDA_ERROR_STUB_LIBRARY: the other libcuda is the toolkit's stub, which a rule reports.
    if other_libcuda is None or (cuda is not None and cuda.init == 34):
        return False
    title = f"{other_libcuda} is found before the stand-in"
    run.record_failure("driver", f"{title}: nothing could be simulated", Cause.INCONCLUSIVE)
    run.findings.append(
        make_finding(
            Cause.INCONCLUSIVE,
            title,
            "The stand-in comes last on LD_LIBRARY_PATH, as a driver comes after it. A folder on that path has a "
            "libcuda.so.1 of its own, which a real driver would not replace either.",
            (Remedy("Take that folder off LD_LIBRARY_PATH, and verify again.", (run.build_command(),)),),
        )
    )
    return True


def can_list_gpus(run: VerificationRun, tensorflow: TensorFlowFacts, compat: Compat) -> bool:
    """Return whether this TensorFlow can list GPUs without computing.

    If it cannot, record the stages `import` and `visible` as skipped.
    """
    if describe_build(tensorflow, compat).linkage != "needed":
        return True
    for name in ("import", "visible"):
        run.record_stage(
            name,
            "skipped",
            "not simulated with its own libraries: CUDA is linked into it, and it lists its GPUs by computing",
        )
    return False


def check_kernels(
    run: VerificationRun,
    system: System,
    python: PythonFacts,
    tensorflow: TensorFlowFacts,
    report: Report,
    compat: Compat,
) -> None:
    """Check that the fat binaries contain code for the simulated GPUs, then run the computing stages.

    If the fat binaries cannot be read, only the rules decide the stage `compute`.
    """
    simulated = run.verify_request.simulated_gpus
    if simulated is None or run.has_failed:
        return
    build = describe_build(tensorflow, compat)
    if any(name in run.verify_request.stages for name in COMPUTING_STAGES):
        gpu_code = read_gpu_code(system, python, tensorflow)
        if gpu_code.binary_counts:
            coverages = [
                compute_coverage(gpu_code.binary_counts, capability)
                for capability in dict.fromkeys(card.capability for card in simulated.visible_cards)
            ]
            description = _check_binaries(run, simulated, build, report, coverages, compat)
            if description is not None and not _is_rejected(run, simulated, build, report, compat):
                run.simulation_results = (f"there is {description}",)
                software.run_computing_stages(run, system, python, build, gpu_code, description)
            return
        if _is_rejected(run, simulated, build, report, compat):
            return
        _check_by_rules(run, report, gpu_code.failure_reason)
    for name in ("cudnn", "nccl"):
        if not run.has_failed:
            run.record_stage(name, "skipped", NOT_SIMULATED)


def list_rejection_reasons(
    simulated: SimulatedGpus, build: Build, facts: Facts, compat: Compat
) -> tuple[Reason, ...]:
    """Return why the planner does not offer this TensorFlow, with the CUDA that it loads, for the simulated GPUs.

    The result is empty if nothing is known against it, or if the tables do not have this build.
    """
    assessment = Assessment()
    host = Host(cards=simulated.cards, driver=simulated.driver)
    _, is_nvidia_build, nvidia_version = (build.version or "").partition("+nv")
    if is_nvidia_build:
        for image in compat.images.ngc_images:
            if image.tag.partition("-")[0] == nvidia_version:
                check_ngc_image(assessment, compat, image, host)
                break
    elif build.release is not None and build.is_exact_release:
        cuda = find_cuda_version(facts) or build.release.cuda
        cudnn = find_cudnn_version(facts)
        if cuda is not None:
            check_gpus_and_driver(
                assessment,
                compat,
                build.release,
                host,
                cuda,
                cudnn.version if cudnn is not None else build.release.cudnn,
            )
    return tuple(assessment.reasons)


def _is_rejected(
    run: VerificationRun, simulated: SimulatedGpus, build: Build, report: Report, compat: Compat
) -> bool:
    """Return whether the planner rejects this TensorFlow, and record that as the failure of the stage `compute`."""
    reasons = list_rejection_reasons(simulated, build, report.facts, compat)
    if not reasons:
        return False
    reason = reasons[0]
    run.record_failure("compute", reason.text, reason.cause)
    if not any(f.severity is Severity.ERROR and f.cause is reason.cause for f in report.findings):
        run.findings.append(_make_rejection_finding(simulated, build, reason))
    return True


def _check_binaries(
    run: VerificationRun,
    simulated: SimulatedGpus,
    build: Build,
    report: Report,
    coverages: list[Coverage],
    compat: Compat,
) -> str | None:
    """Return a description of the code that the fat binaries contain for the GPUs.

    If a GPU or the driver cannot run it, record the failure of the stage `compute` and return None.
    """
    description = "; ".join(coverage.description for coverage in coverages)
    uncovered = next(
        (
            coverage
            for coverage in coverages
            if coverage.kernel_coverage in (KernelCoverage.TOO_NEW, KernelCoverage.TOO_OLD)
        ),
        None,
    )
    if uncovered is not None:
        cause = (
            Cause.GPU_TOO_NEW if uncovered.kernel_coverage is KernelCoverage.TOO_NEW else Cause.GPU_TOO_OLD
        )
        run.record_failure("compute", description, cause)
        if all(finding.cause is not cause for finding in report.findings):
            run.findings.append(_make_missing_code_finding(build, uncovered, cause))
        return None
    driver_finding = next(
        (f for f in report.findings if _is_blocking(f) and f.cause is Cause.DRIVER_TOO_OLD), None
    )
    if driver_finding is not None:
        run.record_failure("compute", driver_finding.title, Cause.DRIVER_TOO_OLD)
        return None
    ptx_requirements = [
        (coverage, _find_required_cuda(coverage, build, compat))
        for coverage in coverages
        if coverage.kernel_coverage is KernelCoverage.PTX
    ]
    uncompilable = next(
        (
            (coverage, cuda)
            for coverage, cuda in ptx_requirements
            if cuda and not versions.is_at_least(simulated.cuda, cuda)
        ),
        None,
    )
    if uncompilable is not None:
        ptx_item, cuda = uncompilable
        reason = f"driver {simulated.driver} speaks CUDA {simulated.cuda}, and the PTX is of CUDA {cuda}"
        run.record_failure(
            "compute", f"{ptx_item.description}, and this driver cannot: {reason}", Cause.DRIVER_TOO_OLD
        )
        if all(finding.cause is not Cause.DRIVER_TOO_OLD for finding in report.findings):
            run.findings.append(_make_uncompilable_ptx_finding(simulated, cuda, ptx_item))
        return None
    return description


def _check_by_rules(run: VerificationRun, report: Report, reason: str) -> None:
    """Record the stage `compute` by the rules. `reason` is why the fat binaries could not be read."""
    finding = next((f for f in report.findings if _is_blocking(f)), None)
    if finding is not None:
        run.record_failure("compute", finding.title, finding.cause)
        return
    run.record_stage(
        "compute", "skipped", f"{NOT_SIMULATED}; whether there is code for the card is not known: {reason}"
    )


def _is_blocking(finding: Finding) -> bool:
    """Return whether a finding says that the GPU or the driver cannot run the code."""
    return finding.severity is Severity.ERROR and finding.cause in CODE_CAUSES


def _find_required_cuda(coverage: Coverage, build: Build, compat: Compat) -> str | None:
    """Return the CUDA version that a driver must support to compile the PTX.

    If the version of the PTX is unknown, this is the CUDA version of the build; None if that is unknown, too.
    """
    cuda = compat.find_cuda_for_ptx(coverage.newest_isa) if coverage.newest_isa is not None else None
    if cuda is not None:
        return cuda
    has_version = build.cuda is not None and versions.is_version(build.cuda)
    return versions.major_minor(build.cuda) if has_version and build.cuda is not None else None


def _make_unsupported_gpu_finding(simulated: SimulatedGpus) -> Finding:
    return make_finding(
        Cause.NO_DEVICE,
        "This driver does not show this card",
        f"{'. '.join(simulated.refusal_reasons)}. The stand-in answers as such a driver does: cuInit finds no device.",
        (Remedy("Simulate another driver; without --driver the newest that drives the card is taken.", ()),),
        (Evidence("the tables", simulated.title),),
    )


def _make_missing_code_finding(build: Build, uncovered: Coverage, cause: Cause) -> Finding:
    return make_finding(
        cause,
        f"TensorFlow {build.version} has no code for compute capability {uncovered.capability}",
        f"Its fat binaries were read: {uncovered.description}. TensorFlow registers the card, and operations fail.",
        (
            Remedy(
                "See which releases have code for it.", (f"tfdoctor recommend --gpu {uncovered.capability}",)
            ),
        ),
    )


def _make_rejection_finding(simulated: SimulatedGpus, build: Build, reason: Reason) -> Finding:
    options = Host(cards=simulated.cards, driver=simulated.driver).options
    return make_finding(
        reason.cause,
        f"TensorFlow {build.version} with these libraries is not for such a machine",
        f"{upper_first(reason.text)}. TensorFlow may register the card, and operations fail: "
        "`tfdoctor recommend` does not offer this release with these libraries.",
        (Remedy("See which releases work there.", (" ".join(["tfdoctor recommend", *options]),)),),
        (Evidence("the tables", reason.source),),
    )


def _make_uncompilable_ptx_finding(simulated: SimulatedGpus, cuda: str, ptx: Coverage) -> Finding:
    return make_finding(
        Cause.DRIVER_TOO_OLD,
        f"The driver is too old to compile this TensorFlow's PTX: CUDA {cuda} is needed",
        f"Its fat binaries were read: {ptx.description}. Driver {simulated.driver} speaks CUDA {simulated.cuda}"
        " and takes no "
        "newer PTX (CUDA_ERROR_UNSUPPORTED_PTX_VERSION).",
        (Remedy("Take a newer driver, or a release with machine code for the card.", ()),),
    )
