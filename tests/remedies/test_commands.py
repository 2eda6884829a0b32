"""Commands that suit the user: available programs, writable folders, and one remedy for all errors."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rules.make_facts import (
    COMPAT,
    SITE,
    context,
    healthy,
    locate_in_wheel,
    make_found,
    make_missing,
    remove_libraries,
    with_cards,
    with_loader,
    with_machine,
    with_python,
    with_tensorflow,
)
from tfdoctor.core import versions
from tfdoctor.core.causes.steps import PrependEntries, Remedy
from tfdoctor.core.facts import Absent, Known, Resolution, value_of
from tfdoctor.core.findings import Finding, Severity
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.environments.actions import format_steps
from tfdoctor.environments.models import Environment, FixOffer
from tfdoctor.remedies import commands, user_permissions
from tfdoctor.remedies.commands import adapt_findings
from tfdoctor.remedies.pip import format_check_command, format_pip_uninstall
from tfdoctor.remedies.search_path import format_export
from tfdoctor.remedies.user_permissions import InstallFolder
from tfdoctor.render.report import render_report

if TYPE_CHECKING:
    from tfdoctor.core.facts import Facts

USER_SITE = "/users/me/.local/lib/python3.11/site-packages"
CUFFT = "libcufft.so.11"


def with_programs(facts: Facts, *programs: str) -> Facts:
    """Return facts with only these programs (and sh) on the user's PATH."""
    return replace(facts, environment=replace(facts.environment, programs=frozenset({"sh", *programs})))


def install_with_uv(facts: Facts) -> Facts:
    python = value_of(facts.python)
    assert python is not None
    return with_python(
        facts, distributions=tuple(replace(dist, installer="uv") for dist in python.distributions)
    )


def remove_cufft(facts: Facts) -> Facts:
    """Return facts without the cuFFT wheel; the wheels that it depends on are present."""
    installed = {"nvidia-nvjitlink-cu12": "12.5.82", "nvidia-cublas-cu12": "12.5.3.2"}
    return with_loader(with_python(facts, installed=installed), make_missing(CUFFT))


def root_finding(facts: Facts) -> Finding:
    report = diagnose(facts, COMPAT)
    assert report.root_finding is not None
    assert report.root_finding is report.findings[0]
    return report.root_finding


def first_commands(facts: Facts) -> tuple[str, ...]:
    return root_finding(facts).remedies[0].commands


def join_commands(facts: Facts) -> str:
    remedies = [remedy for finding in diagnose(facts, COMPAT).findings for remedy in finding.remedies]
    return "\n".join(line for remedy in remedies for line in remedy.commands)


# -- Programs


@pytest.mark.parametrize(
    ("programs", "pip", "ensurepip", "begins"),
    [
        (None, None, None, "uv pip install --python /env/bin/python "),
        (("uv",), True, True, "uv pip install --python /env/bin/python "),
        (("uv",), False, True, "uv pip install --python /env/bin/python "),
        ((), True, True, "/env/bin/python -m pip install "),
        ((), False, True, "/env/bin/python -m ensurepip && /env/bin/python -m pip install "),
        (("pip3",), False, False, "pip3 --python /env/bin/python install "),
        (
            ("apt-get", "sudo"),
            False,
            False,
            "sudo apt-get install python3-pip && python3 -m pip --python /env/bin/python ",
        ),
    ],
)
def test_installer_is_an_available_program(
    programs: tuple[str, ...] | None, pip: bool | None, ensurepip: bool | None, begins: str
) -> None:
    facts = install_with_uv(remove_cufft(with_machine(healthy(), root=False)))
    facts = with_python(facts, pip=pip, ensurepip=ensurepip)
    if programs is not None:
        facts = with_programs(facts, *programs)
    assert first_commands(facts)[0].startswith(begins)
    if programs is not None and "uv" not in programs:
        assert "uv " not in join_commands(facts)


def test_pip_packages_are_installed_by_pip() -> None:
    facts = with_programs(with_python(remove_cufft(healthy()), pip=True), "uv")
    assert first_commands(facts)[0].startswith("/env/bin/python -m pip install ")


def test_uninstall_uses_the_same_program() -> None:
    facts = with_programs(install_with_uv(healthy()), "uv")
    assert format_pip_uninstall(context(facts).target, ["a"]) == "uv pip uninstall --python /env/bin/python a"
    facts = with_python(with_programs(install_with_uv(healthy())), pip=True)
    assert format_pip_uninstall(context(facts).target, ["a"]) == "/env/bin/python -m pip uninstall -y a"


# -- Folders


