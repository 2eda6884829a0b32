"""The rules about Python and TensorFlow's package (TFD301 to TFD313)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.make_facts import (
    COMPAT,
    NOT_FOUND,
    SITE,
    at,
    commands,
    context,
    finding,
    healthy,
    lost,
    run,
    with_cards,
    with_environment,
    with_loader,
    with_machine,
    with_python,
    with_tensorflow,
)
from tfdoctor.causes.steps import Drop, Install
from tfdoctor.facts import Absent, Distribution, Resolution, Unknown, value_of
from tfdoctor.findings import Cause, OutcomeKind, Severity
from tfdoctor.report.diagnose import diagnose
from tfdoctor.rules import (
    both_packages,
    cpu_only_build,
    damaged_installation,
    glibc_too_old,
    illegal_instruction_avx,
    import_fails,
    known_problem,
    libstdcxx_too_old,
    no_matching_wheel,
    numpy_abi,
    protobuf_conflict,
    tensorflow_not_installed,
    windows_native_unsupported,
)

ABOUT_PYTHON = (
    tensorflow_not_installed,
    no_matching_wheel,
    cpu_only_build,
    both_packages,
    windows_native_unsupported,
    numpy_abi,
    protobuf_conflict,
    glibc_too_old,
    libstdcxx_too_old,
    illegal_instruction_avx,
    damaged_installation,
    import_fails,
    known_problem,
)


def absent(facts):
    python = value_of(facts.python)
    assert python is not None
    facts = with_python(facts, distributions=tuple(d for d in python.distributions if d.name != "tensorflow"))
    return replace(
        facts, tensorflow=Absent("/env/bin/python", "no tensorflow package"), loader=Absent("loader")
    )


@pytest.mark.parametrize("module", ABOUT_PYTHON)
def test_healthy(module):
    assert run(module.RULE, healthy()).kind in {OutcomeKind.CLEAN, OutcomeKind.NOT_APPLICABLE}


@pytest.mark.parametrize("module", ABOUT_PYTHON)
def test_a_python_that_did_not_answer(module):
    facts = replace(
        healthy(), python=Unknown("it hung"), tensorflow=Unknown("it hung"), loader=Unknown("it hung")
    )
    outcome = run(module.RULE, facts)
    assert outcome.kind in {OutcomeKind.COULD_NOT_CHECK, OutcomeKind.NOT_APPLICABLE}


@pytest.mark.parametrize("module", ABOUT_PYTHON)
def test_partial_facts_never_crash(module):
    facts = with_tensorflow(healthy(), version=None, distribution=None, build_info={}, cuda_config={})
    for altered in (facts, replace(facts, python=Unknown("no")), with_python(facts, distributions=())):
        assert run(module.RULE, altered).kind is not OutcomeKind.CRASHED


# ---------------------------------------------------------------- TFD301, TFD302


def test_nothing_installed_names_the_best_release_and_what_it_needs_to_find_its_libraries():
    one = finding(tensorflow_not_installed.RULE, absent(healthy()))
    assert one.severity is Severity.ERROR
    said = commands(one)
    assert "/env/bin/python -m pip install 'tensorflow[and-cuda]==2.21.0'" in said
    site = "/env/lib/python3.11/site-packages/nvidia"  # 2.21.0 leaves cuSOLVER's folder out of its RUNPATH
    assert f"ln -sf ../../cusolver/lib/libcusolver.so.11 {site}/cusparse/lib/libcusolver.so.11" in said
    assert run(no_matching_wheel.RULE, absent(healthy())).kind is OutcomeKind.CLEAN


@pytest.mark.parametrize(("card", "version"), [("12.0", "2.21.0"), ("5.0", "2.16.2"), ("3.5", "2.14.1")])
def test_the_release_fits_the_card(card, version):
    assert any(
        f"=={version}" in c
        for c in commands(finding(tensorflow_not_installed.RULE, with_cards(absent(healthy()), card)))
    )


def test_a_managed_python_gets_an_environment():
    facts = with_python(absent(healthy()), virtual=False, externally_managed=True)
    said = commands(finding(tensorflow_not_installed.RULE, facts))
    assert "/env/bin/python -m venv tf-env" in said
    assert not any("--break-system-packages" in command for command in said)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": "3.14.0"}, "newer than TensorFlow's wheels"),
        ({"bits": 32}, "64-bit"),
        ({"glibc": None}, "musl"),
        ({"implementation": "PyPy"}, "CPython"),
        ({"machine": "aarch64"}, "x86-64 only"),
        ({"platform": "macosx-14-arm64"}, "macOS"),
        ({"version": "3.12.1", "glibc": "2.12"}, "glibc 2.17"),
        ({"version": "3.2.6"}, "No TensorFlow release"),
    ],
)
def test_no_wheel(changes, words):
    facts = with_python(absent(healthy()), **changes)
    one = finding(no_matching_wheel.RULE, facts)
    assert words in one.explanation
    assert one.cause is Cause.NO_MATCHING_WHEEL
    assert finding(tensorflow_not_installed.RULE, facts).severity is Severity.WARNING


def test_the_python_of_the_best_release_is_named():
    one = finding(no_matching_wheel.RULE, with_python(absent(healthy()), version="3.14.0"))
    assert commands(one)[0] == "uv venv --python 3.13 tf-env"
    assert "'tensorflow[and-cuda]==2.21.0'" in commands(one)[1]


def test_an_installed_tensorflow_has_a_wheel():
    assert run(no_matching_wheel.RULE, healthy()).kind is OutcomeKind.NOT_APPLICABLE


# ---------------------------------------------------------------- TFD303, TFD304, TFD305


def cpu(version, distribution="tensorflow", **changes):
    facts = healthy(version, distribution=distribution)
    return with_tensorflow(facts, build_info={"is_cuda_build": "False"}, cuda_config={}, **changes)


@pytest.mark.parametrize(
    ("version", "distribution", "words", "command"),
    [
        ("1.15.5", "tensorflow", "1.15.2 to 1.15.5 have none", "tensorflow-gpu==1.15.5"),
        ("2.0.4", "tensorflow", "`tensorflow-gpu`", "tensorflow-gpu==2.0.4"),
        ("1.14.0", "tensorflow", "Before 1.15", "tensorflow-gpu==1.14.0"),
        ("2.18.1", "tensorflow-cpu", "without GPU code", "'tensorflow[and-cuda]==2.18.1'"),
    ],
)
def test_cpu_builds(version, distribution, words, command):
    python = "3.7.5" if version < "2.1" else "3.11.7"
    facts = with_cards(with_python(cpu(version, distribution), version=python), "7.0")
    one = finding(cpu_only_build.RULE, facts)
    assert words in one.explanation
    assert any(command in c for c in commands(one))
    assert commands(one)[0].endswith(f"pip uninstall -y {distribution}")
    assert context(facts).prediction.cause is Cause.CPU_ONLY_BUILD


def test_a_card_that_this_version_does_not_serve_gets_another_one():
    facts = with_python(cpu("1.15.5"), version="3.7.5")  # with an H100, which no CUDA 10 knows
    said = commands(finding(cpu_only_build.RULE, facts))
    assert any("'tensorflow==2.11.0'" in line or "tensorflow==2.11.0" in line for line in said)
    assert not any("1.15" in line for line in said)
    managed = with_python(facts, virtual=False, externally_managed=True)
    assert not any("uninstall" in line for line in commands(finding(cpu_only_build.RULE, managed)))
    old = with_cards(facts, "12.0", "3.5")
    assert commands(finding(cpu_only_build.RULE, old)) == ["tfdoctor recommend"]


def test_conda_builds():
    facts = with_python(cpu("2.10.0", conda_build="eigen_py310h1"), conda_prefix="/opt/conda")
    one = finding(cpu_only_build.RULE, facts)
    assert "eigen_py310h1" in one.explanation
    assert "conda install --prefix /opt/conda -c conda-forge 'tensorflow=*=cuda*'" in commands(one)[0]


def test_arm_has_nothing_to_change_to():
    one = finding(cpu_only_build.RULE, with_machine(cpu("2.18.1"), machine="aarch64"))
    assert commands(one) == []


def test_two_packages_of_the_same_files_are_only_worth_knowing():
    facts = with_python(healthy("2.10.1"), installed={"tensorflow-gpu": "2.10.1"})
    one = finding(both_packages.RULE, facts)
    assert one.severity is Severity.INFO
    assert "pip uninstall -y tensorflow tensorflow-gpu" in commands(one)[0]


def test_two_packages_of_different_builds():
    facts = with_python(cpu("2.18.1"), installed={"tensorflow-cpu": "2.18.1"})
    one = finding(both_packages.RULE, facts)
    assert one.severity is Severity.ERROR
    assert context(facts).prediction.cause is Cause.BOTH_PACKAGES
    assert run(cpu_only_build.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE
    mixed = with_python(healthy(), installed={"tf-nightly": "2.22.0.dev20260101"})
    assert finding(both_packages.RULE, mixed).severity is Severity.WARNING


def test_a_leftover_of_pip():
    one = finding(both_packages.RULE, with_python(healthy(), installed={"~ensorflow": "2.10.1"}))
    assert one.severity is Severity.INFO
    assert commands(one) == [f"rm -rf {SITE}/~*ensorflow*"]


def test_windows():
    facts = with_machine(cpu("2.15.1"), system="Windows", machine="AMD64")
    one = finding(windows_native_unsupported.RULE, facts)
    assert context(facts).prediction.cause is Cause.WINDOWS_NATIVE_UNSUPPORTED
    assert any("tensorflow==2.10.1" in c for c in commands(one))
    assert run(cpu_only_build.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE
    assert run(windows_native_unsupported.RULE, healthy()).kind is OutcomeKind.NOT_APPLICABLE


# ---------------------------------------------------------------- TFD306, TFD307 and the import gate


@pytest.mark.parametrize(
    ("version", "installed", "requirement", "cause"),
    [
        ("2.15.1", {"numpy": "2.0.2"}, "'numpy<2'", Cause.NUMPY_ABI),
        ("2.10.1", {"numpy": "2.0.2"}, "'numpy<2'", Cause.NUMPY_ABI),
        ("2.4.4", {"numpy": "1.24.4"}, "'numpy<1.24'", Cause.NUMPY_ABI),
        ("2.10.1", {"protobuf": "4.25.3"}, "'protobuf<3.21'", Cause.PROTOBUF_CONFLICT),
        ("2.15.1", {"protobuf": "3.19.6"}, "'protobuf>=3.20.3,<5'", Cause.PROTOBUF_CONFLICT),
        ("2.20.0", {"protobuf": "5.28.0"}, "'protobuf>=5.28.3'", Cause.PROTOBUF_CONFLICT),
        ("2.21.0", {"protobuf": "6.31.0"}, "'protobuf>=6.31.1,<8'", Cause.PROTOBUF_CONFLICT),
    ],
)
def test_companions_that_break_the_import(version, installed, requirement, cause):
    facts = with_python(healthy(version), installed=installed)
    rule = numpy_abi.RULE if cause is Cause.NUMPY_ABI else protobuf_conflict.RULE
    one = finding(rule, facts)
    assert one.severity is Severity.ERROR
    assert commands(one)[0].endswith(requirement)
    said = context(facts).prediction
    assert (said.import_ok, said.gpu_registered, said.cause) == (False, False, cause)


@pytest.mark.parametrize(
    ("version", "installed"),
    [
        ("2.10.1", {"numpy": "1.26.4"}),  # 1.24 breaks only what is older than 2.7
        ("2.7.4", {"numpy": "1.24.4"}),
        ("2.18.1", {"numpy": "2.3.2"}),
        ("2.18.1", {"numpy": "1.26.4"}),
        ("2.15.1", {"protobuf": "6.33.0"}),
        ("2.12.1", {"protobuf": "3.20.3"}),
        ("2.21.0", {"protobuf": "7.36.2"}),
    ],
)
def test_companions_that_work(version, installed):
    facts = with_python(healthy(version), installed=installed)
    assert run(numpy_abi.RULE, facts).kind is OutcomeKind.CLEAN
    assert run(protobuf_conflict.RULE, facts).kind is OutcomeKind.CLEAN
    assert context(facts).prediction.import_ok


def test_the_well_known_variable_only_moves_the_failure():
    facts = with_python(healthy("2.10.1"), installed={"protobuf": "4.25.3"})
    facts = with_environment(facts, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python")
    assert context(facts).prediction.import_ok
    assert finding(protobuf_conflict.RULE, facts).severity is Severity.WARNING


def test_numpy_1_20_breaks_recurrent_layers_only():
    facts = with_python(healthy("2.4.4"), installed={"numpy": "1.20.3"})
    assert context(facts).prediction.import_ok
    assert finding(numpy_abi.RULE, facts).severity is Severity.WARNING


def test_a_companion_that_is_missing():
    facts = with_python(healthy("2.15.1"), installed={"numpy": None})
    one = finding(import_fails.RULE, facts)
    assert one.title == "TensorFlow 2.15.1 cannot be imported without numpy"
    assert commands(one)[0].endswith("pip install 'numpy<2'")
    assert run(numpy_abi.RULE, facts).kind is OutcomeKind.CLEAN


# ---------------------------------------------------------------- TFD308 to TFD312


def failed_import(error, missing=("libc.so.6",)):
    return Resolution("x", f"{SITE}/x", "", error, missing, needed_by=f"{SITE}/x")


def test_glibc():
    error = f"/lib/libc.so.6: version `GLIBC_2.27' not found (required by {SITE}/x)"
    facts = with_python(with_loader(healthy("2.21.0"), import_needs=(failed_import(error),)), glibc="2.24")
    one = finding(glibc_too_old.RULE, facts)
    assert one.title == "TensorFlow needs glibc 2.27, and this system has 2.24"
    # cuDNN's wheels for 2.20 need glibc 2.27.
    assert any("tensorflow[and-cuda]==2.19.1" in command for command in commands(one))
    assert context(facts).prediction.cause is Cause.GLIBC_TOO_OLD
    assert run(import_fails.RULE, facts).kind is OutcomeKind.CLEAN


def test_libstdcxx_from_the_library_path():
    error = f"/old/lib/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by {SITE}/x)"
    facts = with_loader(healthy(), import_needs=(failed_import(error),), library_path=("/old/lib", "/b"))
    one = finding(libstdcxx_too_old.RULE, facts)
    assert commands(one)[0] == "export LD_LIBRARY_PATH=/b"
    assert one.remedies[0].steps == (Drop("LD_LIBRARY_PATH", ("/old/lib",)),)  # what `fix` does
    assert context(facts).prediction.cause is Cause.LIBSTDCXX_TOO_OLD


def test_libstdcxx_of_conda():
    error = f"/opt/conda/lib/libstdc++.so.6: version `CXXABI_1.3.13' not found (required by {SITE}/x)"
    facts = with_loader(healthy(), import_needs=(failed_import(error),))
    facts = with_python(facts, conda_prefix="/opt/conda")
    assert "-c conda-forge libstdcxx-ng" in commands(finding(libstdcxx_too_old.RULE, facts))[0]


def test_avx():
    without = with_machine(healthy(), cpu_flags=frozenset({"sse4_2", "hypervisor"}))
    one = finding(illegal_instruction_avx.RULE, without)
    assert "virtual machine" in one.remedies[0].text
    assert context(without).prediction.cause is Cause.ILLEGAL_INSTRUCTION_AVX
    unknown = with_machine(healthy(), cpu_flags=frozenset())
    assert run(illegal_instruction_avx.RULE, unknown).kind is OutcomeKind.COULD_NOT_CHECK
    assert context(unknown).prediction.import_ok
    old = with_cards(with_python(without, version="3.6.9"), "6.1")
    said = [
        line for remedy in finding(illegal_instruction_avx.RULE, old).remedies for line in remedy.commands
    ]
    assert any("tensorflow-gpu==1.5." in line for line in said), said
    conda = with_tensorflow(without, conda_build="cuda112py39")
    assert run(illegal_instruction_avx.RULE, conda).kind is OutcomeKind.NOT_APPLICABLE


def test_files_missing():
    facts = with_tensorflow(healthy(), missing_files=("python/_pywrap_tensorflow_internal.so",))
    one = finding(damaged_installation.RULE, facts)
    assert "--force-reinstall --no-deps tensorflow==2.18.1" in commands(one)[0]
    assert context(facts).prediction.import_ok is False


def test_registered_and_gone():
    facts = replace(healthy(), tensorflow=Absent("python", "no tensorflow package"))
    assert "its files are gone" in finding(damaged_installation.RULE, facts).title
    assert run(tensorflow_not_installed.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE
    said = context(facts).prediction
    assert (said.import_ok, said.gpu_registered, said.gpu_count) == (False, False, 0)
    report = diagnose(facts, COMPAT)
    assert report.verdict.gpu_usable is False
    assert "its files are gone" in report.verdict.summary


@pytest.mark.parametrize("name", ["termcolor", "packaging"])
def test_what_tensorflow_asks_for_and_is_not_there(name):
    facts = healthy("2.20.0")
    assert context(facts).prediction.import_ok is True
    python = facts.python.value
    own = replace(python.distributions[0], requires=(f"{name} (>=3.10)", "numpy>=1.26"))
    facts = with_python(facts, absent=(name,), distributions=(own, *python.distributions[1:]))
    assert context(facts).prediction.import_ok is False
    one = finding(import_fails.RULE, facts)
    assert one.title == f"TensorFlow 2.20.0 cannot be imported without {name}"
    assert one.remedies[0].steps == (Install((f"{name}>=3.10",)),)
    assert f"'{name}>=3.10'" in commands(one)[0]
    # another release was not tried without it
    older = with_python(healthy("2.3.4", python="3.8.10"), absent=(name,))
    assert context(older).prediction.import_ok is True


def test_what_tensorflow_itself_requires_is_no_second_tensorflow():
    facts = healthy("2.10.1", python="3.10.2")
    python = facts.python.value
    brought = Distribution("tensorflow-intel", "2.10.1", python.distributions[0].location, "pip")
    facts = with_python(facts, distributions=(*python.distributions, brought))
    assert run(both_packages.RULE, facts).kind is OutcomeKind.CLEAN
    other = replace(brought, name="tensorflow-cpu")
    facts = with_python(facts, distributions=(*python.distributions, other))
    assert run(both_packages.RULE, facts).kind is OutcomeKind.FOUND


def test_h5py_3_is_told_for_what_cannot_load_with_it():
    facts = healthy("2.4.4", python="3.8.10")
    python = facts.python.value
    h5py = Distribution("h5py", "3.1.0", python.site_packages[0], "pip")
    facts = with_python(facts, distributions=(*python.distributions, h5py))
    one = finding(import_fails.RULE, facts)
    assert one.severity is Severity.WARNING
    assert one.title == "TensorFlow 2.4.4 does not work with h5py 3.1.0"
    assert one.remedies[0].steps == (Install(("h5py<3",)),)
    assert context(facts).prediction.import_ok is True
    newer = with_python(healthy("2.5.3", python="3.8.10"), distributions=(*python.distributions, h5py))
    assert not [f for f in run(import_fails.RULE, newer).findings if "h5py" in f.title]


def test_there_and_not_registered():
    assert (
        finding(damaged_installation.RULE, with_tensorflow(healthy(), distribution=None)).severity
        is Severity.INFO
    )


def test_a_need_of_tensorflow_itself():
    failed = failed_import(f"libgomp.so.1: {NOT_FOUND}", ("libgomp.so.1",))
    facts = with_loader(healthy("1.13.1", distribution="tensorflow-gpu"), import_needs=(failed,))
    one = finding(import_fails.RULE, facts)
    assert commands(one)[0] == "sudo apt-get install libgomp1"
    cuda = with_loader(
        healthy("1.13.1", distribution="tensorflow-gpu"), import_needs=(lost("libcublas.so.10.0"),)
    )
    assert run(import_fails.RULE, cuda).kind is OutcomeKind.CLEAN


# ---------------------------------------------------------------- TFD313


def test_problems_of_this_release_and_these_cards():
    assert not run(known_problem.RULE, with_cards(healthy("2.21.0"), "8.6")).findings
    outcome = run(known_problem.RULE, with_cards(healthy("2.21.0"), "12.0"))
    assert "xla-does-not-know-blackwell" in str(outcome.findings)
    # told by TFD111 in more detail, from the machine itself
    assert not run(known_problem.RULE, with_cards(healthy("2.18.1"), "12.0")).findings


def test_problems_need_a_known_release():
    facts = with_tensorflow(healthy(), version="2.30.0")
    assert run(known_problem.RULE, facts).kind is OutcomeKind.COULD_NOT_CHECK


def test_a_distribution_is_a_distribution():
    assert Distribution("a", "1", "/x").requires == ()
    assert at("/x/liba.so.1").stem == "liba"
