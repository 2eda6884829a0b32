"""Remedies for an image: no command changes the host's Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules.hiding_facts import HIDE, with_hidden_gpus
from tfdoctor.compat import Compat
from tfdoctor.core.causes.steps import Install, PrependEntries, SetVariable, Step, UnsetVariable
from tfdoctor.core.facts import Origin
from tfdoctor.core.findings import Cause, Finding, Remedy, Severity
from tfdoctor.diagnosis import examine
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.planning.hypothetical_facts import EnvironmentSketch, make_facts_from_sketch
from tfdoctor.remedies.image import (
    HOST_CAUSES,
    adapt_image_finding,
    adapt_image_findings,
    choose_image_name,
    format_start_command,
)
from tfdoctor.remedies.target import Target, TargetImage
from tfdoctor.system.recorded import RecordedSystem

COMPAT = Compat.load()
HOSTS = sorted(path.parent for path in (Path(__file__).parents[1] / "hosts").glob("*/expect.json"))
VERIFY = "tfdoctor verify team/app:1-fixed"
IMAGE_COMMANDS = ("ENV ", "FROM ", "RUN ", "USER ", "docker build ", "env -u ", "tfdoctor ")


def commands_by_code(folder: Path, image: str | None) -> dict[str, list[tuple[str, ...]]]:
    """Return the commands of each remedy by code, for findings that are not the host's."""
    target_image = TargetImage(image) if image is not None else None
    report = examine(RecordedSystem(folder), COMPAT, image=target_image)
    return {
        finding.code: [remedy.commands for remedy in finding.remedies]
        for finding in report.findings
        if finding.cause not in HOST_CAUSES
    }


@pytest.mark.few(8)
@pytest.mark.parametrize("folder", HOSTS, ids=lambda folder: folder.name)
def test_image_findings_have_image_commands(folder: Path) -> None:
    for code, remedies in commands_by_code(folder, "team/app:1").items():
        for line in (line for lines in remedies for line in lines):
            assert line.startswith(IMAGE_COMMANDS), f"{code}: {line}"
            assert not line.startswith(("tfdoctor check", "tfdoctor fix", "tfdoctor install")), code


def test_too_new_gpu_gets_another_release() -> None:
    """`build` chooses the release by the GPU, with any Python, because a new image need not keep the old one."""
    remedies = commands_by_code(HOSTS[0].parent / "blackwell-with-tf221", "team/app:1")["TFD111"]
    build, verify = remedies[-1]
    assert build.startswith("tfdoctor build --gpu 12.0 --driver ")
    assert verify == "tfdoctor verify team/app:fixed"
    assert not any("--tf 2.21" in line for lines in remedies for line in lines)


def test_variable_can_be_unset_for_one_container() -> None:
    remedies = commands_by_code(HOSTS[0].parent / "hidden-by-empty", "team/app:1")["TFD601"]
    command = "env -u CUDA_VISIBLE_DEVICES docker run --rm --gpus all -e CUDA_VISIBLE_DEVICES team/app:1"
    assert (command,) in remedies


def test_install_becomes_run_build_and_verify() -> None:
    distributions = (("tensorflow", "2.16.2"), ("numpy", "2.0.2"))
    modules = tuple(row.package for row in COMPAT.companions)
    facts = make_facts_from_sketch(
        COMPAT, EnvironmentSketch("2.16.2", "tensorflow", "3.11", distributions, unversioned_packages=modules)
    )
    root = diagnose(facts, COMPAT, image=TargetImage("team/app:1")).root_finding
    assert root is not None
    first, *_, last = root.remedies
    install, *rest = first.commands
    assert install.startswith("RUN ")
    assert install.endswith("-m pip install 'numpy<2'")
    assert rest == ["docker build -t team/app:1-fixed .", "tfdoctor verify team/app:1-fixed"]
    assert last.commands == (
        "tfdoctor build --tf 2.16.2 --tag team/app:fixed",
        "tfdoctor verify team/app:fixed",
    )
    assert "numpy<2" in diagnose(facts, COMPAT).findings[0].remedies[0].commands[0]


def test_first_finding_includes_the_other_errors() -> None:
    def error(code: str, step: Step) -> Finding:
        cause = Cause.NUMPY_ABI if code == "TFD306" else Cause.HIDDEN_BY_ENV
        return Finding(code, cause, Severity.ERROR, "", "", (), (Remedy("Do it.", ("…",), steps=(step,)),))

    root, other = error("TFD306", Install(("numpy<2",))), error("TFD601", UnsetVariable("TF_XLA_FLAGS"))
    adapted = adapt_image_findings(Target(COMPAT, image=TargetImage("sha256:0123")), root, [root, other])
    lines, variable, *_ = (remedy.commands for remedy in adapted[id(root)].remedies)
    assert lines == (
        "RUN python3 -m pip install 'numpy<2'",
        "docker build -t localhost/fixed:1 .",
        "tfdoctor verify localhost/fixed:1",
    )
    assert variable == ("env -u TF_XLA_FLAGS docker run --rm --gpus all -e TF_XLA_FLAGS sha256:0123",)


