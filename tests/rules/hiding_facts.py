"""Facts in which a variable, a file or a folder hides GPUs, libraries or modules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rules.make_facts import COMPAT, SITE, healthy
from tfdoctor.core.facts import (
    Distribution,
    EnvironmentFacts,
    Facts,
    Known,
    LoadAttempt,
    Origin,
    RemovedEntriesResult,
    ReplacedLibrary,
    Resolution,
    value_of,
)
from tfdoctor.core.facts.imports import ImportResult, RehearsalFacts
from tfdoctor.diagnosis.report import diagnose

if TYPE_CHECKING:
    from tfdoctor.core.findings import Finding, Report


HIDE = "CUDA_VISIBLE_DEVICES"


CUSTOM = f"{SITE}/sitecustomize.py"


ACTIVATE = "/env/bin/activate"


def with_hidden_gpus(origin: Origin, value: str = "-1", scheduler: str | None = None) -> Facts:
    """Return healthy facts, except that CUDA_VISIBLE_DEVICES hides every GPU."""
    facts = healthy()
    visible = value_of(facts.driver.cuda)
    assert visible is not None
    no_devices = replace(visible, init=100, init_name="CUDA_ERROR_NO_DEVICE", count=None, devices=())
    driver = replace(facts.driver, cuda=Known(no_devices, "x"), cuda_unhidden=Known(visible, "x"))
    environment = EnvironmentFacts({HIDE: value}, (), scheduler, (origin,))
    return replace(facts, driver=driver, environment=environment)


def diagnose_root(facts: Facts) -> tuple[Report, Finding]:
    """Return the report on the facts and its root finding."""
    report = diagnose(facts, COMPAT)
    assert report.root_finding is not None
    return report, report.root_finding


def with_shadowing_library(variable: str = "LD_LIBRARY_PATH") -> Facts:
    """Return facts in which a path variable puts leftovers of CUDA 11 before the cuSOLVER of CUDA 12."""
    facts = healthy()
    loader = value_of(facts.loader)
    assert loader is not None
    bad, good = "/old/lib64/libcusolver.so.11", f"{SITE}/tensorflow/../nvidia/cusolver/lib/libcusolver.so.11"
    failed = Resolution(
        "libcusolver.so.11",
        bad,
        variable,
        "libcublas.so.11: cannot open shared object file: No such file or directory",
        ("libcublas.so.11",),
        bad,
        (LoadAttempt(bad, "", variable),),
    )
    resolutions = tuple(failed if r.soname == failed.soname else r for r in loader.resolutions)
    without_folder = RemovedEntriesResult(
        variable, ("/old/lib64",), loader.resolutions, (), (ReplacedLibrary("libcusolver.so.11", bad, good),)
    )
    environment = EnvironmentFacts(
        {variable: "/old/lib64:/mine"},
        (),
        None,
        (
            Origin(
                variable,
                "activation",
                "/old/lib64",
                ACTIVATE,
                82,
                f"export {variable}=/old/lib64:${variable}",
            ),
        ),
    )
    return replace(
        facts,
        environment=environment,
        loader=Known(
            replace(
                loader,
                resolutions=resolutions,
                library_path=("/old/lib64", "/mine"),
                without=(without_folder,),
            ),
            "x",
        ),
    )


def with_two_tensorflows(value: str = "/team", *, origin: str = "shell") -> Facts:
    """Return facts in which PYTHONPATH puts a CPU-only TensorFlow before the environment's own."""
    facts = healthy()
    gpu_build, python = value_of(facts.tensorflow), value_of(facts.python)
    assert gpu_build is not None
    assert python is not None
    cpu_build = replace(
        gpu_build,
        package_dir="/team/tensorflow",
        core_dir="/team/tensorflow",
        distribution="tensorflow-cpu",
        build_info={"is_cuda_build": "False"},
        cuda_config={},
        behind=gpu_build,
    )
    path = ACTIVATE if origin == "activation" else ""
    line = (9, "export PYTHONPATH=/team") if path else (None, "")
    origins = (Origin("PYTHONPATH", origin, "/team", path, *line),)
    return replace(
        facts,
        tensorflow=Known(cpu_build, "/team/tensorflow"),
        python=Known(replace(python, sys_path=("/team", *python.sys_path)), "x"),
        loader_behind=facts.loader,
        environment=EnvironmentFacts({"PYTHONPATH": value}, (), None, origins),
    )


FOREIGN = "/old/lib/python3.10/site-packages"


def with_foreign_numpy(*installed: Distribution, error: str = "", value: str = f"{FOREIGN}/:/mine") -> Facts:
    """Return facts in which PYTHONPATH has a folder of Python 3.10 with NumPy; the interpreter is Python 3.11."""
    facts = healthy("2.20.0")
    python = value_of(facts.python)
    assert python is not None
    numpy = Distribution("numpy", "1.24.3" if not error else "2.4.6", FOREIGN, "pip")
    python = replace(
        python,
        sys_path=(FOREIGN, *python.sys_path),
        distributions=(numpy, *installed, *(d for d in python.distributions if d.name != "numpy")),
    )
    environment = EnvironmentFacts({"PYTHONPATH": value}, (), None)
    facts = replace(facts, python=Known(python, "x"), environment=environment)
    if not error:
        return facts
    failure = ImportResult(
        "numpy", error, "ImportError", import_error=True, file=f"{FOREIGN}/numpy/__init__.py"
    )
    return replace(facts, rehearsal=Known(RehearsalFacts((), (failure,)), "a child"))
