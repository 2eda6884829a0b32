"""TFD203, libs-not-on-path."""

from __future__ import annotations

from rules.make_facts import (
    SITE,
    commands,
    finding,
    healthy,
    make_found,
    make_missing,
    with_loader,
    with_python,
)
from tfdoctor.rules import (
    libs_not_on_path,
)


def test_link_is_the_first_remedy_for_2_21():
    path = f"{SITE}/nvidia/cusolver/lib/libcusolver.so.11"
    facts = with_loader(healthy("2.21.0"), make_missing("libcusolver.so.11"), also_found=(make_found(path),))
    result = finding(libs_not_on_path.RULE, facts)
    assert "fault of TensorFlow 2.21.0 itself" in result.explanation
    assert commands(result)[0] == (
        f"ln -sf ../../cusolver/lib/libcusolver.so.11 {SITE}/nvidia/cusparse/lib/libcusolver.so.11"
    )
    assert not any(remedy.changes_system for remedy in result.remedies)


def test_fixed_patch_release_is_the_first_remedy():
    names = ("libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11", "libcudnn.so.8")
    files = tuple(make_found(f"{SITE}/nvidia/x/lib/{name}") for name in names)
    facts = with_loader(
        healthy("2.16.1"),
        *(make_missing(name) for name in names),
        also_found=files,
        runpath_folders=(f"{SITE}/nvidia/cuda_runtime/lib",),
    )
    result = finding(libs_not_on_path.RULE, facts)
    assert "tensorflow[and-cuda]==2.16.2" in commands(result)[0]
    # The parts that cuDNN loads from its own folder are linked, too.
    assert f"ln -srf {SITE}/nvidia/x/lib/libcudnn*.so.8 {SITE}/nvidia/cuda_runtime/lib/" in commands(result)


def test_folder_of_a_toolkit_is_added_to_ldconfig():
    facts = with_loader(
        healthy(),
        make_missing("libcufft.so.11"),
        also_found=(make_found("/usr/local/cuda-12.4/lib64/libcufft.so.11"),),
    )
    result = finding(libs_not_on_path.RULE, facts)
    assert (
        "printf '%s\\n' /usr/local/cuda-12.4/lib64 | sudo tee /etc/ld.so.conf.d/tensorflow-cuda.conf"
        in commands(result)
    )
    assert "sudo ldconfig" in commands(result)


def test_folder_of_conda_is_added_to_activate_d():
    facts = with_python(
        with_loader(
            healthy("2.10.1"),
            make_missing("libcufft.so.10"),
            also_found=(make_found("/opt/conda/lib/libcufft.so.10"),),
        ),
        conda_prefix="/opt/conda",
        virtual=False,
    )
    lines = commands(finding(libs_not_on_path.RULE, facts))
    assert 'export LD_LIBRARY_PATH=/opt/conda/lib"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"' in lines
    assert "mkdir -p /opt/conda/etc/conda/activate.d" in lines
    assert not any("ldconfig" in command for command in lines)


def test_spaces_in_a_path_are_quoted():
    facts = with_loader(
        healthy(), make_missing("libcufft.so.11"), also_found=(make_found("/my libs/libcufft.so.11"),)
    )
    assert any(
        "LD_LIBRARY_PATH='/my libs'\"$" in command
        for command in commands(finding(libs_not_on_path.RULE, facts))
    )