def test_other_release_is_a_new_image() -> None:
    remedies = commands_by_code(HOSTS[0].parent / "blackwell-with-tf218", "team/app:1")["TFD111"]
    build = "tfdoctor build --tf 2.21.0 --tag team/app:fixed"
    assert remedies == [(build, "tfdoctor verify team/app:fixed"), ("tfdoctor recommend",)]


def test_host_remedies_stay() -> None:
    remedies = commands_by_code(HOSTS[0].parent / "hidden-by-empty", None)["TFD601"]
    assert remedies[0][0] == "unset CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("image", "new"),
    [
        ("app", "localhost/app:latest-fixed"),
        ("python:3.13-slim", "localhost/python:3.13-slim-fixed"),
        ("localhost/tfdoctor/tensorflow:2.21.0", "localhost/tensorflow:2.21.0-fixed"),
        ("team/app:1", "team/app:1-fixed"),
        ("localhost:5000/team/app", "localhost:5000/team/app:latest-fixed"),
        ("app@sha256:" + "0" * 64, "localhost/fixed:1"),
        ("sha256:" + "0" * 64, "localhost/fixed:1"),
        ("0123456789ab", "localhost/fixed:1"),
    ],
)
def test_new_image_has_its_own_name(image: str, new: str) -> None:
    assert choose_image_name(image) == new


def test_rebuilt_image_has_no_tag_of_the_old_contents() -> None:
    assert (
        choose_image_name("localhost/tfdoctor/tensorflow:2.21.0-cuda12.9", is_rebuilt=True)
        == "localhost/tensorflow:fixed"
    )
    assert choose_image_name("team/app:2.21", is_rebuilt=True) == "team/app:fixed"


def adapt_steps(image: TargetImage, *steps: Step) -> list[tuple[str, ...]]:
    """Return the commands of each remedy of an error that these steps fix."""
    original = Remedy("Do it. The last line keeps it for each login.", ("…",), steps=steps)
    error = Finding("TFD203", Cause.LIBS_NOT_ON_PATH, Severity.ERROR, "", "", (), (original,))
    remedies = adapt_image_findings(Target(COMPAT, image=image), error, [error])[id(error)].remedies
    assert all("The last line" not in remedy.text for remedy in remedies)
    return [remedy.commands for remedy in remedies]


def test_install_runs_as_root_and_restores_the_user() -> None:
    lines, *_ = adapt_steps(TargetImage("team/app:1", user="1000"), Install(("numpy<2",)))
    assert lines[:3] == ("USER root", "RUN python3 -m pip install 'numpy<2'", "USER 1000")


def test_search_path_gets_no_empty_entry() -> None:
    lines, *_ = adapt_steps(TargetImage("team/app:1"), PrependEntries("LD_LIBRARY_PATH", ("/a", "/b")))
    assert lines[0] == "ENV LD_LIBRARY_PATH=/a:/b${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"


@pytest.mark.parametrize("cause", [Cause.NOT_PERMITTED, Cause.NO_DRIVER])
def test_file_changes_become_run_lines(cause: Cause) -> None:
    remedy = Remedy("As root.", ("sudo chmod -R a+rX /opt/x", "tfdoctor check"), changes_system=True)
    error = Finding("TFD319", cause, Severity.ERROR, "", "", (), (remedy,))
    adapted = adapt_image_findings(Target(COMPAT, image=TargetImage("app:1", user="1000")), error, [error])[
        id(error)
    ].remedies
    assert adapted[0].commands[:3] == ("USER root", "RUN chmod -R a+rX /opt/x", "USER 1000")
    assert not any(line.startswith("sudo") for item in adapted for line in item.commands)


def test_variable_needs_no_root_and_can_be_an_option() -> None:
    lines, option, *_ = adapt_steps(
        TargetImage("team/app:1", user="1000"), SetVariable("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")
    )
    assert lines[:2] == (
        "ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "docker build -t team/app:1-fixed .",
    )
    assert option == ("docker run --rm --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility team/app:1",)


