"""TFD204, libs-transitive."""

from __future__ import annotations

from dataclasses import replace

from rules.hiding_facts import ACTIVATE, first, put_beside
from rules.make_facts import (
    NOT_FOUND,
    SITE,
    at,
    commands,
    context,
    find_matches,
    finding,
    healthy,
    with_environment,
    with_loader,
    with_python,
    with_tensorflow,
)
from tfdoctor.causes.steps import Drop, Install, MakeLink
from tfdoctor.facts import (
    FoundElsewhere,
    Known,
    Resolution,
    Tried,
    Without,
    value_of,
)
from tfdoctor.findings import Cause
from tfdoctor.rules import (
    libs_transitive,
)


def test_a_library_that_hides_a_good_one_is_named_with_its_door() -> None:
    report, one = first(put_beside())
    assert (one.code, report.verdict.cause) == ("TFD204", Cause.LIBS_TRANSITIVE)
    assert (
        one.title
        == "/old/lib64/libcusolver.so.11, which LD_LIBRARY_PATH puts first, hides a library that works"
    )
    assert f"{SITE}/nvidia/cusolver/lib/libcusolver.so.11" in one.explanation
    assert f"{ACTIVATE}, line 82" in one.explanation
    (remedy,) = one.remedies
    assert remedy.commands[0] == "export LD_LIBRARY_PATH=/mine"
    assert remedy.commands[1].startswith("sed -i '82{/LD_LIBRARY_PATH/")
    assert remedy.steps == (Drop("LD_LIBRARY_PATH", ("/old/lib64",)),)


def transitive(error, missing):
    path = f"{SITE}/nvidia/cusparse/lib/libcusparse.so.12"
    return Resolution("libcusparse.so.12", path, "RUNPATH", error, missing, needed_by=path)


def test_the_missing_need_is_named_and_brought():
    facts = with_loader(healthy(), transitive(f"libnvJitLink.so.12: {NOT_FOUND}", ("libnvJitLink.so.12",)))
    one = finding(libs_transitive.RULE, facts)
    assert "libnvJitLink.so.12" in one.title
    assert commands(one)[0] == "/env/bin/python -m pip install nvidia-nvjitlink-cu12==12.5.82"
    assert context(facts).prediction.cause is Cause.LIBS_TRANSITIVE


def test_a_need_that_is_elsewhere_is_put_on_the_path():
    facts = with_loader(
        healthy(),
        transitive(f"libnvJitLink.so.12: {NOT_FOUND}", ("libnvJitLink.so.12",)),
        also_found=(at("/usr/local/cuda/lib64/libnvJitLink.so.12"),),
    )
    assert any(
        "export LD_LIBRARY_PATH=/usr/local/cuda/lib64" in c
        for c in commands(finding(libs_transitive.RULE, facts))
    )


def test_a_library_for_a_newer_system():
    error = f"/lib/libc.so.6: version `GLIBC_2.99' not found (required by {SITE}/x)"
    one = finding(libs_transitive.RULE, with_loader(healthy(), transitive(error, ())))
    assert "newer version" in one.title


def test_an_older_library_of_the_same_soname_is_named_with_its_wheel() -> None:
    """nvjitlink of an older torch: libcusparse is there, and looks for a function in it that came later."""
    path = f"{SITE}/nvidia/nvjitlink/lib/libnvJitLink.so.12"
    error = f"{SITE}/nvidia/cusparse/lib/libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_5"
    failed = replace(
        find_matches("libcusparse.so.12", f"{SITE}/nvidia/cusparse/lib/libcusparse.so.12"),
        error=error,
        really_missing=("libcusparse.so.12",),
        tried=(Tried(path, "", "RUNPATH of libcusparse.so.12"),),
    )
    one = finding(libs_transitive.RULE, with_loader(healthy(), failed))
    assert one.title == "libcusparse.so.12 needs a different libnvJitLink.so.12 than the installed one"
    assert "nvidia-nvjitlink-cu12==" in commands(one)[0]


def test_a_range_that_allows_the_installed_version_asks_for_another_one() -> None:
    """2.20 asks for nvjitlink >=12.5.82, which pip calls satisfied by the very file that is too old."""
    site = f"{SITE}/nvidia"
    failed = replace(
        find_matches("libcusparse.so.12", f"{site}/cusparse/lib/libcusparse.so.12"),
        error=f"{site}/cusparse/lib/libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_6",
        really_missing=("libcusparse.so.12",),
        tried=(Tried(f"{site}/nvjitlink/lib/libnvJitLink.so.12", "", "RUNPATH of libcusparse.so.12"),),
    )
    facts = with_loader(with_tensorflow(healthy(), version="2.20.0"), failed)
    one = finding(libs_transitive.RULE, with_python(facts, installed={"nvidia-nvjitlink-cu12": "12.5.82"}))
    assert one.remedies[0].steps == (Install(("nvidia-nvjitlink-cu12<13.0,>=12.5.82,!=12.5.82",)),)
    assert "!=12.5.82" in commands(one)[0]
    other = finding(libs_transitive.RULE, with_python(facts, installed={"nvidia-nvjitlink-cu12": "12.4.127"}))
    assert "!=" not in commands(other)[0]


def test_a_bad_library_on_the_path_before_the_wheels_own_goes_and_the_wheels_is_linked() -> None:
    """Without the folder nothing would be found: what takes it off also connects the one in the wheels."""
    bad, good = "/conda/lib/libcufft.so.11", f"{SITE}/nvidia/cufft/lib/libcufft.so.11"
    failed = replace(
        find_matches("libcufft.so.11", bad),
        error=f"{bad}: undefined symbol: gone",
        really_missing=("libcufft.so.11",),
    )
    facts = with_loader(with_environment(healthy(), LD_LIBRARY_PATH="/conda/lib"), failed)
    loader = value_of(facts.loader)
    assert loader is not None
    hidden = Without("LD_LIBRARY_PATH", ("/conda/lib",), loader.resolutions, (), ())
    behind = FoundElsewhere("libcufft", "libcufft.so.11", good, None)
    loader = replace(loader, library_path=("/conda/lib",), found=(behind,), without=(hidden,))
    one = finding(libs_transitive.RULE, replace(facts, loader=Known(loader, "")))
    assert one.title == "libcufft.so.11 needs a function that no library here has"
    assert [type(step) for step in one.remedies[0].steps] == [Drop, MakeLink]
    assert commands(one)[0] == "unset LD_LIBRARY_PATH"


def test_where_something_else_would_be_lost_the_entry_stays() -> None:
    facts = put_beside()
    loader = value_of(facts.loader)
    assert loader is not None
    (without,) = loader.without
    lost = tuple(
        replace(r, path=None, error="not found") if r.soname == "libcuda.so.1" else r
        for r in without.resolutions
    )
    worse = replace(loader, without=(replace(without, resolutions=lost),))
    _, one = first(replace(facts, loader=Known(worse, "x")))
    assert not any(isinstance(step, Drop) for remedy in one.remedies for step in remedy.steps)