def move_to_user_site(facts: Facts, **fields: Any) -> Facts:
    """Return facts of a `pip install --user`."""
    moved = with_tensorflow(facts, package_dir=f"{USER_SITE}/tensorflow", core_dir=f"{USER_SITE}/tensorflow")
    python = value_of(moved.python)
    assert python is not None
    fields["distributions"] = tuple(replace(dist, location=USER_SITE) for dist in python.distributions)
    return with_python(moved, executable="/usr/bin/python3", virtual=False, user_site=USER_SITE, **fields)


def test_user_site_gets_libraries_of_its_tensorflow() -> None:
    facts = with_programs(move_to_user_site(remove_cufft(healthy())), "uv")
    assert user_permissions.classify_install_folder(context(facts).target) is InstallFolder.USER_SITE
    assert first_commands(facts)[0].startswith("/usr/bin/python3 -m pip install --user ")


def test_break_system_packages_is_the_last_remedy() -> None:
    facts = with_programs(move_to_user_site(remove_cufft(healthy()), externally_managed=True, pip=True))
    remedies = root_finding(facts).remedies
    assert "--break-system-packages" not in "\n".join(remedies[0].commands)
    assert (
        remedies[0]
        .commands[0]
        .startswith('/usr/bin/python3 -m pip install --no-deps --target "$HOME/for-tensorflow/cufft-cu12" ')
    )
    assert (
        remedies[0]
        .commands[1]
        .startswith('export LD_LIBRARY_PATH="$HOME/for-tensorflow/cufft-cu12/nvidia/cufft/lib"')
    )
    last = remedies[-1].commands[0]
    assert last.startswith("/usr/bin/python3 -m pip install --break-system-packages --user ")


def make_unwritable(facts: Facts) -> Facts:
    return with_python(facts, unwritable=((SITE, "alice"),), pip=True)


def test_unwritable_environment_gets_a_target_folder() -> None:
    facts = with_programs(make_unwritable(remove_cufft(healthy())))
    assert user_permissions.classify_install_folder(context(facts).target) is InstallFolder.UNWRITABLE
    remedies = root_finding(facts).remedies
    assert "alice" in remedies[0].text
    assert "--target" in remedies[0].commands[0]
    assert not remedies[0].steps
    assert any(line.endswith(">> ~/.profile") for line in remedies[0].commands)
    assert "activate" not in "\n".join(remedies[0].commands)
    # Its dependencies are in TensorFlow's folder, which the RUNPATH of the new folder does not reach.
    export = remedies[0].commands[1]
    assert f"{SITE}/nvidia/nvjitlink/lib" in export
    assert remedies[1].text.startswith("Or ask alice")
    assert not remedies[1].steps  # and `tfdoctor fix` does not do it


def test_search_path_replaces_a_denied_link() -> None:
    facts = make_unwritable(
        with_loader(
            healthy("2.21.0"),
            make_missing("libcusolver.so.11"),
            found=(locate_in_wheel("libcusolver.so.11"),),
        )
    )
    facts = with_programs(facts)
    assert first_commands(facts)[0].startswith(f"export LD_LIBRARY_PATH={SITE}/nvidia/cusolver/lib")
    assert "ln -s" not in "\n".join(first_commands(facts))


def test_pythonpath_overrides_a_module_in_a_closed_site() -> None:
    facts = with_programs(make_unwritable(with_python(healthy("2.20.0"), installed={"protobuf": "4.25.3"})))
    commands = first_commands(facts)
    assert '--target "$HOME/for-tensorflow/protobuf"' in commands[0]
    assert commands[1] == 'export PYTHONPATH="$HOME/for-tensorflow/protobuf${PYTHONPATH:+:$PYTHONPATH}"'


def test_damaged_tensorflow_of_another_user_is_left() -> None:
    facts = with_programs(make_unwritable(with_tensorflow(healthy("2.20.0"), missing_files=("python/",))))
    remedies = root_finding(facts).remedies
    assert remedies[0].commands[0] == "/env/bin/python -m venv tf-env"
    assert "tensorflow[and-cuda]==2.20.0" in remedies[0].commands[2]
    assert "--force-reinstall" in remedies[1].commands[0]
    assert not any(remedy.steps for remedy in remedies)


def test_tensorflow_outside_of_site_packages() -> None:
    folder = "/srv/tf"
    facts = with_tensorflow(
        remove_cufft(healthy()), package_dir=f"{folder}/tensorflow", core_dir=f"{folder}/tensorflow"
    )
    facts = with_programs(with_python(facts, pip=True))
    assert user_permissions.classify_install_folder(context(facts).target) is InstallFolder.ELSEWHERE
    assert "--target" in first_commands(facts)[0]