PODMAN = TargetImage("localhost/app:1", "podman", "--device nvidia.com/gpu=all", "1000")


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        ("docker run --gpus all IMAGE", "podman run --device nvidia.com/gpu=all localhost/app:1"),
        (
            "podman run --device nvidia.com/gpu=all IMAGE nvidia-smi",
            "podman run --device nvidia.com/gpu=all localhost/app:1 nvidia-smi",
        ),
        ("sudo docker run --gpus all IMAGE", "sudo docker run --gpus all IMAGE"),
        ("nvidia-smi", "nvidia-smi"),
        ("docker run hello", "docker run hello"),
    ],
)
def test_image_placeholder_is_replaced(said: str, typed: str) -> None:
    error = Finding(
        "TFD401", Cause.CONTAINER_NO_GPU, Severity.ERROR, "", "", (), (Remedy("Do it.", (said,)),)
    )
    adapted = adapt_image_findings(Target(COMPAT, image=PODMAN), error, [error])[id(error)]
    assert [remedy.commands for remedy in adapted.remedies] == [(typed,)]


def test_driver_capabilities_get_utility() -> None:
    """The ENV of the image selects the parts of the driver: the remedy is a Dockerfile line or an option of `run`."""
    system = RecordedSystem(HOSTS[0].parent / "docker-without-utility")
    report = examine(system, COMPAT, image=PODMAN)
    first, second = (remedy.commands for remedy in report.findings[0].remedies)
    assert first[0] == "ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    assert second[0].startswith("podman run --rm --device nvidia.com/gpu=all -e NVIDIA_DRIVER_CAPABILITIES=")


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        (
            "export TF_FORCE_GPU_ALLOW_GROWTH=true",
            ["podman run --rm --device nvidia.com/gpu=all -e TF_FORCE_GPU_ALLOW_GROWTH=true localhost/app:1"],
        ),
        (
            """export LD_LIBRARY_PATH='/a b'"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\"""",
            [
                "ENV LD_LIBRARY_PATH='/a b'${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}",
                "podman build -t localhost/app:1-fixed .",
                "tfdoctor verify localhost/app:1-fixed",
            ],
        ),
        ("export X=$(id)", ["export X=$(id)"]),
    ],
)
def test_export_becomes_an_option_or_env_line(said: str, typed: list[str]) -> None:
    """This holds for causes on the host as well: a container does not inherit its shell variables."""
    remedy = Remedy("Do it, for this shell only.", (said, "tfdoctor check"))
    error = Finding("TFD603", Cause.GPU_BUSY_OTHER_PROCESS, Severity.ERROR, "", "", (), (remedy,))
    (adapted,) = adapt_image_findings(Target(COMPAT, image=PODMAN), error, [error])[id(error)].remedies
    assert [line for line in adapted.commands if line != "tfdoctor verify localhost/app:1"] == typed


def test_system_file_of_an_image_is_edited() -> None:
    """In an image without a virtual environment, packages are in a system folder."""
    path = "/usr/local/lib/python2.7/dist-packages/gpus.pth"
    line = f"import os; os.environ['{HIDE}'] = '-1'"
    facts = with_hidden_gpus(Origin(HIDE, "start", None, path, 1, line))
    host_root, image_root = (
        diagnose(facts, COMPAT, image=target).root_finding for target in (None, TargetImage("team/app:1"))
    )
    assert host_root is not None
    assert image_root is not None
    assert host_root.remedies[0].commands == ()
    assert image_root.remedies[0].commands[0].startswith("RUN sed -i '1")
    assert path in image_root.remedies[0].commands[0]


def test_host_installation_is_dropped_for_an_image() -> None:
    remedy = Remedy("Install it.", ("python3 -m venv tf", "tf/bin/pip install tensorflow"), replaces=True)
    error = Finding("TFD101", Cause.NO_DRIVER, Severity.ERROR, "", "", (), (remedy,))
    assert adapt_image_findings(Target(COMPAT, image=PODMAN), error, [error])[id(error)].remedies == ()


def test_podman_commands() -> None:
    image = TargetImage("localhost/app:1", "podman", "--device nvidia.com/gpu=all")
    lines, variable, *_ = adapt_steps(image, Install(("numpy<2",)), UnsetVariable("TF_XLA_FLAGS"))
    assert "podman build -t localhost/app:1-fixed ." in lines
    assert variable == (
        "podman run --rm --device nvidia.com/gpu=all --unsetenv TF_XLA_FLAGS localhost/app:1",
    )
    assert (
        format_start_command(image, "-it")
        == "podman run --rm --device nvidia.com/gpu=all -it localhost/app:1"
    )


def test_other_python_of_the_image_is_put_on_path() -> None:
    remedy = Remedy("Use it.", ("tfdoctor check --python /opt/tensorflow/bin/python",))
    finding = Finding("TFD301", Cause.TENSORFLOW_MISSING, Severity.ERROR, "", "", (), (remedy,))
    adapted = adapt_image_finding(Target(COMPAT, image=TargetImage("team/app:1")), finding)
    assert [found.commands[0] for found in adapted.remedies[:2]] == [
        "ENV PATH=/opt/tensorflow/bin${PATH:+:$PATH}",
        "tfdoctor verify team/app:1 --python /opt/tensorflow/bin/python",
    ]
