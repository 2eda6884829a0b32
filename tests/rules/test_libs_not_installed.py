"""TFD201, libs-not-installed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.libraries_facts import ABOUT_LIBRARIES
from rules.make_facts import (
    NOT_FOUND,
    SITE,
    commands,
    context,
    finding,
    healthy,
    make_found,
    make_missing,
    make_rejected,
    remove_libraries,
    run,
    with_cards,
    with_loader,
    with_python,
    with_tensorflow,
)
from tfdoctor.core.causes.steps import Install, LinkMatchingFiles
from tfdoctor.core.facts import (
    Distribution,
    Resolution,
    Unknown,
    value_of,
)
from tfdoctor.core.findings import OutcomeKind, Severity
from tfdoctor.prediction import choose_libraries_cause
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
        ("2.15.0", "3.11.7", "nvidia-cudnn-cu12==8.9.4.25"),  # the extra of this release cannot be installed
        ("2.14.1", "3.11.7", "nvidia-cudnn-cu11==8.7.0.84"),  # neither can this one on Python 3.11
        ("2.14.1", "3.10.2", "'tensorflow[and-cuda]==2.14.1'"),
    ],
)
def test_all_libraries_are_installed_in_the_pinned_versions(version, python, expected):
    result = finding(libs_not_installed.RULE, remove_libraries(healthy(version, python=python)))
    assert result.severity is Severity.ERROR
    install = commands(result)[0]
    assert install.startswith("/env/bin/python -m pip install ")
    assert expected in install
    assert "tensorrt" not in install
    assert not any("LD_LIBRARY_PATH" in command for command in commands(result))


def test_link_for_the_release_with_a_wrong_runpath():
    result = finding(libs_not_installed.RULE, remove_libraries(healthy("2.21.0")))
    assert commands(result)[:2] == [
        "/env/bin/python -m pip install 'tensorflow[and-cuda]==2.21.0'",
        f"ln -sf ../../cusolver/lib/libcusolver.so.11 {SITE}/nvidia/cusparse/lib/libcusolver.so.11",
    ]


def test_old_gpu_keeps_a_cudnn_that_supports_it():
    result = finding(libs_not_installed.RULE, with_cards(remove_libraries(healthy("2.20.0")), "6.1"))
    assert "'nvidia-cudnn-cu12>=9.3,<9.11'" in commands(result)[0]


def test_libraries_of_2_5_to_2_13_are_linked():
    result = finding(libs_not_installed.RULE, remove_libraries(healthy("2.12.1")))
    by_links, by_variable = result.remedies
    install, *links, check = by_links.commands
    assert "nvidia-cublas-cu11" in install
    assert "'nvidia-cudnn-cu11>=8.6,<9'" in install
    assert f"ln -srf {SITE}/nvidia/cudnn/lib/*.so* {SITE}/tensorflow/" in links
    assert len(links) == len([step for step in by_links.steps if isinstance(step, LinkMatchingFiles)]) == 7
    assert check == "tfdoctor check --python /env/bin/python"
    # The second remedy sets LD_LIBRARY_PATH instead.
    assert by_variable.commands[0] == install
    assert by_variable.commands[1].startswith(f"export LD_LIBRARY_PATH={SITE}/nvidia/")
    assert by_variable.commands[1].endswith('"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"')
    assert by_variable.commands[-1].endswith(">> /env/bin/activate")


def test_all_libraries_come_from_the_locked_set():
    (step,) = finding(libs_not_installed.RULE, remove_libraries(healthy("2.20.0"))).remedies[0].steps
    assert isinstance(step, Install)
    assert step.lock_id == "cu12.9-cudnn9.10"
    assert "nvidia-cudnn-cu12==9.10.2.21" in step.requirements


def test_wheel_without_its_library_is_reinstalled():
    facts = with_loader(healthy(), make_missing("libcufft.so.11"))
    wheel = Distribution("nvidia-cufft-cu12", "11.2.3.61", SITE, "pip")
    python = facts.python.value
    facts = with_python(facts, distributions=(*python.distributions, wheel))
    result = finding(libs_not_installed.RULE, facts)
    assert commands(result)[0].endswith("install --force-reinstall --no-deps nvidia-cufft-cu12==11.2.3.61")
    assert result.remedies[0].steps == (
        Install(("nvidia-cufft-cu12==11.2.3.61",), force_reinstall=True, install_dependencies=False),
    )


def test_libraries_without_wheels_come_from_conda():
    result = finding(libs_not_installed.RULE, remove_libraries(healthy("2.3.4", python="3.8.10")))
    assert 'conda create --prefix "$HOME/cuda-10.1" -c conda-forge cudatoolkit=10.1 cudnn=7.6' in commands(
        result
    )
    assert any("tensorflow==2.13.1" in command for command in commands(result))


def test_2_4_gets_no_wheels_because_none_has_cusolver_10():
    result = finding(libs_not_installed.RULE, remove_libraries(healthy("2.4.4", python="3.8.10")))
    assert not any("nvidia-cusolver-cu11" in line and "tensorflow==" not in line for line in commands(result))
    assert any("cudatoolkit=11.0 cudnn=8.0" in command for command in commands(result))


def test_single_missing_library_installs_only_its_wheel():
    result = finding(libs_not_installed.RULE, with_loader(healthy(), make_missing("libcufft.so.11")))
    assert result.title == "libcufft.so.11 is not installed"
    assert commands(result)[0] == "/env/bin/python -m pip install nvidia-cufft-cu12==11.2.3.61"


def test_system_python_needs_break_system_packages():
    facts = with_python(remove_libraries(healthy()), virtual=False, externally_managed=True)
    assert "--break-system-packages" in commands(finding(libs_not_installed.RULE, facts))[0]


@pytest.mark.parametrize(
    "version", ["1.15.5", "2.1.4", "2.4.4", "2.5.3", "2.10.1", "2.13.1", "2.16.1", "2.21.0"]
)
@pytest.mark.parametrize("kind", ["lost", "short", "transitive", "elsewhere"])
def test_each_library_has_one_finding_with_the_predicted_cause(version, kind):
    facts = healthy(version, distribution="tensorflow-gpu" if version.startswith("1.") else "tensorflow")
    loader = value_of(facts.loader)
    assert loader is not None
    for resolution in loader.resolutions:
        name = resolution.soname
        if name.startswith(("libcuda.", "libnvidia-ml")):
            continue
        change = {
            "lost": make_missing(name),
            "short": make_rejected(name, f"/bad/{name}", "file too short"),
            "transitive": Resolution(name, f"/x/{name}", "cache", f"liby.so: {NOT_FOUND}", ("liby.so",)),
            "elsewhere": make_missing(name),
        }[kind]
        also = (make_found(f"/somewhere/{name}"),) if kind == "elsewhere" else ()
        changed = with_loader(facts, change, also_found=also)
        ctx = context(changed)
        outcomes = [module.RULE.run(ctx) for module in ABOUT_LIBRARIES]
        assert not [outcome for outcome in outcomes if outcome.kind is OutcomeKind.CRASHED]
        findings = [result for outcome in outcomes for result in outcome.findings]
        assert len(findings) == 1, (name, findings)
        assert findings[0].cause is ctx.prediction.cause
        assert findings[0].remedies
        assert ctx.build is not None
        assert choose_libraries_cause(changed, ctx.build) is findings[0].cause


def test_partial_facts_never_crash_a_rule():
    facts = replace(healthy(), python=Unknown("it hung"))
    for altered in (
        facts,
        with_tensorflow(facts, version=None, distribution=None, cuda_config={}, build_info={}),
    ):
        for module in (*ABOUT_LIBRARIES, import_missing_cuda_lib, libdevice_or_ptxas_missing, shadowing_path):
            for variant in (altered, with_loader(altered, make_missing("libcublas.so.12"))):
                assert run(module.RULE, variant).kind is not OutcomeKind.CRASHED
