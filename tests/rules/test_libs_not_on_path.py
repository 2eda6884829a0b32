"""TFD203, libs-not-on-path."""

from __future__ import annotations

from rules.make_facts import (
    SITE,
    at,
    commands,
    finding,
    healthy,
    make_lost,
    with_loader,
    with_python,
)
from tfdoctor.rules import (
    libs_not_on_path,
)


def test_the_fault_of_2_21_has_the_link_first():
    where = f"{SITE}/nvidia/cusolver/lib/libcusolver.so.11"
    facts = with_loader(healthy("2.21.0"), make_lost("libcusolver.so.11"), also_found=(at(where),))
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
        *(make_lost(name) for name in names),
        also_found=places,
        runpath_folders=(f"{SITE}/nvidia/cuda_runtime/lib",),
    )
    one = finding(libs_not_on_path.RULE, facts)
    assert "tensorflow[and-cuda]==2.16.2" in commands(one)[0]
    # with cuDNN go the parts that it opens beside itself
    assert f"ln -srf {SITE}/nvidia/x/lib/libcudnn*.so.8 {SITE}/nvidia/cuda_runtime/lib/" in commands(one)


def test_a_toolkit_off_the_path_can_be_told_to_ldconfig():
    facts = with_loader(
        healthy(), make_lost("libcufft.so.11"), also_found=(at("/usr/local/cuda-12.4/lib64/libcufft.so.11"),)
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
            healthy("2.10.1"), make_lost("libcufft.so.10"), also_found=(at("/opt/conda/lib/libcufft.so.10"),)
        ),
        conda_prefix="/opt/conda",
        virtual=False,
    )
    said = commands(finding(libs_not_on_path.RULE, facts))
    assert 'export LD_LIBRARY_PATH=/opt/conda/lib"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"' in said
    assert "mkdir -p /opt/conda/etc/conda/activate.d" in said
    assert not any("ldconfig" in command for command in said)


def test_blanks_in_a_path_are_quoted():
    facts = with_loader(healthy(), make_lost("libcufft.so.11"), also_found=(at("/my libs/libcufft.so.11"),))
    assert any("LD_LIBRARY_PATH='/my libs'\"$" in c for c in commands(finding(libs_not_on_path.RULE, facts)))
