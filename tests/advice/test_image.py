"""Remedies for an image: nothing is typed into a shell that would change the host's Python, or no image at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules.hiding_facts import HIDE, hidden
from tfdoctor.advice import Target
from tfdoctor.advice.image import OF_HOST, adapt_image_findings, new_name, start_of
from tfdoctor.advice.target import InImage
from tfdoctor.causes.steps import Export, Install, Prepend, Step, Unset
from tfdoctor.compat import Compat
from tfdoctor.examine import examine
from tfdoctor.facts import Origin
from tfdoctor.findings import Cause, Finding, Remedy, Severity
from tfdoctor.plan.hypothetical_facts import Sketch, make_sketched_facts
from tfdoctor.report.diagnose import diagnose
from tfdoctor.system.recorded import RecordedSystem

COMPAT = Compat.load()
HOSTS = sorted(path.parent for path in (Path(__file__).parents[1] / "hosts").glob("*/expect.json"))
VERIFY = "tfdoctor verify team/app:1-fixed"
FOR_IMAGES = ("ENV ", "FROM ", "RUN ", "USER ", "docker build ", "env -u ", "tfdoctor ")


def commands(folder: Path, image: str | None) -> dict[str, list[tuple[str, ...]]]:
    """Code → the commands of each remedy, of what is not the host's."""
    made = InImage(image) if image is not None else None
    report = examine(RecordedSystem(folder), COMPAT, image=made)
    return {
        finding.code: [remedy.commands for remedy in finding.remedies]
        for finding in report.findings
        if finding.cause not in OF_HOST
    }


@pytest.mark.few(8)
@pytest.mark.parametrize("folder", HOSTS, ids=lambda folder: folder.name)
def test_what_is_wrong_in_an_image_is_put_right_in_an_image(folder: Path) -> None:
    for code, remedies in commands(folder, "team/app:1").items():
        for line in (line for lines in remedies for line in lines):
            assert line.startswith(FOR_IMAGES), f"{code}: {line}"
            assert not line.startswith(("tfdoctor check", "tfdoctor fix", "tfdoctor install")), code


def test_the_same_tensorflow_anew_is_no_advice_for_a_card_that_it_has_no_code_for() -> None:
    """`build` chooses by the card, with any Python: an image is not bound to that of the old one."""
    remedies = commands(HOSTS[0].parent / "blackwell-with-tf221", "team/app:1")["TFD111"]
    build, verify = remedies[-1]
    assert build.startswith("tfdoctor build --gpu 12.0 --driver ")
    assert verify == VERIFY
    assert not any("--tf 2.21" in line for lines in remedies for line in lines)


def test_a_variable_goes_with_its_line_or_for_one_container() -> None:
    found = commands(HOSTS[0].parent / "hidden-by-empty", "team/app:1")["TFD601"]
    typed = "env -u CUDA_VISIBLE_DEVICES docker run --rm --gpus all -e CUDA_VISIBLE_DEVICES team/app:1"
    assert (typed,) in found


def test_what_is_installed_is_a_line_and_then_the_image_is_built_and_verified_anew() -> None:
    distributions = (("tensorflow", "2.16.2"), ("numpy", "2.0.2"))
    modules = tuple(row.package for row in COMPAT.companions)
    facts = make_sketched_facts(
        COMPAT, Sketch("2.16.2", "tensorflow", "3.11", distributions, modules=modules)
    )
    root = diagnose(facts, COMPAT, image=InImage("team/app:1")).root
    assert root is not None
    first, *_, last = root.remedies
    install, *rest = first.commands
    assert install.startswith("RUN ")
    assert install.endswith("-m pip install 'numpy<2'")
    assert rest == ["docker build -t team/app:1-fixed .", "tfdoctor verify team/app:1-fixed"]
    assert last.commands == (
        "tfdoctor build --tf 2.16.2 --tag team/app:1-fixed",
        "tfdoctor verify team/app:1-fixed",
    )
    assert "numpy<2" in diagnose(facts, COMPAT).findings[0].remedies[0].commands[0]


