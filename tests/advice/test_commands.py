"""What is printed is what this person can type: programs that are there, folders that are open, all steps at once."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rules.make_facts import (
    COMPAT,
    SITE,
    at,
    context,
    healthy,
    is_in_wheel_folder,
    make_lost,
    remove_libraries,
    with_cards,
    with_loader,
    with_machine,
    with_python,
    with_tensorflow,
)
from tfdoctor import advice, versions
from tfdoctor.advice import commands, user_permissions
from tfdoctor.advice.user_permissions import InstallFolder
from tfdoctor.causes.steps import Prepend, Remedy
from tfdoctor.environment.actions import format_steps
from tfdoctor.environment.models import Environment, Offer
from tfdoctor.facts import Absent, Known, Resolution, value_of
from tfdoctor.findings import Finding, Severity
from tfdoctor.render.report import render_report
from tfdoctor.report.diagnose import diagnose

if TYPE_CHECKING:
    from tfdoctor.facts import Facts

USER = "/users/me/.local/lib/python3.11/site-packages"
CUFFT = "libcufft.so.11"


def with_programs(facts: Facts, *programs: str) -> Facts:
    """What is on this person's PATH."""
    return replace(facts, environment=replace(facts.environment, programs=frozenset({"sh", *programs})))


def make_uv_facts(facts: Facts) -> Facts:
    python = value_of(facts.python)
    assert python is not None
    return with_python(facts, distributions=tuple(replace(d, installer="uv") for d in python.distributions))


def remove_cufft(facts: Facts) -> Facts:
    """Its wheel is gone; the partners of it are there."""
    installed = {"nvidia-nvjitlink-cu12": "12.5.82", "nvidia-cublas-cu12": "12.5.3.2"}
    return with_loader(with_python(facts, installed=installed), make_lost(CUFFT))


def root(facts: Facts) -> Finding:
    report = diagnose(facts, COMPAT)
    assert report.root is not None
    assert report.root is report.findings[0]
    return report.root


def first(facts: Facts) -> tuple[str, ...]:
    return root(facts).remedies[0].commands


def list_everything(facts: Facts) -> str:
    remedies = [remedy for finding in diagnose(facts, COMPAT).findings for remedy in finding.remedies]
    return "\n".join(line for remedy in remedies for line in remedy.commands)


# -- Which program


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
def test_the_program_that_installs_is_one_that_is_there(
    programs: tuple[str, ...] | None, pip: bool | None, ensurepip: bool | None, begins: str
) -> None:
    facts = make_uv_facts(remove_cufft(with_machine(healthy(), root=False)))
    facts = with_python(facts, pip=pip, ensurepip=ensurepip)
    if programs is not None:
        facts = with_programs(facts, *programs)
    assert first(facts)[0].startswith(begins)
    if programs is not None and "uv" not in programs:
        assert "uv " not in list_everything(facts)


def test_what_pip_has_installed_pip_installs_also_where_uv_is() -> None:
    facts = with_programs(with_python(remove_cufft(healthy()), pip=True), "uv")
    assert first(facts)[0].startswith("/env/bin/python -m pip install ")


def test_uninstalling_takes_the_same_program() -> None:
    facts = with_programs(make_uv_facts(healthy()), "uv")
    assert advice.pip_uninstall(context(facts).target, ["a"]) == "uv pip uninstall --python /env/bin/python a"
    facts = with_python(with_programs(make_uv_facts(healthy())), pip=True)
    assert advice.pip_uninstall(context(facts).target, ["a"]) == "/env/bin/python -m pip uninstall -y a"


# -- Where it goes


def move_to_user_site(facts: Facts, **more: Any) -> Facts:
    """As `pip install --user` leaves it."""
    moved = with_tensorflow(facts, package_dir=f"{USER}/tensorflow", core_dir=f"{USER}/tensorflow")
    python = value_of(moved.python)
    assert python is not None
    more["distributions"] = tuple(replace(d, location=USER) for d in python.distributions)
    return with_python(moved, executable="/usr/bin/python3", virtual=False, user_site=USER, **more)


def test_the_users_folder_gets_what_the_tensorflow_in_it_needs() -> None:
    facts = with_programs(move_to_user_site(remove_cufft(healthy())), "uv")
    assert user_permissions.place(context(facts).target) is InstallFolder.USER
    assert first(facts)[0].startswith("/usr/bin/python3 -m pip install --user ")


def test_a_python_of_the_systems_is_not_broken_before_anything_else_is_tried() -> None:
    facts = with_programs(move_to_user_site(remove_cufft(healthy()), externally_managed=True, pip=True))
    remedies = root(facts).remedies
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


