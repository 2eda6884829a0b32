"""What of a verification is other where card and driver are stand-ins: the kernels are read, and software computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.compat.fat_binaries import KernelCoverage, coverage
from tfdoctor.facts import value_of
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.predict import build_of
from tfdoctor.simulate.kernels import read_kernels
from tfdoctor.verify import software
from tfdoctor.verify.findings import make_finding
from tfdoctor.verify.software import COMPUTING, NOT_SIMULATED

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.compat.fat_binaries import Coverage
    from tfdoctor.facts import Facts, PythonFacts, TensorFlowFacts
    from tfdoctor.findings import Report
    from tfdoctor.predict import Build
    from tfdoctor.simulate.request import Simulated
    from tfdoctor.system import System
    from tfdoctor.verify.session import Verifying

__all__ = ["COMPUTING", "can_list_gpus", "has_driver_refused", "judge_kernels"]

ABOUT_CODE = (Cause.DRIVER_TOO_OLD, Cause.GPU_TOO_NEW, Cause.GPU_TOO_OLD)
"""Causes of which a release's code, the card and the driver are all that matters: they hold for stand-ins, too."""


def has_driver_refused(run: Verifying, facts: Facts) -> bool:
    """Return whether the stage `driver` failed for a reason that only a simulation has.

    A driver that shows no such card, or another libcuda before the stand-in.
    """
    asked, cuda = run.wish.simulated, value_of(facts.driver.cuda)
    if asked is not None and not asked.shown and cuda is not None and not cuda.count:
        run.fail("driver", "; ".join(asked.undriven), Cause.NO_DEVICE)
        run.findings.append(_undriven(asked))
        return True
    other = run.other_libcuda
    if other is None or (cuda is not None and cuda.init == 34):  # the toolkit's stub: a rule names that
        return False
    title = f"{other} is found before the stand-in"
    run.fail("driver", f"{title}: nothing could be simulated", Cause.INCONCLUSIVE)
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


def can_list_gpus(run: Verifying, tensorflow: TensorFlowFacts, compat: Compat) -> bool:
    """Return whether this TensorFlow can list GPUs without computing; record it if not: only software can run it."""
    if build_of(tensorflow, compat).linkage != "needed":
        return True
    for name in ("import", "visible"):
        run.add(
            name,
            "skipped",
            "not simulated with its own libraries: CUDA is linked into it, and it lists its GPUs by computing",
        )
    return False


def judge_kernels(
    run: Verifying,
    system: System,
    python: PythonFacts,
    tensorflow: TensorFlowFacts,
    report: Report,
    compat: Compat,
) -> None:
    """Run in place of `compute`: check the code for each card, whether the driver takes it, and whether it
    computes.
    """
    asked = run.wish.simulated
    if asked is None or run.stopped:
        return
    build = build_of(tensorflow, compat)
    if any(name in run.wish.stages for name in COMPUTING):
        binaries = read_kernels(system, python, tensorflow)
        if binaries.counts:
            each = [
                coverage(binaries.counts, card) for card in dict.fromkeys(c.capability for c in asked.shown)
            ]
            said = _judge_by_files(run, asked, build, report, each, compat)
            if said is not None:
                run.shown_by_simulation = (f"there is {said}",)
                software.run_computing(run, system, python, build, binaries, said)
            return
        _judge_by_rules(run, report, binaries.why)
    for name in ("cudnn", "nccl"):
        if not run.stopped:
            run.add(name, "skipped", NOT_SIMULATED)


def _judge_by_files(
    run: Verifying, asked: Simulated, build: Build, report: Report, each: list[Coverage], compat: Compat
) -> str | None:
    """Evaluate the fat binaries: return what they have, in words; None if a card cannot run it."""
    said = "; ".join(one.sentence for one in each)
    lacking = next(
        (one for one in each if one.kernels in (KernelCoverage.TOO_NEW, KernelCoverage.TOO_OLD)), None
    )
    if lacking is not None:
        cause = Cause.GPU_TOO_NEW if lacking.kernels is KernelCoverage.TOO_NEW else Cause.GPU_TOO_OLD
        run.fail("compute", said, cause)
        if all(finding.cause is not cause for finding in report.findings):
            run.findings.append(_report_missing_code(build, lacking, cause))
        return None
    too_old = next((f for f in report.findings if _blocks(f) and f.cause is Cause.DRIVER_TOO_OLD), None)
    if too_old is not None:
        run.fail("compute", too_old.title, Cause.DRIVER_TOO_OLD)
        return None
    late = [(one, _find_needed_cuda(one, build, compat)) for one in each if one.kernels is KernelCoverage.PTX]
    refused_one = next(
        ((one, cuda) for one, cuda in late if cuda and not versions.is_at_least(asked.cuda, cuda)), None
    )
    if refused_one is not None:
        late_one, cuda = refused_one
        why = f"driver {asked.driver} speaks CUDA {asked.cuda}, and the PTX is of CUDA {cuda}"
        run.fail("compute", f"{late_one.sentence}, and this driver cannot: {why}", Cause.DRIVER_TOO_OLD)
        if all(finding.cause is not Cause.DRIVER_TOO_OLD for finding in report.findings):
            run.findings.append(_cannot_compile(asked, cuda, late_one))
        return None
    return said


def _judge_by_rules(run: Verifying, report: Report, why: str) -> None:
    """Evaluate the rules alone, if the files could not be read."""
    found = next((f for f in report.findings if _blocks(f)), None)
    if found is not None:
        run.fail("compute", found.title, found.cause)
        return
    run.add("compute", "skipped", f"{NOT_SIMULATED}; whether there is code for the card is not known: {why}")


def _blocks(finding: Finding) -> bool:
    return finding.severity is Severity.ERROR and finding.cause in ABOUT_CODE


def _find_needed_cuda(late: Coverage, build: Build, compat: Compat) -> str | None:
    """Return the CUDA that the driver must support to compile that PTX; the toolkit's if its version was not read."""
    cuda = compat.cuda_of_ptx(late.isa) if late.isa is not None else None
    if cuda is not None:
        return cuda
    known = build.cuda is not None and versions.is_version(build.cuda)
    return versions.major_minor(build.cuda) if known and build.cuda is not None else None


def _undriven(asked: Simulated) -> Finding:
    return make_finding(
        Cause.NO_DEVICE,
        "This driver does not show this card",
        f"{'. '.join(asked.undriven)}. The stand-in answers as such a driver does: cuInit finds no device.",
        (Remedy("Simulate another driver; without --driver the newest that drives the card is taken.", ()),),
        (Evidence("the tables", asked.title),),
    )


def _report_missing_code(build: Build, lacking: Coverage, cause: Cause) -> Finding:
    return make_finding(
        cause,
        f"TensorFlow {build.version} has no code for compute capability {lacking.capability}",
        f"Its fat binaries were read: {lacking.sentence}. TensorFlow registers the card, and operations fail.",
        (
            Remedy(
                "See which releases have code for it.", (f"tfdoctor recommend --gpu {lacking.capability}",)
            ),
        ),
    )


def _cannot_compile(asked: Simulated, cuda: str, late: Coverage) -> Finding:
    return make_finding(
        Cause.DRIVER_TOO_OLD,
        f"The driver is too old to compile this TensorFlow's PTX: CUDA {cuda} is needed",
        f"Its fat binaries were read: {late.sentence}. Driver {asked.driver} speaks CUDA {asked.cuda} and takes no "
        "newer PTX (CUDA_ERROR_UNSUPPORTED_PTX_VERSION).",
        (Remedy("Take a newer driver, or a release with machine code for the card.", ()),),
    )
