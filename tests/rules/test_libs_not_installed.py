"""TFD201, libs-not-installed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.libraries_facts import ABOUT_LIBRARIES
from rules.make_facts import (
    NOT_FOUND,
    SITE,
    at,
    commands,
    context,
    finding,
    healthy,
    make_lost,
    remove_libraries,
    run,
    stop_process,
    with_cards,
    with_loader,
    with_python,
    with_tensorflow,
)
from tfdoctor.causes.steps import Install, LinkParts
from tfdoctor.facts import (
    Distribution,
    Resolution,
    Unknown,
    value_of,
)
from tfdoctor.findings import OutcomeKind, Severity
from tfdoctor.predict import libraries_cause
from tfdoctor.rules import (
    import_missing_cuda_lib,
    libdevice_or_ptxas_missing,
    libs_not_installed,
    shadowing_path,
)


@pytest.mark.parametrize(
    ("version", "python", "expected"),
    [
        ("2.18.1", "3.11.7", "'tensorflow[and-cuda]==2.18.1'"),
        ("2.15.1", "3.11.7", "'tensorflow[and-cuda]==2.15.1'"),
        ("2.15.0", "3.11.7", "nvidia-cudnn-cu12==8.9.4.25"),  # its extra cannot be installed
        ("2.14.1", "3.11.7", "nvidia-cudnn-cu11==8.7.0.84"),  # nor this one on 3.11
        ("2.14.1", "3.10.2", "'tensorflow[and-cuda]==2.14.1'"),
    ],
)
def test_everything_missing_is_installed_as_the_extra_pins_it(version, python, expected):
    one = finding(libs_not_installed.RULE, remove_libraries(healthy(version, python=python)))
    assert one.severity is Severity.ERROR
    install = commands(one)[0]
    assert install.startswith("/env/bin/python -m pip install ")
    assert expected in install
    assert "tensorrt" not in install
    assert not any("LD_LIBRARY_PATH" in command for command in commands(one))


def test_the_release_that_does_not_find_its_own_wheels_gets_the_link():
    one = finding(libs_not_installed.RULE, remove_libraries(healthy("2.21.0")))
    assert commands(one)[:2] == [
        "/env/bin/python -m pip install 'tensorflow[and-cuda]==2.21.0'",
        f"ln -sf ../../cusolver/lib/libcusolver.so.11 {SITE}/nvidia/cusparse/lib/libcusolver.so.11",
    ]


def test_old_cards_keep_a_cudnn_that_has_code_for_them():
    one = finding(libs_not_installed.RULE, with_cards(remove_libraries(healthy("2.20.0")), "6.1"))
    assert "'nvidia-cudnn-cu12>=9.3,<9.11'" in commands(one)[0]


def test_from_2_5_to_2_13_the_libraries_are_linked_into_its_own_folder():
    one = finding(libs_not_installed.RULE, remove_libraries(healthy("2.12.1")))
    linked, named = one.remedies
    install, *links, again = linked.commands
    assert "nvidia-cublas-cu11" in install
    assert "'nvidia-cudnn-cu11>=8.6,<9'" in install
    assert f"ln -srf {SITE}/nvidia/cudnn/lib/*.so* {SITE}/tensorflow/" in links
    assert len(links) == len([step for step in linked.steps if isinstance(step, LinkParts)]) == 7
    assert again == "tfdoctor check --python /env/bin/python"
    # the other way
    assert named.commands[0] == install
    assert named.commands[1].startswith(f"export LD_LIBRARY_PATH={SITE}/nvidia/")
    assert named.commands[1].endswith('"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"')
    assert named.commands[-1].endswith(">> /env/bin/activate")


def test_all_of_them_are_brought_from_the_hashed_set():
    (step,) = finding(libs_not_installed.RULE, remove_libraries(healthy("2.20.0"))).remedies[0].steps
    assert isinstance(step, Install)
    assert step.lock == "cu12.9-cudnn9.10"
    assert "nvidia-cudnn-cu12==9.10.2.21" in step.requirements


def test_a_wheel_that_is_registered_and_lacks_its_library_is_installed_again():
    facts = with_loader(healthy(), make_lost("libcufft.so.11"))
    wheel = Distribution("nvidia-cufft-cu12", "11.2.3.61", SITE, "pip")
    python = facts.python.value
    facts = with_python(facts, distributions=(*python.distributions, wheel))
    one = finding(libs_not_installed.RULE, facts)
    assert commands(one)[0].endswith("install --force-reinstall --no-deps nvidia-cufft-cu12==11.2.3.61")
    assert one.remedies[0].steps == (
        Install(("nvidia-cufft-cu12==11.2.3.61",), again=True, dependencies=False),
    )


def test_what_has_no_wheels_comes_from_conda():
    one = finding(libs_not_installed.RULE, remove_libraries(healthy("2.3.4", python="3.8.10")))
    assert 'conda create --prefix "$HOME/cuda-10.1" -c conda-forge cudatoolkit=10.1 cudnn=7.6' in commands(
        one
    )
    assert any("tensorflow==2.13.1" in command for command in commands(one))


def test_2_4_gets_no_wheels_because_cusolver_10_is_in_none():
    one = finding(libs_not_installed.RULE, remove_libraries(healthy("2.4.4", python="3.8.10")))
    assert not any("nvidia-cusolver-cu11" in c and "tensorflow==" not in c for c in commands(one))
    assert any("cudatoolkit=11.0 cudnn=8.0" in command for command in commands(one))


def test_one_library_missing_brings_its_wheel_alone():
    one = finding(libs_not_installed.RULE, with_loader(healthy(), make_lost("libcufft.so.11")))
    assert one.title == "libcufft.so.11 is not installed"
    assert commands(one)[0] == "/env/bin/python -m pip install nvidia-cufft-cu12==11.2.3.61"


def test_a_system_python_is_not_broken_silently():
    facts = with_python(remove_libraries(healthy()), virtual=False, externally_managed=True)
    assert "--break-system-packages" in commands(finding(libs_not_installed.RULE, facts))[0]


@pytest.mark.parametrize(
    "version", ["1.15.5", "2.1.4", "2.4.4", "2.5.3", "2.10.1", "2.13.1", "2.16.1", "2.21.0"]
)
@pytest.mark.parametrize("kind", ["lost", "short", "transitive", "elsewhere"])
def test_each_library_alone_has_exactly_the_finding_that_the_prediction_names(version, kind):
    facts = healthy(version, distribution="tensorflow-gpu" if version.startswith("1.") else "tensorflow")
    loader = value_of(facts.loader)
    assert loader is not None
    for resolution in loader.resolutions:
        name = resolution.soname
        if name.startswith(("libcuda.", "libnvidia-ml")):
            continue
        change = {
            "lost": make_lost(name),
            "short": stop_process(name, f"/bad/{name}", "file too short"),
            "transitive": Resolution(name, f"/x/{name}", "cache", f"liby.so: {NOT_FOUND}", ("liby.so",)),
            "elsewhere": make_lost(name),
        }[kind]
        also = (at(f"/somewhere/{name}"),) if kind == "elsewhere" else ()
        broken = with_loader(facts, change, also_found=also)
        ctx = context(broken)
        outcomes = [module.RULE.run(ctx) for module in ABOUT_LIBRARIES]
        assert not [o for o in outcomes if o.kind is OutcomeKind.CRASHED]
        told = [f for o in outcomes for f in o.findings]
        assert len(told) == 1, (name, told)
        assert told[0].cause is ctx.prediction.cause
        assert told[0].remedies
        assert ctx.build is not None
        assert libraries_cause(broken, ctx.build) is told[0].cause


def test_partial_facts_never_crash_a_rule():
    facts = replace(healthy(), python=Unknown("it hung"))
    for altered in (
        facts,
        with_tensorflow(facts, version=None, distribution=None, cuda_config={}, build_info={}),
    ):
        for module in (*ABOUT_LIBRARIES, import_missing_cuda_lib, libdevice_or_ptxas_missing, shadowing_path):
            for broken in (altered, with_loader(altered, make_lost("libcublas.so.12"))):
                assert run(module.RULE, broken).kind is not OutcomeKind.CRASHED