def test_new_environment_without_ensurepip() -> None:
    facts = replace(healthy(), tensorflow=Absent("", ""), loader=Absent("", ""))
    facts = with_python(
        facts, externally_managed=True, virtual=False, ensurepip=False, pip=True, distributions=()
    )
    assert "-m venv --without-pip tf-env" in join_commands(with_programs(facts))
    assert "uv venv --python /env/bin/python tf-env" in join_commands(with_programs(facts, "uv"))
    without_pip = with_machine(with_python(facts, pip=False), root=False)
    assert "sudo apt-get install python3.11-venv" in join_commands(
        with_programs(without_pip, "apt-get", "sudo")
    )


def test_installed_tensorflow_behind_pythonpath_is_kept() -> None:
    folder = "/srv/other"
    facts = with_tensorflow(
        healthy("2.20.0", distribution="tensorflow"),
        package_dir=f"{folder}/tensorflow",
        core_dir=f"{folder}/tensorflow",
        distribution="tensorflow-cpu",
        build_info={"is_cuda_build": "False"},
        cuda_config={},
    )
    facts = replace(facts, environment=replace(facts.environment, variables={"PYTHONPATH": f"/a:{folder}/"}))
    facts = with_programs(facts)
    assert first_commands(facts)[0] == "export PYTHONPATH=/a"
    assert "pip" not in join_commands(facts)


def test_uv_is_installed_if_another_python_is_needed() -> None:
    facts = replace(healthy(python="3.15.0"), tensorflow=Absent("", ""), loader=Absent("", ""))
    facts = with_python(facts, ensurepip=True, distributions=())
    assert "tf-uv/bin/uv venv --python 3." in join_commands(with_programs(facts))
    assert "tf-uv" not in join_commands(with_programs(facts, "uv"))


def test_micromamba_is_used_without_conda() -> None:
    facts = with_loader(
        healthy("2.4.4", python="3.8.18"), *(make_missing(name) for name in ("libcudart.so.11.0",))
    )
    assert "conda create" in join_commands(with_programs(facts, "conda"))
    assert "micromamba create" in join_commands(with_programs(facts, "micromamba"))


# -- sudo


@pytest.mark.parametrize(
    ("is_root", "programs", "sudo", "asks"),
    [(False, ("sudo",), True, False), (False, (), False, True), (True, (), False, False)],
)
def test_sudo_is_used_only_if_available(
    is_root: bool, programs: tuple[str, ...], sudo: bool, asks: bool
) -> None:
    facts = with_machine(healthy(), root=is_root, distribution_id="ubuntu")
    answer = value_of(facts.driver.cuda)
    assert answer is not None
    no_driver = Known(replace(answer, loaded=False, load_error="libcuda.so.1: cannot open"), "libcuda.so.1")
    facts = replace(
        facts, driver=replace(facts.driver, cuda=no_driver, kernel_module=Absent(""), modules=Known((), ""))
    )
    facts = with_programs(facts, *programs)
    remedies = [
        item
        for finding in diagnose(facts, COMPAT).findings
        for item in finding.remedies
        if "ubuntu-drivers" in "".join(item.commands)
    ]
    assert remedies
    for remedy in remedies:
        assert any("sudo " in line for line in remedy.commands) is sudo
        assert ("Ask the administrator" in remedy.text) is asks


# -- Several errors


def test_first_remedy_includes_the_other_errors() -> None:
    """TensorFlow 2.21 does not find cuSOLVER, and cuFFT is missing as well."""
    facts = remove_cufft(healthy("2.21.0"))
    facts = with_loader(
        facts, make_missing("libcusolver.so.11"), also_found=(locate_in_wheel("libcusolver.so.11"),)
    )
    commands = "\n".join(first_commands(facts))
    assert "nvidia-cufft-cu12" in commands
    assert "libcusolver.so.11" in commands
    assert commands.count("tfdoctor check") == 1


def test_first_remedy_includes_another_kind_of_error() -> None:
    facts = with_python(remove_cufft(healthy("2.20.0")), installed={"protobuf": "4.25.3"})
    commands = "\n".join(first_commands(facts))
    assert "protobuf" in commands
    assert "nvidia-cufft-cu12" in commands


