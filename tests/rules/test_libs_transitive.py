"""TFD204, libs-transitive."""

from __future__ import annotations

from dataclasses import replace

from rules.hiding_facts import diagnose_root, with_shadowing_library
from rules.make_facts import (
    SITE,
    commands,
    finding,
    healthy,
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
from tfdoctor.rules import (
    libs_transitive,
)


def transitive(error, missing):
    path = f"{SITE}/nvidia/cusparse/lib/libcusparse.so.12"
    return Resolution("libcusparse.so.12", path, "RUNPATH", error, missing, needed_by=path)


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
