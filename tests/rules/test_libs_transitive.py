"""TFD204, libs-transitive."""

from __future__ import annotations

from dataclasses import replace

from rules.hiding_facts import ACTIVATE, diagnose_root, with_shadowing_library
from rules.make_facts import (
    NOT_FOUND,
    SITE,
    commands,
    context,
    finding,
    healthy,
    make_found,
    make_resolution,
    with_environment,
    with_loader,
    with_python,
    with_tensorflow,
)
from tfdoctor.core.causes.steps import Install, MakeLink, RemoveEntries
from tfdoctor.core.facts import (
    FoundElsewhere,
    Known,
    LoadAttempt,
    RemovedEntriesResult,
    Resolution,
    value_of,
)
from tfdoctor.core.findings import Cause
from tfdoctor.rules import (
    libs_transitive,
)


def test_shadowing_library_is_named_with_its_variable() -> None:
    report, result = diagnose_root(with_shadowing_library())
    assert (result.code, report.verdict.cause) == ("TFD204", Cause.LIBS_TRANSITIVE)
    assert (
        result.title
        == "/old/lib64/libcusolver.so.11, which LD_LIBRARY_PATH puts first, hides a library that works"
    )
    assert f"{SITE}/nvidia/cusolver/lib/libcusolver.so.11" in result.explanation
    assert f"{ACTIVATE}, line 82" in result.explanation
    (remedy,) = result.remedies
    assert remedy.commands[0] == "export LD_LIBRARY_PATH=/mine"
    assert remedy.commands[1].startswith("sed -i '82{/LD_LIBRARY_PATH/")
    assert remedy.steps == (RemoveEntries("LD_LIBRARY_PATH", ("/old/lib64",)),)


def transitive(error, missing):
    path = f"{SITE}/nvidia/cusparse/lib/libcusparse.so.12"
    return Resolution("libcusparse.so.12", path, "RUNPATH", error, missing, needed_by=path)


def test_missing_dependency_is_named_and_installed():
    facts = with_loader(healthy(), transitive(f"libnvJitLink.so.12: {NOT_FOUND}", ("libnvJitLink.so.12",)))
    result = finding(libs_transitive.RULE, facts)
    assert "libnvJitLink.so.12" in result.title
    assert commands(result)[0] == "/env/bin/python -m pip install nvidia-nvjitlink-cu12==12.5.82"
    assert context(facts).prediction.cause is Cause.LIBS_TRANSITIVE


def test_folder_of_the_dependency_is_added_to_the_path():
    facts = with_loader(
        healthy(),
        transitive(f"libnvJitLink.so.12: {NOT_FOUND}", ("libnvJitLink.so.12",)),
        also_found=(make_found("/usr/local/cuda/lib64/libnvJitLink.so.12"),),
    )
    assert any(
        "export LD_LIBRARY_PATH=/usr/local/cuda/lib64" in command
        for command in commands(finding(libs_transitive.RULE, facts))
    )


def test_library_for_a_newer_system_is_reported():
    error = f"/lib/libc.so.6: version `GLIBC_2.99' not found (required by {SITE}/x)"
    result = finding(libs_transitive.RULE, with_loader(healthy(), transitive(error, ())))
    assert "newer version" in result.title


def test_older_dependency_with_the_same_soname_is_named() -> None:
    """An older torch installed nvjitlink, which lacks a function that libcusparse needs."""
    path = f"{SITE}/nvidia/nvjitlink/lib/libnvJitLink.so.12"
    error = f"{SITE}/nvidia/cusparse/lib/libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_5"
    failed = replace(
        make_resolution("libcusparse.so.12", f"{SITE}/nvidia/cusparse/lib/libcusparse.so.12"),
        error=error,
        really_missing=("libcusparse.so.12",),
        tried=(LoadAttempt(path, "", "RUNPATH of libcusparse.so.12"),),
    )
    result = finding(libs_transitive.RULE, with_loader(healthy(), failed))
    assert result.title == "libcusparse.so.12 needs a different libnvJitLink.so.12 than the installed one"
    assert "nvidia-nvjitlink-cu12==" in commands(result)[0]


def test_requirement_excludes_the_installed_version() -> None:
    """2.20 requires nvjitlink >=12.5.82, which the installed, too old version satisfies."""
    nvidia = f"{SITE}/nvidia"
    failed = replace(
        make_resolution("libcusparse.so.12", f"{nvidia}/cusparse/lib/libcusparse.so.12"),
        error=f"{nvidia}/cusparse/lib/libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_6",
        really_missing=("libcusparse.so.12",),
        tried=(
            LoadAttempt(f"{nvidia}/nvjitlink/lib/libnvJitLink.so.12", "", "RUNPATH of libcusparse.so.12"),
        ),
    )
    facts = with_loader(with_tensorflow(healthy(), version="2.20.0"), failed)
    result = finding(libs_transitive.RULE, with_python(facts, installed={"nvidia-nvjitlink-cu12": "12.5.82"}))
    assert result.remedies[0].steps == (Install(("nvidia-nvjitlink-cu12<13.0,>=12.5.82,!=12.5.82",)),)
    assert "!=12.5.82" in commands(result)[0]
    older = finding(libs_transitive.RULE, with_python(facts, installed={"nvidia-nvjitlink-cu12": "12.4.127"}))
    assert "!=" not in commands(older)[0]


def test_bad_library_on_the_path_is_dropped_and_the_wheel_linked() -> None:
    """Without the folder, the loader would find no library, so the remedy also links the wheel's."""
    bad_path, good_path = "/conda/lib/libcufft.so.11", f"{SITE}/nvidia/cufft/lib/libcufft.so.11"
    failed = replace(
        make_resolution("libcufft.so.11", bad_path),
        error=f"{bad_path}: undefined symbol: gone",
        really_missing=("libcufft.so.11",),
    )
    facts = with_loader(with_environment(healthy(), LD_LIBRARY_PATH="/conda/lib"), failed)
    loader = value_of(facts.loader)
    assert loader is not None
    without_variable = RemovedEntriesResult("LD_LIBRARY_PATH", ("/conda/lib",), loader.resolutions, (), ())
    intact = FoundElsewhere("libcufft", "libcufft.so.11", good_path, None)
    loader = replace(loader, library_path=("/conda/lib",), found=(intact,), without=(without_variable,))
    result = finding(libs_transitive.RULE, replace(facts, loader=Known(loader, "")))
    assert result.title == "libcufft.so.11 needs a function that no library here has"
    assert [type(step) for step in result.remedies[0].steps] == [RemoveEntries, MakeLink]
    assert commands(result)[0] == "unset LD_LIBRARY_PATH"


def test_path_entry_stays_if_another_library_needs_it() -> None:
    facts = with_shadowing_library()
    loader = value_of(facts.loader)
    assert loader is not None
    (without_folder,) = loader.without
    resolutions = tuple(
        replace(resolution, path=None, error="not found")
        if resolution.soname == "libcuda.so.1"
        else resolution
        for resolution in without_folder.resolutions
    )
    changed = replace(loader, without=(replace(without_folder, resolutions=resolutions),))
    _, result = diagnose_root(replace(facts, loader=Known(changed, "x")))
    assert not any(isinstance(step, RemoveEntries) for remedy in result.remedies for step in remedy.steps)