def test_nothing_is_installed_into_a_colleagues_environment() -> None:
    facts = with_programs(make_unwritable(remove_cufft(healthy())))
    assert user_permissions.place(context(facts).target) is InstallFolder.CLOSED
    remedies = root(facts).remedies
    assert "alice" in remedies[0].text
    assert "--target" in remedies[0].commands[0]
    assert not remedies[0].steps
    assert any(line.endswith(">> ~/.profile") for line in remedies[0].commands)
    assert "activate" not in "\n".join(remedies[0].commands)
    # What it needs beside itself lies with TensorFlow, where the new folder's RUNPATH does not lead.
    export = remedies[0].commands[1]
    assert f"{SITE}/nvidia/nvjitlink/lib" in export
    assert remedies[1].text.startswith("Or ask alice")
    assert not remedies[1].steps  # nor is `tfdoctor fix` told to


def test_a_link_that_may_not_be_made_is_a_folder_that_is_named() -> None:
    facts = make_unwritable(
        with_loader(
            healthy("2.21.0"),
            make_lost("libcusolver.so.11"),
            found=(is_in_wheel_folder("libcusolver.so.11"),),
        )
    )
    facts = with_programs(facts)
    assert first(facts)[0].startswith(f"export LD_LIBRARY_PATH={SITE}/nvidia/cusolver/lib")
    assert "ln -s" not in "\n".join(first(facts))


def test_an_older_module_in_a_colleagues_environment_is_put_before() -> None:
    facts = with_programs(make_unwritable(with_python(healthy("2.20.0"), installed={"protobuf": "4.25.3"})))
    commands = first(facts)
    assert '--target "$HOME/for-tensorflow/protobuf"' in commands[0]
    assert commands[1] == 'export PYTHONPATH="$HOME/for-tensorflow/protobuf${PYTHONPATH:+:$PYTHONPATH}"'


def test_a_damaged_tensorflow_of_a_colleague_is_left_to_him() -> None:
    facts = with_programs(make_unwritable(with_tensorflow(healthy("2.20.0"), missing_files=("python/",))))
    remedies = root(facts).remedies
    assert remedies[0].commands[0] == "/env/bin/python -m venv tf-env"
    assert "tensorflow[and-cuda]==2.20.0" in remedies[0].commands[2]
    assert "--force-reinstall" in remedies[1].commands[0]
    assert not any(remedy.steps for remedy in remedies)


def test_tensorflow_outside_of_the_folder_that_pip_takes() -> None:
    there = "/srv/tf"
    facts = with_tensorflow(
        remove_cufft(healthy()), package_dir=f"{there}/tensorflow", core_dir=f"{there}/tensorflow"
    )
    facts = with_programs(with_python(facts, pip=True))
    assert user_permissions.place(context(facts).target) is InstallFolder.ELSEWHERE
    assert "--target" in first(facts)[0]


def test_a_new_environment_without_debians_python3_venv() -> None:
    facts = replace(healthy(), tensorflow=Absent("", ""), loader=Absent("", ""))
    facts = with_python(
        facts, externally_managed=True, virtual=False, ensurepip=False, pip=True, distributions=()
    )
    assert "-m venv --without-pip tf-env" in list_everything(with_programs(facts))
    assert "uv venv --python /env/bin/python tf-env" in list_everything(with_programs(facts, "uv"))
    none = with_machine(with_python(facts, pip=False), root=False)
    assert "sudo apt-get install python3.11-venv" in list_everything(with_programs(none, "apt-get", "sudo"))


def test_a_good_tensorflow_behind_pythonpath_is_not_replaced() -> None:
    there = "/srv/other"
    facts = with_tensorflow(
        healthy("2.20.0", distribution="tensorflow"),
        package_dir=f"{there}/tensorflow",
        core_dir=f"{there}/tensorflow",
        distribution="tensorflow-cpu",
        build_info={"is_cuda_build": "False"},
        cuda_config={},
    )
    facts = replace(facts, environment=replace(facts.environment, variables={"PYTHONPATH": f"/a:{there}/"}))
    facts = with_programs(facts)
    assert first(facts)[0] == "export PYTHONPATH=/a"
    assert "pip" not in list_everything(facts)


def test_uv_is_made_where_a_python_has_to_be_fetched_and_there_is_none() -> None:
    facts = replace(healthy(python="3.15.0"), tensorflow=Absent("", ""), loader=Absent("", ""))
    facts = with_python(facts, ensurepip=True, distributions=())
    assert "tf-uv/bin/uv venv --python 3." in list_everything(with_programs(facts))
    assert "tf-uv" not in list_everything(with_programs(facts, "uv"))