def test_the_finding_that_leads_says_what_the_others_need() -> None:
    def error(code: str, step: Step) -> Finding:
        cause = Cause.NUMPY_ABI if code == "TFD306" else Cause.HIDDEN_BY_ENV
        return Finding(code, cause, Severity.ERROR, "", "", (), (Remedy("Do it.", ("…",), steps=(step,)),))

    root, other = error("TFD306", Install(("numpy<2",))), error("TFD601", Unset("TF_XLA_FLAGS"))
    told = adapt_image_findings(Target(COMPAT, image=InImage("sha256:0123")), root, [root, other])
    lines, variable, *_ = (one.commands for one in told[id(root)].remedies)
    assert lines == (
        "RUN python3 -m pip install 'numpy<2'",
        "docker build -t fixed:1 .",
        "tfdoctor verify fixed:1",
    )
    assert variable == ("env -u TF_XLA_FLAGS docker run --rm --gpus all -e TF_XLA_FLAGS sha256:0123",)


def test_another_release_is_another_image() -> None:
    found = commands(HOSTS[0].parent / "blackwell-with-tf218", "team/app:1")["TFD111"]
    built = "tfdoctor build --tf 2.21.0 --tag team/app:1-fixed"
    assert found == [(built, "tfdoctor verify team/app:1-fixed")]


def test_on_a_machine_nothing_changes() -> None:
    found = commands(HOSTS[0].parent / "hidden-by-empty", None)["TFD601"]
    assert found[0][0] == "unset CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("image", "new"),
    [
        ("app", "app:latest-fixed"),
        ("team/app:1", "team/app:1-fixed"),
        ("localhost:5000/team/app", "localhost:5000/team/app:latest-fixed"),
        ("app@sha256:" + "0" * 64, "fixed:1"),
        ("sha256:" + "0" * 64, "fixed:1"),
        ("0123456789ab", "fixed:1"),
    ],
)
def test_what_is_made_anew_gets_a_name_of_its_own(image: str, new: str) -> None:
    assert new_name(image) == new


def list_fixed(image: InImage, *steps: Step) -> list[tuple[str, ...]]:
    """The commands of each remedy of an error that these steps put right."""
    one = Remedy("Do it. The last line keeps it for each login.", ("…",), steps=steps)
    error = Finding("TFD203", Cause.LIBS_NOT_ON_PATH, Severity.ERROR, "", "", (), (one,))
    told = adapt_image_findings(Target(COMPAT, image=image), error, [error])[id(error)].remedies
    assert all("The last line" not in remedy.text for remedy in told)
    return [remedy.commands for remedy in told]


def test_lines_are_written_as_root_and_the_user_is_the_same_afterwards() -> None:
    lines, *_ = list_fixed(InImage("team/app:1", user="1000"), Install(("numpy<2",)))
    assert lines[:3] == ("USER root", "RUN python3 -m pip install 'numpy<2'", "USER 1000")


def test_a_search_path_gets_no_empty_entry_which_would_be_the_working_folder() -> None:
    lines, *_ = list_fixed(InImage("team/app:1"), Prepend("LD_LIBRARY_PATH", ("/a", "/b")))
    assert lines[0] == "ENV LD_LIBRARY_PATH=/a:/b${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"


@pytest.mark.parametrize("cause", [Cause.NOT_PERMITTED, Cause.NO_DRIVER])
def test_what_is_done_to_files_is_done_in_the_image(cause: Cause) -> None:
    remedy = Remedy("As root.", ("sudo chmod -R a+rX /opt/x", "tfdoctor check"), changes_system=True)
    error = Finding("TFD319", cause, Severity.ERROR, "", "", (), (remedy,))
    told = adapt_image_findings(Target(COMPAT, image=InImage("app:1", user="1000")), error, [error])[
        id(error)
    ].remedies
    assert told[0].commands[:3] == ("USER root", "RUN chmod -R a+rX /opt/x", "USER 1000")
    assert not any(line.startswith("sudo") for one in told for line in one.commands)