def test_closed_environment_gets_all_remedies_at_once() -> None:
    facts = remove_cufft(healthy("2.21.0"))
    facts = with_loader(
        facts, make_missing("libcusolver.so.11"), also_found=(locate_in_wheel("libcusolver.so.11"),)
    )
    commands = "\n".join(first_commands(with_programs(make_unwritable(facts))))
    assert "--target" in commands
    assert "nvidia-cufft-cu12" in commands
    assert f"{SITE}/nvidia/cusolver/lib" in commands


def shadow_with_file(facts: Facts) -> Facts:
    return with_tensorflow(facts, shadowed_by="/home/user/code/tensorflow.py")


def test_manual_remedy_includes_the_other_errors() -> None:
    """A file that shadows TensorFlow is renamed, and cuFFT is installed as well."""
    remedy = root_finding(shadow_with_file(remove_cufft(healthy("2.20.0")))).remedies[0]
    assert remedy.commands[0] == "mv /home/user/code/tensorflow.py /home/user/code/my_tensorflow.py"
    assert "nvidia-cufft-cu12" in remedy.commands[1]
    assert remedy.commands[2] == "tfdoctor check --python /env/bin/python"
    assert " Then: " in remedy.text
    assert not remedy.steps  # `fix` cannot do the first part


def test_text_separates_manual_steps_from_fix() -> None:
    """CUDA 11.0 is installed by hand and NumPy by `fix`: each part is reported separately."""
    facts = with_python(healthy("2.4.4", python="3.8.18"), installed={"numpy": "1.24.4"})
    facts = with_programs(remove_libraries(facts), "conda")
    report = diagnose(facts, COMPAT)
    remedy = report.findings[0].remedies[0]
    assert report.findings[0].code == "TFD306"
    assert [type(step).__name__ for step in remedy.steps] == ["Install"]
    assert "conda" not in remedy.text
    assert "conda" in remedy.by_hand
    assert remedy.full_text == f"{remedy.by_hand} Then: {remedy.text}"
    assert remedy.commands[0].startswith("conda create")
    assert any("'numpy<1.20'" in line for line in remedy.commands)
    screen = render_report(report, offer=FixOffer("tfdoctor fix", (report.findings[0],)))
    fix_part, _, manual_part = screen.partition("By hand")
    assert "conda" not in fix_part
    assert "conda" in manual_part


def test_manual_remedy_of_a_closed_environment() -> None:
    commands = first_commands(
        shadow_with_file(with_programs(make_unwritable(remove_cufft(healthy("2.20.0")))))
    )
    assert commands[0].startswith("mv /home/user/code/tensorflow.py ")
    assert "--target" in commands[1]


def test_other_release_needs_no_further_libraries() -> None:
    """The release for this card brings its own libraries, so those of the installed one are of no use."""
    facts = with_cards(remove_cufft(healthy("2.20.0")), "3.5")
    findings = list(diagnose(facts, COMPAT).findings)
    too_old = next(finding for finding in findings if finding.code == "TFD110")
    assert {finding.code for finding in findings} >= {"TFD110", "TFD201"}
    adapted = adapt_findings(context(facts).target, too_old, findings)[id(too_old)]
    assert adapted.remedies[0].commands == too_old.remedies[0].commands


def test_commands_of_the_administrator_are_separate() -> None:
    """The rest is a remedy of its own."""
    facts = with_programs(with_machine(shadow_with_file(remove_cufft(healthy("2.20.0"))), root=False))
    by_root = Remedy("Do it.", ("sudo modprobe x", format_check_command(context(facts).target)))
    findings = [replace(root_finding(facts), remedies=(by_root,)), *diagnose(facts, COMPAT).findings[1:]]
    remedies = adapt_findings(context(facts).target, findings[0], findings)[id(findings[0])].remedies
    assert remedies[0].commands == ("modprobe x", by_root.commands[1])
    assert "nvidia-cufft-cu12" in remedies[1].commands[0]


def test_steps_belong_to_one_finding() -> None:
    facts = with_python(remove_cufft(healthy("2.20.0")), installed={"protobuf": "4.25.3"})
    steps = root_finding(facts).remedies[0].steps
    assert [
        versions.parse_project_name(requirement)
        for step in steps
        for requirement in getattr(step, "requirements", ())
    ] == ["protobuf"]


def test_folder_that_hides_a_library_leaves_the_path() -> None:
    """An older CUDA has a cuSOLVER with the name of the wheel's, and its cuBLAS is missing."""
    old = "/usr/local/cuda-11.8/lib64"
    resolution = Resolution(
        "libcusolver.so.11",
        f"{old}/libcusolver.so.11",
        "LD_LIBRARY_PATH",
        "libcublas.so.11: cannot open shared object file: No such file or directory",
        ("libcublas.so.11",),
        needed_by=f"{old}/libcusolver.so.11",
    )
    facts = with_loader(
        healthy("2.20.0"),
        resolution,
        library_path=(old,),
        also_found=(locate_in_wheel("libcusolver.so.11"), make_found(f"{old}/libcusolver.so.11")),
    )
    assert first_commands(facts)[0] == "unset LD_LIBRARY_PATH"
    assert "libcublas11" not in join_commands(facts)