def test_conda_is_mamba_where_that_is_what_there_is() -> None:
    facts = with_loader(
        healthy("2.4.4", python="3.8.18"), *(make_lost(name) for name in ("libcudart.so.11.0",))
    )
    assert "conda create" in list_everything(with_programs(facts, "conda"))
    assert "micromamba create" in list_everything(with_programs(facts, "micromamba"))


# -- sudo


@pytest.mark.parametrize(
    ("is_root", "programs", "sudo", "asks"),
    [(False, ("sudo",), True, False), (False, (), False, True), (True, (), False, False)],
)
def test_sudo_stands_only_where_it_is(
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
        r
        for f in diagnose(facts, COMPAT).findings
        for r in f.remedies
        if "ubuntu-drivers" in "".join(r.commands)
    ]
    assert remedies
    for remedy in remedies:
        assert any("sudo " in line for line in remedy.commands) is sudo
        assert ("Ask the administrator" in remedy.text) is asks


# -- All at once


def test_the_first_remedy_has_what_the_other_errors_need() -> None:
    """2.21 leaves cuSOLVER unfound, and cuFFT is not there either."""
    facts = remove_cufft(healthy("2.21.0"))
    facts = with_loader(
        facts, make_lost("libcusolver.so.11"), also_found=(is_in_wheel_folder("libcusolver.so.11"),)
    )
    commands = "\n".join(first(facts))
    assert "nvidia-cufft-cu12" in commands
    assert "libcusolver.so.11" in commands
    assert commands.count("tfdoctor check") == 1


def test_two_faults_of_two_kinds_are_typed_away_together() -> None:
    facts = with_python(remove_cufft(healthy("2.20.0")), installed={"protobuf": "4.25.3"})
    commands = "\n".join(first(facts))
    assert "protobuf" in commands
    assert "nvidia-cufft-cu12" in commands


def test_also_where_the_environment_is_somebody_elses() -> None:
    facts = remove_cufft(healthy("2.21.0"))
    facts = with_loader(
        facts, make_lost("libcusolver.so.11"), also_found=(is_in_wheel_folder("libcusolver.so.11"),)
    )
    commands = "\n".join(first(with_programs(make_unwritable(facts))))
    assert "--target" in commands
    assert "nvidia-cufft-cu12" in commands
    assert f"{SITE}/nvidia/cusolver/lib" in commands


def hidden_by_a_file(facts: Facts) -> Facts:
    return with_tensorflow(facts, shadowed_by="/home/user/code/tensorflow.py")


def test_what_is_typed_by_hand_is_typed_with_what_the_others_need() -> None:
    """A remedy without steps: a file beside the program is renamed, and cuFFT is to be installed all the same."""
    remedy = root(hidden_by_a_file(remove_cufft(healthy("2.20.0")))).remedies[0]
    assert remedy.commands[0] == "mv /home/user/code/tensorflow.py /home/user/code/my_tensorflow.py"
    assert "nvidia-cufft-cu12" in remedy.commands[1]
    assert remedy.commands[2] == "tfdoctor check --python /env/bin/python"
    assert " Then: " in remedy.text
    assert not remedy.steps  # `fix` cannot do the first half


def test_what_fix_does_not_do_is_not_in_its_words() -> None:
    """CUDA 11.0 comes by hand, NumPy by `fix`: the screen and `fix` say each of its own."""
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
    screen = render_report(report, fix=Offer("tfdoctor fix", (report.findings[0],)))
    offered, _, by_hand = screen.partition("By hand")
    assert "conda" not in offered
    assert "conda" in by_hand


def test_so_it_is_in_somebody_elses_environment() -> None:
    commands = first(hidden_by_a_file(with_programs(make_unwritable(remove_cufft(healthy("2.20.0"))))))
    assert commands[0].startswith("mv /home/user/code/tensorflow.py ")
    assert "--target" in commands[1]


def test_nothing_is_added_to_another_tensorflow() -> None:
    """The release that the card needs comes with all that it needs: this one's libraries are of no use then."""
    facts = with_cards(remove_cufft(healthy("2.20.0")), "3.5")
    found = list(diagnose(facts, COMPAT).findings)
    old = next(one for one in found if one.code == "TFD110")
    assert {one.code for one in found} >= {"TFD110", "TFD201"}
    told = advice.adapt_findings(context(facts).target, old, found)[id(old)]
    assert told.remedies[0].commands == old.remedies[0].commands


def test_what_the_administrator_types_stands_alone() -> None:
    """He is asked for his part; the rest is a remedy of its own."""
    facts = with_programs(with_machine(hidden_by_a_file(remove_cufft(healthy("2.20.0"))), root=False))
    by_root = Remedy("Do it.", ("sudo modprobe x", advice.check_again(context(facts).target)))
    found = [replace(root(facts), remedies=(by_root,)), *diagnose(facts, COMPAT).findings[1:]]
    told = advice.adapt_findings(context(facts).target, found[0], found)[id(found[0])].remedies
    assert told[0].commands == ("modprobe x", by_root.commands[1])
    assert "nvidia-cufft-cu12" in told[1].commands[0]


