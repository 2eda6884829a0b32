"""The rules about CUDA libraries and the loader (TFD201 to TFD210)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.make_facts import (
    NOT_FOUND,
    SITE,
    at,
    commands,
    context,
    finding,
    found,
    healthy,
    lost,
    run,
    stopped,
    with_cards,
    with_environment,
    with_loader,
    with_python,
    with_tensorflow,
    without_libraries,
)
from tfdoctor.causes.steps import Drop, Install, Link, LinkParts
from tfdoctor.facts import (
    Absent,
    CudaToolkit,
    Distribution,
    FoundElsewhere,
    Known,
    Resolution,
    Tried,
    Unknown,
    Without,
    value_of,
)
from tfdoctor.findings import Cause, OutcomeKind, Severity
from tfdoctor.predict import libraries_cause
from tfdoctor.rules import (
    cudnn_missing,
    cudnn_version_mismatch,
    damaged_library,
    import_missing_cuda_lib,
    libdevice_or_ptxas_missing,
    libs_not_installed,
    libs_not_on_path,
    libs_transitive,
    libs_wrong_version,
    shadowing_path,
)

ABOUT_LIBRARIES = (
    libs_not_installed,
    libs_wrong_version,
    libs_not_on_path,
    libs_transitive,
    cudnn_missing,
    cudnn_version_mismatch,
    damaged_library,
)


@pytest.mark.parametrize("module", ABOUT_LIBRARIES)
def test_healthy_is_clean_or_says_why_not(module):
    outcome = run(module.RULE, healthy())
    assert outcome.kind in {OutcomeKind.CLEAN, OutcomeKind.COULD_NOT_CHECK}
    assert not outcome.findings


@pytest.mark.parametrize("module", [*ABOUT_LIBRARIES, import_missing_cuda_lib, shadowing_path])
def test_without_tensorflow_there_is_nothing_to_look_at(module):
    facts = replace(healthy(), tensorflow=Absent("python", "no tensorflow package"))
    assert run(module.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE


@pytest.mark.parametrize("module", [*ABOUT_LIBRARIES, import_missing_cuda_lib, shadowing_path])
def test_a_loader_that_could_not_be_followed_is_said(module):
    facts = replace(healthy(), loader=Unknown("only glibc's loader is modelled", "python"))
    assert run(module.RULE, facts).kind is OutcomeKind.COULD_NOT_CHECK


@pytest.mark.parametrize("module", ABOUT_LIBRARIES)
def test_a_linked_tensorflow_is_left_to_the_import_rule(module):
    assert (
        run(module.RULE, healthy("1.13.1", distribution="tensorflow-gpu")).kind is OutcomeKind.NOT_APPLICABLE
    )


# ---------------------------------------------------------------- TFD201


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
    one = finding(libs_not_installed.RULE, without_libraries(healthy(version, python=python)))
    assert one.severity is Severity.ERROR
    install = commands(one)[0]
    assert install.startswith("/env/bin/python -m pip install ")
    assert expected in install
    assert "tensorrt" not in install
    assert not any("LD_LIBRARY_PATH" in command for command in commands(one))


def test_the_release_that_does_not_find_its_own_wheels_gets_the_link():
    one = finding(libs_not_installed.RULE, without_libraries(healthy("2.21.0")))
    assert commands(one)[:2] == [
        "/env/bin/python -m pip install 'tensorflow[and-cuda]==2.21.0'",
        f"ln -sf ../../cusolver/lib/libcusolver.so.11 {SITE}/nvidia/cusparse/lib/libcusolver.so.11",
    ]


def test_old_cards_keep_a_cudnn_that_has_code_for_them():
    one = finding(libs_not_installed.RULE, with_cards(without_libraries(healthy("2.20.0")), "6.1"))
    assert "'nvidia-cudnn-cu12>=9.3,<9.11'" in commands(one)[0]


def test_from_2_5_to_2_13_the_libraries_are_linked_into_its_own_folder():
    one = finding(libs_not_installed.RULE, without_libraries(healthy("2.12.1")))
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
    (step,) = finding(libs_not_installed.RULE, without_libraries(healthy("2.20.0"))).remedies[0].steps
    assert isinstance(step, Install)
    assert step.lock == "cu12.9-cudnn9.10"
    assert "nvidia-cudnn-cu12==9.10.2.21" in step.requirements


def test_a_wheel_that_is_registered_and_lacks_its_library_is_installed_again():
    facts = with_loader(healthy(), lost("libcufft.so.11"))
    wheel = Distribution("nvidia-cufft-cu12", "11.2.3.61", SITE, "pip")
    python = facts.python.value
    facts = with_python(facts, distributions=(*python.distributions, wheel))
    one = finding(libs_not_installed.RULE, facts)
    assert commands(one)[0].endswith("install --force-reinstall --no-deps nvidia-cufft-cu12==11.2.3.61")
    assert one.remedies[0].steps == (
        Install(("nvidia-cufft-cu12==11.2.3.61",), again=True, dependencies=False),
    )


def test_what_has_no_wheels_comes_from_conda():
    one = finding(libs_not_installed.RULE, without_libraries(healthy("2.3.4", python="3.8.10")))
    assert 'conda create --prefix "$HOME/cuda-10.1" -c conda-forge cudatoolkit=10.1 cudnn=7.6' in commands(
        one
    )
    assert any("tensorflow==2.13.1" in command for command in commands(one))


def test_2_4_gets_no_wheels_because_cusolver_10_is_in_none():
    one = finding(libs_not_installed.RULE, without_libraries(healthy("2.4.4", python="3.8.10")))
    assert not any("nvidia-cusolver-cu11" in c and "tensorflow==" not in c for c in commands(one))
    assert any("cudatoolkit=11.0 cudnn=8.0" in command for command in commands(one))


def test_one_library_missing_brings_its_wheel_alone():
    one = finding(libs_not_installed.RULE, with_loader(healthy(), lost("libcufft.so.11")))
    assert one.title == "libcufft.so.11 is not installed"
    assert commands(one)[0] == "/env/bin/python -m pip install nvidia-cufft-cu12==11.2.3.61"


def test_a_system_python_is_not_broken_silently():
    facts = with_python(without_libraries(healthy()), virtual=False, externally_managed=True)
    assert "--break-system-packages" in commands(finding(libs_not_installed.RULE, facts))[0]


# ---------------------------------------------------------------- TFD202


def other_cuda(facts, *paths):
    return with_loader(
        without_libraries(facts), also_found=tuple(at(path) for path in paths), found=tuple(map(at, paths))
    )


CUDA_11 = (
    "/usr/local/cuda-11.8/lib64/libcudart.so.11.0",
    "/usr/local/cuda-11.8/lib64/libcublas.so.11",
    "/usr/local/cuda-11.8/lib64/libcublasLt.so.11",
    "/usr/local/cuda-11.8/lib64/libcufft.so.10",
    "/usr/local/cuda-11.8/lib64/libcusolver.so.11",
    "/usr/local/cuda-11.8/lib64/libcusparse.so.11",
)


def test_another_cuda_leads_and_its_equal_names_do_not_mislead():
    facts = replace(
        other_cuda(healthy(), *CUDA_11), toolkits=(CudaToolkit("/usr/local/cuda-11.8", "11.8", True, True),)
    )
    one = finding(libs_wrong_version.RULE, facts)
    assert one.title == "TensorFlow 2.18.1 needs CUDA 12, and CUDA 11.8 (/usr/local/cuda-11.8) is there"
    assert "no cure" in one.explanation
    assert "tensorflow[and-cuda]==2.18.1" in commands(one)[0]
    assert any("tensorflow==2.14.1" in command for command in commands(one))
    # libcusolver.so.11 of CUDA 11 has the name that CUDA 12's has
    assert run(libs_not_on_path.RULE, facts).kind is OutcomeKind.CLEAN
    assert run(libs_not_installed.RULE, facts).kind is OutcomeKind.CLEAN
    assert run(cudnn_missing.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE
    assert context(facts).prediction.cause is Cause.LIBS_WRONG_VERSION


def test_a_32_bit_library_is_told_as_such():
    path = "/usr/lib32/libcufft.so.11"
    facts = with_loader(healthy(), stopped("libcufft.so.11", path, "wrong ELF class: ELFCLASS32"))
    one = finding(libs_wrong_version.RULE, facts)
    assert "another kind of processor" in one.title
    assert path in one.explanation


def test_a_few_of_another_version_among_many_missing_are_told_together():
    facts = other_cuda(healthy(), "/usr/local/cuda/lib64/libcudart.so.13")
    assert run(libs_wrong_version.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE
    one = finding(libs_not_installed.RULE, facts)
    assert "tensorflow[and-cuda]" in commands(one)[0]
    assert any("libcudart.so.13" in line.source for line in one.evidence)


# ---------------------------------------------------------------- TFD203


def test_the_fault_of_2_21_has_the_link_first():
    where = f"{SITE}/nvidia/cusolver/lib/libcusolver.so.11"
    facts = with_loader(healthy("2.21.0"), lost("libcusolver.so.11"), also_found=(at(where),))
    one = finding(libs_not_on_path.RULE, facts)
    assert "fault of TensorFlow 2.21.0 itself" in one.explanation
    assert commands(one)[0] == (
        f"ln -sf ../../cusolver/lib/libcusolver.so.11 {SITE}/nvidia/cusparse/lib/libcusolver.so.11"
    )
    assert not any(remedy.changes_system for remedy in one.remedies)


def test_a_release_with_a_mended_patch_says_so_first():
    names = ("libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11", "libcudnn.so.8")
    places = tuple(at(f"{SITE}/nvidia/x/lib/{name}") for name in names)
    facts = with_loader(
        healthy("2.16.1"),
        *(lost(name) for name in names),
        also_found=places,
        runpath_folders=(f"{SITE}/nvidia/cuda_runtime/lib",),
    )
    one = finding(libs_not_on_path.RULE, facts)
    assert "tensorflow[and-cuda]==2.16.2" in commands(one)[0]
    # with cuDNN go the parts that it opens beside itself
    assert f"ln -srf {SITE}/nvidia/x/lib/libcudnn*.so.8 {SITE}/nvidia/cuda_runtime/lib/" in commands(one)


def test_a_toolkit_off_the_path_can_be_told_to_ldconfig():
    facts = with_loader(
        healthy(), lost("libcufft.so.11"), also_found=(at("/usr/local/cuda-12.4/lib64/libcufft.so.11"),)
    )
    one = finding(libs_not_on_path.RULE, facts)
    assert (
        "printf '%s\\n' /usr/local/cuda-12.4/lib64 | sudo tee /etc/ld.so.conf.d/tensorflow-cuda.conf"
        in commands(one)
    )
    assert "sudo ldconfig" in commands(one)


def test_conda_keeps_it_in_activate_d_and_never_in_ldconfig():
    facts = with_python(
        with_loader(
            healthy("2.10.1"), lost("libcufft.so.10"), also_found=(at("/opt/conda/lib/libcufft.so.10"),)
        ),
        conda_prefix="/opt/conda",
        virtual=False,
    )
    said = commands(finding(libs_not_on_path.RULE, facts))
    assert 'export LD_LIBRARY_PATH=/opt/conda/lib"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"' in said
    assert "mkdir -p /opt/conda/etc/conda/activate.d" in said
    assert not any("ldconfig" in command for command in said)


def test_blanks_in_a_path_are_quoted():
    facts = with_loader(healthy(), lost("libcufft.so.11"), also_found=(at("/my libs/libcufft.so.11"),))
    assert any("LD_LIBRARY_PATH='/my libs'\"$" in c for c in commands(finding(libs_not_on_path.RULE, facts)))


# ---------------------------------------------------------------- TFD204


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


# ---------------------------------------------------------------- TFD205, TFD206


def test_cudnn_alone_is_missing():
    facts = with_loader(healthy(), lost("libcudnn.so.9"))
    one = finding(cudnn_missing.RULE, facts)
    assert commands(one)[0] == "/env/bin/python -m pip install nvidia-cudnn-cu12==9.3.0.75"
    assert context(facts).prediction.cause is Cause.CUDNN_MISSING


def test_another_cudnn_major():
    facts = with_loader(
        healthy(), lost("libcudnn.so.9"), also_found=(at(f"{SITE}/nvidia/cudnn/lib/libcudnn.so.8"),)
    )
    one = finding(cudnn_version_mismatch.RULE, facts)
    assert "libcudnn.so.8" in one.title
    assert context(facts).prediction.cause is Cause.CUDNN_VERSION_MISMATCH
    assert run(cudnn_missing.RULE, facts).kind is OutcomeKind.CLEAN


@pytest.mark.parametrize(
    ("file", "severity"), [("libcudnn.so.8.0.5", Severity.ERROR), ("libcudnn.so.8.2.4", None)]
)
def test_a_lower_minor_fails_at_first_use(file, severity):
    folder = "/usr/local/cuda/lib64"
    facts = with_loader(
        healthy("2.10.1"),
        found("libcudnn.so.8", f"{folder}/libcudnn.so.8"),
        also_found=(at(f"{folder}/libcudnn.so.8"), at(f"{folder}/{file}")),
    )
    outcome = run(cudnn_version_mismatch.RULE, facts)
    assert context(facts).prediction.gpu_registered
    assert [f.severity for f in outcome.findings] == ([severity] if severity else [])


def test_the_wheel_tells_its_version():
    old = with_python(healthy(), installed={"nvidia-cudnn-cu12": "9.1.0.70"})
    assert "9.1.0.70" in finding(cudnn_version_mismatch.RULE, old).title
    new = with_python(healthy(), installed={"nvidia-cudnn-cu12": "9.3.0.75"})
    assert run(cudnn_version_mismatch.RULE, new).kind is OutcomeKind.CLEAN
    assert run(cudnn_version_mismatch.RULE, healthy()).kind is OutcomeKind.COULD_NOT_CHECK


def test_a_part_of_cudnn_that_is_gone():
    python = healthy().python.value
    wheel = Distribution(
        "nvidia-cudnn-cu12", "9.3.0.75", SITE, "pip", lost=("nvidia/cudnn/lib/libcudnn_ops.so.9",)
    )
    facts = with_python(healthy(), distributions=(*python.distributions, wheel))
    path = f"{SITE}/tensorflow/../nvidia/cudnn/lib/libcudnn.so.9"
    facts = with_loader(facts, replace(found("libcudnn.so.9"), path=path))
    one = finding(cudnn_missing.RULE, facts)
    assert one.title == "A part of cuDNN is missing: libcudnn_ops.so.9"
    assert one.severity is Severity.ERROR
    assert one.remedies[0].steps == (
        Install(("nvidia-cudnn-cu12==9.3.0.75",), again=True, dependencies=False),
    )
    # another cuDNN than the wheel's is used
    elsewhere = with_loader(facts, replace(found("libcudnn.so.9"), path="/usr/lib/libcudnn.so.9"))
    assert run(cudnn_missing.RULE, elsewhere).kind is OutcomeKind.CLEAN


# ---------------------------------------------------------------- TFD207


def test_an_import_that_fails_for_cuda():
    facts = healthy("1.13.1", distribution="tensorflow-gpu", python="3.7.5")
    failed = replace(lost("libcublas.so.10.0"), needed_by="x")
    facts = with_loader(facts, lost("libcublas.so.10.0"), import_needs=(failed,))
    one = finding(import_missing_cuda_lib.RULE, facts)
    assert one.title == "import tensorflow fails: libcublas.so.10.0 cannot be opened"
    assert any("cudatoolkit=10.0 cudnn=7.6" in command for command in commands(one))
    assert context(facts).prediction.cause is Cause.IMPORT_MISSING_CUDA_LIB
    assert run(import_missing_cuda_lib.RULE, healthy()).kind is OutcomeKind.NOT_APPLICABLE


def test_an_import_that_fails_for_a_folder():
    facts = healthy("1.13.1", distribution="tensorflow-gpu", python="3.7.5")
    facts = with_loader(
        facts,
        lost("libcublas.so.10.0"),
        import_needs=(lost("libcublas.so.10.0"),),
        also_found=(at("/usr/local/cuda-10.0/lib64/libcublas.so.10.0"),),
    )
    assert any(
        "/usr/local/cuda-10.0/lib64" in c for c in commands(finding(import_missing_cuda_lib.RULE, facts))
    )


# ---------------------------------------------------------------- TFD208


def test_xla_finds_its_wheel_or_a_toolkit():
    rule = libdevice_or_ptxas_missing.RULE
    assert run(rule, healthy()).kind is OutcomeKind.CLEAN
    bare = with_python(healthy(), installed={"nvidia-cuda-nvcc-cu12": None})
    one = finding(rule, bare)
    assert one.severity is Severity.WARNING
    assert commands(one)[0] == "/env/bin/python -m pip install nvidia-cuda-nvcc-cu12==12.5.82"
    usual = replace(bare, toolkits=(CudaToolkit("/usr/local/cuda", "12.5", True, True),))
    assert run(rule, usual).kind is OutcomeKind.CLEAN
    other = replace(bare, toolkits=(CudaToolkit("/opt/cuda", "12.5", True, True),))
    assert "export XLA_FLAGS=--xla_gpu_cuda_data_dir=/opt/cuda" in commands(finding(rule, other))
    named = with_environment(other, XLA_FLAGS="--xla_gpu_cuda_data_dir=/opt/cuda")
    assert run(rule, named).kind is OutcomeKind.CLEAN


def test_xla_without_a_gpu_is_no_matter():
    outcome = run(libdevice_or_ptxas_missing.RULE, without_libraries(healthy()))
    assert outcome.kind is OutcomeKind.NOT_APPLICABLE


# ---------------------------------------------------------------- TFD210


def test_an_older_cuda_before_the_wheels():
    folder = "/usr/local/cuda-12.2/lib64"
    facts = with_loader(
        with_python(healthy(), installed={"nvidia-cublas-cu12": "12.5.3.2"}),
        found("libcublas.so.12", f"{folder}/libcublas.so.12", "LD_LIBRARY_PATH"),
        also_found=(at(f"{folder}/libcublas.so.12"), at(f"{folder}/libcublas.so.12.2.5.6")),
        library_path=(folder, "/keep"),
    )
    one = finding(shadowing_path.RULE, facts)
    assert one.severity is Severity.WARNING
    assert commands(one)[0] == "export LD_LIBRARY_PATH=/keep"
    newer = with_python(facts, installed={"nvidia-cublas-cu12": "12.1.0.26"})
    assert run(shadowing_path.RULE, newer).kind is OutcomeKind.CLEAN
    assert run(shadowing_path.RULE, healthy()).kind is OutcomeKind.NOT_APPLICABLE


# ---------------------------------------------------------------- all of them


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
            "lost": lost(name),
            "short": stopped(name, f"/bad/{name}", "file too short"),
            "transitive": Resolution(name, f"/x/{name}", "cache", f"liby.so: {NOT_FOUND}", ("liby.so",)),
            "elsewhere": lost(name),
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
            for broken in (altered, with_loader(altered, lost("libcublas.so.12"))):
                assert run(module.RULE, broken).kind is not OutcomeKind.CRASHED


def test_tried_is_what_the_loader_stopped_at():
    assert Tried("/a", "x", "y").problem == "x"
    assert isinstance(healthy().python, Known)


def test_an_older_library_of_the_same_soname_is_named_with_its_wheel() -> None:
    """nvjitlink of an older torch: libcusparse is there, and looks for a function in it that came later."""
    path = f"{SITE}/nvidia/nvjitlink/lib/libnvJitLink.so.12"
    error = f"{SITE}/nvidia/cusparse/lib/libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_5"
    failed = replace(
        found("libcusparse.so.12", f"{SITE}/nvidia/cusparse/lib/libcusparse.so.12"),
        error=error,
        really_missing=("libcusparse.so.12",),
        tried=(Tried(path, "", "RUNPATH of libcusparse.so.12"),),
    )
    one = finding(libs_transitive.RULE, with_loader(healthy(), failed))
    assert one.title == "libcusparse.so.12 needs another libnvJitLink.so.12 than is there"
    assert "nvidia-nvjitlink-cu12==" in commands(one)[0]


def test_a_range_that_allows_the_installed_version_asks_for_another_one() -> None:
    """2.20 asks for nvjitlink >=12.5.82, which pip calls satisfied by the very file that is too old."""
    site = f"{SITE}/nvidia"
    failed = replace(
        found("libcusparse.so.12", f"{site}/cusparse/lib/libcusparse.so.12"),
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
        found("libcufft.so.11", bad),
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
    assert [type(step) for step in one.remedies[0].steps] == [Drop, Link]
    assert commands(one)[0] == "unset LD_LIBRARY_PATH"


def test_what_is_no_library_on_the_path_before_the_wheels_own_goes_and_the_wheels_is_linked() -> None:
    bad, good = "/conda/lib/libcufft.so.11", f"{SITE}/nvidia/cufft/lib/libcufft.so.11"
    via = "LD_LIBRARY_PATH"
    failed = replace(
        stopped("libcufft.so.11", bad, "is no ELF object"), tried=(Tried(bad, "is no ELF object", via),)
    )
    facts = with_loader(with_environment(healthy(), LD_LIBRARY_PATH="/conda/lib"), failed)
    loader = value_of(facts.loader)
    assert loader is not None
    behind = FoundElsewhere("libcufft", "libcufft.so.11", good, None)
    hidden = Without(via, ("/conda/lib",), loader.resolutions, (), ())
    for without, kinds in (((), [Drop]), ((hidden,), [Drop, Link])):
        seen = replace(loader, library_path=("/conda/lib",), found=(behind,), without=without)
        one = finding(damaged_library.RULE, replace(facts, loader=Known(seen, "")))
        assert [type(step) for step in one.remedies[0].steps] == kinds