def test_a_variable_needs_no_root_and_is_given_to_one_container_too() -> None:
    lines, one, *_ = list_fixed(
        InImage("team/app:1", user="1000"), Export("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")
    )
    assert lines[:2] == (
        "ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "docker build -t team/app:1-fixed .",
    )
    assert one == ("docker run --rm --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility team/app:1",)


PODMAN = InImage("localhost/app:1", "podman", "--device nvidia.com/gpu=all", "1000")


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
def test_what_is_said_of_any_image_is_said_of_this_one(said: str, typed: str) -> None:
    error = Finding(
        "TFD401", Cause.CONTAINER_NO_GPU, Severity.ERROR, "", "", (), (Remedy("Do it.", (said,)),)
    )
    told = adapt_image_findings(Target(COMPAT, image=PODMAN), error, [error])[id(error)]
    assert [one.commands for one in told.remedies] == [(typed,)]


def test_an_image_that_keeps_nvml_out_is_put_right() -> None:
    """The image's own ENV says which parts of the driver come in: a line of its Dockerfile, or an option of `run`."""
    system = RecordedSystem(HOSTS[0].parent / "docker-without-utility")
    report = examine(system, COMPAT, image=PODMAN)
    first, second = (one.commands for one in report.findings[0].remedies)
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
def test_what_a_shell_would_export_is_given_to_the_container(said: str, typed: list[str]) -> None:
    """Also where the cause is the host's: no shell of the host comes into a container."""
    remedy = Remedy("Do it, for this shell only.", (said, "tfdoctor check"))
    error = Finding("TFD603", Cause.GPU_BUSY_OTHER_PROCESS, Severity.ERROR, "", "", (), (remedy,))
    (told,) = adapt_image_findings(Target(COMPAT, image=PODMAN), error, [error])[id(error)].remedies
    assert [line for line in told.commands if line != "tfdoctor verify localhost/app:1"] == typed


def test_a_file_outside_of_any_environment_is_the_images_own() -> None:
    """In an image without a virtual environment, packages are in a folder of the system."""
    path = "/usr/local/lib/python2.7/dist-packages/gpus.pth"
    line = f"import os; os.environ['{HIDE}'] = '-1'"
    facts = hidden(Origin(HIDE, "start", None, path, 1, line))
    here, image = (diagnose(facts, COMPAT, image=one).root for one in (None, InImage("team/app:1")))
    assert here is not None
    assert image is not None
    assert here.remedies[0].commands == ()
    assert image.remedies[0].commands[0].startswith("RUN sed -i '1")
    assert path in image.remedies[0].commands[0]


def test_no_tensorflow_is_installed_on_the_host_for_an_image_without_one() -> None:
    remedy = Remedy("Install it.", ("python3 -m venv tf", "tf/bin/pip install tensorflow"), replaces=True)
    error = Finding("TFD101", Cause.NO_DRIVER, Severity.ERROR, "", "", (), (remedy,))
    assert adapt_image_findings(Target(COMPAT, image=PODMAN), error, [error])[id(error)].remedies == ()


def test_podman_has_its_own_commands() -> None:
    image = InImage("localhost/app:1", "podman", "--device nvidia.com/gpu=all")
    lines, variable, *_ = list_fixed(image, Install(("numpy<2",)), Unset("TF_XLA_FLAGS"))
    assert "podman build -t localhost/app:1-fixed ." in lines
    assert variable == (
        "podman run --rm --device nvidia.com/gpu=all --unsetenv TF_XLA_FLAGS localhost/app:1",
    )
    assert start_of(image, "-it") == "podman run --rm --device nvidia.com/gpu=all -it localhost/app:1"