def test_fix_is_told_of_one_finding_at_a_time() -> None:
    facts = with_python(remove_cufft(healthy("2.20.0")), installed={"protobuf": "4.25.3"})
    steps = root(facts).remedies[0].steps
    assert [versions.project_of(one) for step in steps for one in getattr(step, "requirements", ())] == [
        "protobuf"
    ]


def test_what_hides_a_good_library_leaves_the_path() -> None:
    """Half of an older CUDA: its cuSOLVER has the name of the wheel's good one, and lacks its own cuBLAS."""
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
        also_found=(is_in_wheel_folder("libcusolver.so.11"), at(f"{old}/libcusolver.so.11")),
    )
    assert first(facts)[0] == "unset LD_LIBRARY_PATH"
    assert "libcublas11" not in list_everything(facts)


def test_nothing_is_installed_again_where_the_path_may_be_what_is_wrong() -> None:
    """A libstdc++ without its symbols stands first on LD_LIBRARY_PATH."""
    path = f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"
    error = f"{path}: undefined symbol: _ZTVSt9exception"
    resolution = Resolution("libcudnn.so.9", path, "RUNPATH", error, ("libcudnn.so.9",), needed_by=path)
    facts = with_loader(healthy("2.20.0"), resolution, library_path=("/old",))
    assert first(facts) == ("env -u LD_LIBRARY_PATH tfdoctor check --python /env/bin/python",)
    assert "--force-reinstall" not in list_everything(facts)


def test_an_older_libstdcxx_on_the_path_leaves_it() -> None:
    path = f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"
    error = f"/old/libstdc++.so.6: version `GLIBCXX_3.4.20' not found (required by {path})"
    resolution = Resolution("libcudnn.so.9", path, "RUNPATH", error, ("libcudnn.so.9",), needed_by=path)
    facts = with_loader(healthy("2.20.0"), resolution, library_path=("/old", "/good"))
    assert first(facts)[0] == "export LD_LIBRARY_PATH=/good"


# -- The two say the same


def test_steps_of_fix_and_commands_are_of_one_mind() -> None:
    """What `fix` would show of the steps names what the person types."""
    environment = Environment("/env", "/env/bin/python", "venv", "")
    cases = [
        remove_cufft(healthy("2.20.0")),
        with_python(remove_cufft(healthy("2.20.0")), installed={"protobuf": "4.25.3"}),
        with_loader(
            healthy("2.21.0"),
            make_lost("libcusolver.so.11"),
            also_found=(is_in_wheel_folder("libcusolver.so.11"),),
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
                typed = commands.format_steps(context(facts).target, remedy.steps)
                assert set(typed) <= set(remedy.commands), (finding.code, remedy)
                by_fix = " ".join(
                    format_steps([s for s in remedy.steps if hasattr(s, "requirements")], environment, None)
                )
                for word in shlex.split(by_fix)[4:]:
                    assert word in " ".join(remedy.commands), (finding.code, word)
        assert checked


@pytest.mark.parametrize(
    ("folders", "name"),
    [
        (["/a b", "/c"], "LD_LIBRARY_PATH"),
        (["$HOME/x y", "/a'b", "/c$HOME"], "LD_LIBRARY_PATH"),
        (["$HOME/x"], "PYTHONPATH"),
    ],
)
def test_a_search_path_keeps_what_was_on_it(folders: list[str], name: str) -> None:
    line = advice.export_path(folders, name)
    for before, after in ((None, ""), ("/old", ":/old")):
        env = {"HOME": "/h"} | ({name: before} if before is not None else {})
        script = f'{line}; echo "${name}"'
        out = subprocess.run(
            ["/bin/sh", "-c", script], env=env, capture_output=True, text=True, check=True
        ).stdout
        wanted = ":".join(f"/h{one[5:]}" if one.startswith("$HOME/") else one for one in folders)
        assert out == f"{wanted}{after}\n"


def test_a_conda_environment_keeps_every_line() -> None:
    facts = with_python(healthy("2.10.1", python="3.10.1"), conda_prefix="/opt/conda/envs/tf")
    steps = (Prepend("LD_LIBRARY_PATH", ("/a",)), Prepend("PYTHONPATH", ("/b",)))
    kept = [line for line in commands.format_steps(context(facts).target, steps) if line.startswith("echo ")]
    assert len(kept) == 2
    assert all(">> /opt/conda/envs/tf/etc/conda/activate.d/" in line for line in kept)
