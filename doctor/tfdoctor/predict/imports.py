"""The first gate: does `import tensorflow` work?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.compat.imports import breaking
from tfdoctor.facts import Resolution, value_of
from tfdoctor.findings import Cause
from tfdoctor.predict.driver import driver_missing_cause
from tfdoctor.predict.libraries import not_permitted

if TYPE_CHECKING:
    from tfdoctor.facts import Facts, TensorFlowFacts
    from tfdoctor.predict.build import Build


def import_failure(facts: Facts, tensorflow: TensorFlowFacts, build: Build) -> tuple[Cause, str] | None:
    """Why `import tensorflow` fails; None where nothing known stands in its way."""
    if tensorflow.missing_files:
        return (
            Cause.INCONCLUSIVE,
            f"Its installation is damaged: {', '.join(tensorflow.missing_files)} missing.",
        )
    loader = value_of(facts.loader)
    if loader is not None and loader.import_needs:
        return _load_failure(facts, build, loader.import_needs[0])
    if lacks_avx(facts, tensorflow, build):
        return Cause.ILLEGAL_INSTRUCTION_AVX, "The processor has no AVX, with which this build is compiled."
    return _companion_failure(facts, tensorflow, build)


def lacks_avx(facts: Facts, tensorflow: TensorFlowFacts, build: Build) -> bool:
    """Whether this is one of TensorFlow's own x86 wheels compiled with AVX, on a processor without."""
    machine, release = facts.machine, build.release if build.exact else None
    if release is None or machine.machine.lower() not in {"x86_64", "amd64"} or tensorflow.conda_build:
        return False
    compiled = release.cpu_instructions
    with_avx = build.minor >= (1, 6) if compiled is None else "avx" in compiled
    return with_avx and bool(machine.cpu_flags) and "avx" not in machine.cpu_flags


def _companion_failure(facts: Facts, tensorflow: TensorFlowFacts, build: Build) -> tuple[Cause, str] | None:
    """NumPy, protobuf and the like, as compat/imports.toml knows them; conda's builds differ and are left out."""
    python = value_of(facts.python)
    if python is None or not python.distributions or tensorflow.conda_build:
        return None
    installed = python.versions_installed()
    for row in breaking(build.version, installed, facts.environment.variables, absent=python.absent):
        if row.effect == "import":
            have = installed.get(row.package)
            named = f"{row.package} {have}" if have is not None else f"no {row.package}"
            return Cause(row.cause), f"import tensorflow fails with {named}: {row.error}"
    return None


def _load_failure(facts: Facts, build: Build, failed: Resolution) -> tuple[Cause, str]:
    """Why the loader cannot load TensorFlow's own objects."""
    if not_permitted(failed, elsewhere=True):
        return Cause.NOT_PERMITTED, failed.error
    if "version `GLIBC_" in failed.error:
        return Cause.GLIBC_TOO_OLD, failed.error
    if "version `GLIBCXX_" in failed.error or "version `CXXABI_" in failed.error:
        return Cause.LIBSTDCXX_TOO_OLD, failed.error
    lost = set(failed.really_missing)
    if lost and lost <= {"libcuda.so.1"}:
        return driver_missing_cause(facts, failed), failed.error
    if build.linkage == "needed" and lost & {*build.required, *build.driver_libraries}:
        return Cause.IMPORT_MISSING_CUDA_LIB, failed.error
    return Cause.INCONCLUSIVE, failed.error