def test_suspect_search_path_is_tested_before_reinstalling() -> None:
    """A libstdc++ without the required symbols is first on LD_LIBRARY_PATH."""
    path = f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"
    error = f"{path}: undefined symbol: _ZTVSt9exception"
    resolution = Resolution("libcudnn.so.9", path, "RUNPATH", error, ("libcudnn.so.9",), needed_by=path)
    facts = with_loader(healthy("2.20.0"), resolution, library_path=("/old",))
    assert first_commands(facts) == ("env -u LD_LIBRARY_PATH tfdoctor check --python /env/bin/python",)
    assert "--force-reinstall" not in join_commands(facts)


def test_older_libstdcxx_leaves_the_search_path() -> None:
    path = f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"
    error = f"/old/libstdc++.so.6: version `GLIBCXX_3.4.20' not found (required by {path})"
    resolution = Resolution("libcudnn.so.9", path, "RUNPATH", error, ("libcudnn.so.9",), needed_by=path)
    facts = with_loader(healthy("2.20.0"), resolution, library_path=("/old", "/good"))
    assert first_commands(facts)[0] == "export LD_LIBRARY_PATH=/good"


# -- Steps and commands


def test_steps_of_fix_match_the_commands() -> None:
    """The arguments that `fix` would use are in the commands of the remedy."""
    environment = Environment("/env", "/env/bin/python", "venv", "")
    cases = [
        remove_cufft(healthy("2.20.0")),
        with_python(remove_cufft(healthy("2.20.0")), installed={"protobuf": "4.25.3"}),
        with_loader(
            healthy("2.21.0"),
            make_missing("libcusolver.so.11"),
            also_found=(locate_in_wheel("libcusolver.so.11"),),
        ),
        with_python(healthy("2.10.1", python="3.10.1"), installed={"numpy": "2.0.2"}),
    ]
    for facts in cases:
        checked = 0
        for finding in diagnose(facts, COMPAT).findings:
            for remedy in finding.remedies:
                if not remedy.steps or finding.severity < Severity.WARNING:
                    continue
                checked += 1
                lines = commands.format_steps(context(facts).target, remedy.steps)
                # One command may install what several findings need.
                words = {word for line in remedy.commands for word in shlex.split(line)}
                assert {word for line in lines for word in shlex.split(line)} <= words, (finding.code, remedy)
                fix_line = " ".join(
                    format_steps(
                        [step for step in remedy.steps if hasattr(step, "requirements")], environment, None
                    )
                )
                for argument in shlex.split(fix_line)[4:]:
                    assert argument in " ".join(remedy.commands), (finding.code, argument)
        assert checked


@pytest.mark.parametrize(
    ("folders", "name"),
    [
        (["/a b", "/c"], "LD_LIBRARY_PATH"),
        (["$HOME/x y", "/a'b", "/c$HOME"], "LD_LIBRARY_PATH"),
        (["$HOME/x"], "PYTHONPATH"),
    ],
)
def test_export_keeps_the_old_search_path(folders: list[str], name: str) -> None:
    line = format_export(folders, name)
    for before, after in ((None, ""), ("/old", ":/old")):
        env = {"HOME": "/h"} | ({name: before} if before is not None else {})
        script = f'{line}; echo "${name}"'
        out = subprocess.run(
            ["/bin/sh", "-c", script], env=env, capture_output=True, text=True, check=True
        ).stdout
        expected = ":".join(
            f"/h{folder[5:]}" if folder.startswith("$HOME/") else folder for folder in folders
        )
        assert out == f"{expected}{after}\n"


def test_conda_environment_gets_every_variable() -> None:
    facts = with_python(healthy("2.10.1", python="3.10.1"), conda_prefix="/opt/conda/envs/tf")
    steps = (PrependEntries("LD_LIBRARY_PATH", ("/a",)), PrependEntries("PYTHONPATH", ("/b",)))
    echo_lines = [
        line for line in commands.format_steps(context(facts).target, steps) if line.startswith("echo ")
    ]
    assert len(echo_lines) == 2
    assert all(">> /opt/conda/envs/tf/etc/conda/activate.d/" in line for line in echo_lines)
