"""TFD209: the loader stops at a damaged library."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.make_facts import (
    SITE,
    at,
    commands,
    context,
    finding,
    healthy,
    run,
    stop_process,
    with_environment,
    with_loader,
    with_python,
)
from tfdoctor.causes.steps import Drop, MakeLink
from tfdoctor.facts import (
    Distribution,
    FoundElsewhere,
    Known,
    Resolution,
    Tried,
    Without,
    value_of,
)
from tfdoctor.facts.files import ChangedFile
from tfdoctor.findings import Cause, OutcomeKind
from tfdoctor.rules import (
    damaged_library,
    libs_not_installed,
    libs_transitive,
    not_permitted,
)


def test_a_damaged_library_that_another_one_needs() -> None:
    """libcusolver is there, and the loader stops at the libnvJitLink of its wheel, which is empty."""
    path = f"{SITE}/nvidia/nvjitlink/lib/libnvJitLink.so.12"
    needs = Resolution(
        "libcusolver.so.11",
        f"{SITE}/nvidia/cusolver/lib/libcusolver.so.11",
        "RUNPATH",
        f"{path}: file too short",
        ("libnvJitLink.so.12",),
        tried=(Tried(path, "file too short", "RUNPATH"),),
    )
    facts = with_loader(healthy(), needs)
    one = finding(damaged_library.RULE, facts)
    assert context(facts).prediction.cause is one.cause is Cause.DAMAGED_FILE
    assert path in one.title
    assert "nvidia-nvjitlink-cu12" in one.remedies[0].commands[0]
    assert "cusolver" not in one.remedies[0].commands[0]
    assert run(libs_transitive.RULE, facts).kind is OutcomeKind.CLEAN


def test_one_library_for_another_machine_among_others_that_are_right_is_damaged() -> None:
    names = ("libcublas.so.12", "libcufft.so.11")
    here = [Resolution(name, f"/opt/cuda/lib64/{name}", "LD_LIBRARY_PATH", "") for name in names]
    wrong = stop_process("libcublas.so.12", "/opt/cuda/lib64/libcublas.so.12", "wrong machine (183)")
    alone = with_loader(healthy(), wrong)
    assert context(alone).prediction.cause is Cause.LIBS_WRONG_VERSION
    beside = with_loader(healthy(), wrong, here[1])
    assert context(beside).prediction.cause is Cause.DAMAGED_FILE


def test_a_damaged_file_that_shadows_a_good_one():
    facts = with_loader(
        healthy(),
        stop_process("libcufft.so.11", "/old/libcufft.so.11", "file too short", crash=True),
        also_found=(at(f"{SITE}/nvidia/cufft/lib/libcufft.so.11"),),
    )
    one = finding(damaged_library.RULE, facts)
    assert one.title == "/old/libcufft.so.11 is damaged: file too short"
    assert "SIGBUS" in one.explanation
    assert commands(one)[0] == "mv /old/libcufft.so.11 /old/libcufft.so.11.damaged"
    assert any("never reached" in line.text for line in one.evidence)
    assert run(libs_not_installed.RULE, facts).kind is OutcomeKind.CLEAN
    assert context(facts).prediction.cause is one.cause


def test_a_damaged_wheel_is_installed_again():
    path = f"{SITE}/nvidia/cufft/lib/libcufft.so.11"
    one = finding(
        damaged_library.RULE,
        with_loader(healthy(), stop_process("libcufft.so.11", path, "invalid ELF header")),
    )
    assert "--force-reinstall --no-deps nvidia-cufft-cu12==11.2.3.61" in commands(one)[0]


@pytest.mark.parametrize(
    ("version", "soname", "imported"),
    [
        ("2.20.0", "libcudart.so.12", False),
        ("2.20.0", "libcufft.so.11", True),
        ("2.4.4", "libcudart.so.11.0", False),
    ],
)
def test_the_cuda_runtime_is_opened_as_tensorflow_is_imported(version, soname, imported):
    """One that is cut short in its segments kills Python there; others do when devices are listed."""
    facts = with_loader(
        healthy(version), stop_process(soname, f"/old/{soname}", "file too short", crash=True)
    )
    prediction = context(facts).prediction
    assert (prediction.import_ok, prediction.gpu_registered) == (imported, False)
    assert prediction.cause is finding(damaged_library.RULE, facts).cause


def test_a_link_to_a_damaged_wheel_is_not_put_aside():
    """Its link would be made again, for the library is installed: the wheel is what has to be fixed."""
    name = "nvidia/cufft/lib/libcufft.so.11"
    wheel = Distribution(
        "nvidia-cufft-cu12", "11.2.3.61", SITE, "pip", changed=(ChangedFile(name, 9, 5, cut=True),)
    )
    facts = with_python(healthy(), distributions=(wheel,))
    link = f"{SITE}/tensorflow/libcufft.so.11"
    one = finding(
        damaged_library.RULE, with_loader(facts, stop_process("libcufft.so.11", link, "invalid ELF header"))
    )
    assert "--force-reinstall --no-deps nvidia-cufft-cu12==11.2.3.61" in commands(one)[0]


def test_a_file_that_may_not_be_read():
    path = "/usr/local/cuda/lib64/libcufft.so.11"
    facts = with_loader(healthy(), stop_process("libcufft.so.11", path, "Permission denied"))
    assert run(damaged_library.RULE, facts).kind is OutcomeKind.CLEAN
    assert run(libs_not_installed.RULE, facts).kind is OutcomeKind.CLEAN
    one = finding(not_permitted.RULE, facts)
    assert one.cause is Cause.NOT_PERMITTED
    assert context(facts).prediction.cause is Cause.NOT_PERMITTED
    assert commands(one)[0] == f"chmod -R u+rX {path}"


def test_what_is_no_library_on_the_path_before_the_wheels_own_goes_and_the_wheels_is_linked() -> None:
    bad, good = "/conda/lib/libcufft.so.11", f"{SITE}/nvidia/cufft/lib/libcufft.so.11"
    via = "LD_LIBRARY_PATH"
    failed = replace(
        stop_process("libcufft.so.11", bad, "is no ELF object"), tried=(Tried(bad, "is no ELF object", via),)
    )
    facts = with_loader(with_environment(healthy(), LD_LIBRARY_PATH="/conda/lib"), failed)
    loader = value_of(facts.loader)
    assert loader is not None
    behind = FoundElsewhere("libcufft", "libcufft.so.11", good, None)
    hidden = Without(via, ("/conda/lib",), loader.resolutions, (), ())
    for without, kinds in (((), [Drop]), ((hidden,), [Drop, MakeLink])):
        seen = replace(loader, library_path=("/conda/lib",), found=(behind,), without=without)
        one = finding(damaged_library.RULE, replace(facts, loader=Known(seen, "")))
        assert [type(step) for step in one.remedies[0].steps] == kinds
