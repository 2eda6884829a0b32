"""The remedies of log reports, for every era and with the values that the log names."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import Any

import pytest

from tfdoctor.cli.machine import select_host
from tfdoctor.compat import Compat
from tfdoctor.core import versions
from tfdoctor.core.findings import Cause
from tfdoctor.logs import advice
from tfdoctor.logs.report import LogReport, diagnose_log
from tfdoctor.planning import Method, Request, recommend
from tfdoctor.prediction.fit.models import Host
from tfdoctor.remedies.engine import list_configure_commands, make_toolkit_remedy
from tfdoctor.remedies.undo_hints import describe_root

COMPAT = Compat.load()
MINORS = sorted({release.minor for release in COMPAT.releases if release.gpu and not release.is_prerelease})
SKIPPED = "Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above\n"
SKIPPED += "Skipping registering GPU devices...\n"


def make_report(text: str) -> LogReport:
    return diagnose_log([text.encode()], COMPAT)


def list_commands(report: LogReport) -> list[str]:
    assert report.root_finding is not None
    return [command for remedy in report.root_finding.remedies for command in remedy.commands]


def make_report_of(minor: str, cuda: str = "") -> LogReport:
    """Return the report for a log of this release whose CUDA runtime and cuDNN are missing."""
    release = next(
        candidate for candidate in reversed(COMPAT.releases) if candidate.minor == minor and candidate.gpu
    )
    names = [name for name in release.required_libraries if "cudart" in name or "cudnn" in name]
    path = f"; LD_LIBRARY_PATH: /usr/local/cuda-{cuda}/lib64" if cuda else ""
    failures = [
        f"Could not load dynamic library '{lib}'; dlerror: {lib}: cannot open shared object file: No such file or "
        f"directory{path}"
        for lib in names
    ]
    return make_report("\n".join([f"TensorFlow version: {release.version}", *failures, SKIPPED]))


@pytest.mark.few(3)
@pytest.mark.parametrize("minor", MINORS)
def test_suggested_commands_are_feasible_in_every_era(minor: str) -> None:
    """The planner finds an installation for each suggested command."""
    suggested = list_commands(make_report_of(minor))
    assert "tfdoctor check" in suggested
    plans = [
        shlex.split(command)
        for command in suggested
        if command.startswith(("tfdoctor install", "tfdoctor build"))
    ]
    for arguments in plans:
        method = Method.PIP if arguments[1] == "install" else Method.CONTAINER
        tensorflow = arguments[arguments.index("--tf") + 1]
        assert tensorflow.startswith(minor)
        assert recommend(COMPAT, Request(tensorflow=tensorflow, method=method), Host()).conflict is None, (
            arguments
        )
    if recommend(COMPAT, Request(tensorflow=minor, method=Method.CONTAINER), Host()).conflict is None:
        assert any(arguments[1] == "build" for arguments in plans)


@pytest.mark.parametrize(
    ("version", "image"),
    [("2.12.0", "2.12.0-gpu"), ("1.14.0", "1.14.0-gpu-py3"), ("2.19.0", "2.17.0-gpu"), ("", "2.17.0-gpu")],
)
def test_apptainer_runs_an_official_image_that_finds_its_libraries(version: str, image: str) -> None:
    line = "ImportError: /lib64/libm.so.6: version `GLIBC_2.27' not found (required by /env/_pywrap_tensorflow_internal.so)"
    report = make_report(f"TensorFlow version: {version}\n{line}" if version else line)
    commands = [command for command in list_commands(report) if command.startswith("apptainer ")]
    assert commands == [f"apptainer exec --nv docker://tensorflow/tensorflow:{image} python3 train.py"]


def test_explanation_names_both_cudnn_versions() -> None:
    report = make_report("Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0.\n")
    assert report.root_finding is not None
    assert "cuDNN 9.1.0 was loaded; TensorFlow was built with 9.3.0." in report.root_finding.explanation


@pytest.mark.parametrize(
    ("built", "package"),
    [
        ("8.1.0", "'nvidia-cudnn-cu11>=8.1,<9'"),
        ("9.3.0", "'nvidia-cudnn-cu12>=9.3,<10'"),
        ("7.6.0", ""),
        ("8.4.0", ""),
    ],
)
def test_cudnn_package_is_for_the_cuda_of_the_releases_with_this_cudnn(built: str, package: str) -> None:
    """No package is named if none exists, or if no release was built with this cuDNN."""
    loaded = f"{built[0]}.0.5"
    report = make_report(f"Loaded runtime CuDNN library: {loaded} but source was compiled with: {built}.\n")
    commands = [command for command in list_commands(report) if "cudnn" in command]
    assert commands[:1] == ([f"python3 -m pip install {package}"] if package else [])
    # releases before 2.14 do not search the folder of the wheel
    assert ["export LD_LIBRARY_PATH=" in command for command in commands[1:]] == (
        [True] if built == "8.1.0" else []
    )


@pytest.mark.parametrize(
    ("driver", "expected"),
    [("", ("525.60.13 or newer", None)), ("470.223.2", ("525.60.13 or newer", "2.14.1"))],
)
def test_old_driver_leads_to_the_driver_and_the_release_that_fit(
    driver: str, expected: tuple[str, str | None]
) -> None:
    line = f"kernel reported version is: {driver}.0\n" if driver else ""
    failure = "InternalError: cudaGetDevice() failed. Status: CUDA driver version is insufficient for CUDA runtime version"
    report = make_report(f"TensorFlow version: 2.16.1\n{line}{failure}\n")
    assert report.root_finding is not None
    newer_driver, *others = report.root_finding.remedies
    assert expected[0] in newer_driver.text
    assert newer_driver.changes_system
    assert describe_root(newer_driver).endswith(": this needs root.")
    assert [f"TensorFlow {expected[1]}," in remedy.text for remedy in others] == (
        [True] if expected[1] else []
    )


@pytest.mark.parametrize("minor", ["2.11", "2.15"])
def test_new_environment_has_the_cuda_that_install_plans(minor: str) -> None:
    root = make_report_of(minor).root_finding
    assert root is not None
    text = next(remedy.text for remedy in root.remedies if "new environment" in remedy.text)
    plan = recommend(COMPAT, Request(tensorflow=minor, method=Method.PIP), Host()).options[0]
    assert plan.cuda is not None
    assert text.endswith(f"and CUDA {versions.major_minor(plan.cuda)}.")


def test_unlisted_libraries_lead_to_check_and_install() -> None:
    report, release = make_report(f"TensorFlow version: 2.20.0\n{SKIPPED}"), "2.20.0"
    assert report.cause is Cause.LIBS_UNLISTED
    suggested = list_commands(report)
    assert suggested[0] == "tfdoctor check"
    assert f"tfdoctor install --tf {release}" in suggested
    assert any(command.startswith("tfdoctor run ") for command in suggested)
    assert report.root_finding is not None
    assert "plain `pip install tensorflow`" in report.root_finding.explanation
    assert "did not use the GPU" in report.headline


def test_wrong_cuda_is_named_with_the_required_one() -> None:
    report = make_report_of("2.3", "10.0")
    assert report.cause is Cause.LIBS_WRONG_VERSION
    assert "CUDA 10.0 is installed, but it needs CUDA 10.1" in report.headline
    assert report.root_finding is not None
    assert "CUDA 10.0 is on LD_LIBRARY_PATH, but CUDA 10.1 is needed." in report.root_finding.explanation


def test_command_names_the_gpu_of_the_log() -> None:
    card = "pciBusID: 0000:01:00.0 name: GeForce RTX 2070 computeCapability: 7.5\n"
    missing = (
        "Could not load dynamic library 'libcudart.so.10.1'; dlerror: libcudart.so.10.1: cannot open shared "
    )
    report = make_report(f"{card}{missing}object file: No such file or directory\n{SKIPPED}")
    assert "tfdoctor recommend --gpu 'GeForce RTX 2070'" in list_commands(report)


def test_unknown_gpu_name_is_not_in_commands() -> None:
    card = "pciBusID: 0000:01:00.0 name: $(reboot) computeCapability: 7.5\n"
    assert not any("reboot" in command for command in list_commands(make_report(f"{card}{SKIPPED}")))


# --- values from the log in the commands ---

FOUND = (
    "I tensorflow/core/common_runtime/gpu/gpu_device.cc:1640] Found device 0 with properties:\n"
    "name: {card} major: {cc}\n"
)
MISSING = (
    "I tensorflow/stream_executor/platform/default/dso_loader.cc:53] Could not dlopen library 'libcudart.so.10.0'; "
    "dlerror: libcudart.so.10.0: cannot open shared object file: No such file or directory; LD_LIBRARY_PATH: {path}\n"
    "W tensorflow/core/common_runtime/gpu/gpu_device.cc:1663] Cannot dlopen some GPU libraries. Skipping registering "
    "GPU devices...\n"
)
DRIVER = "I tensorflow/stream_executor/cuda/cuda_diagnostics.cc:204] kernel reported version is: {version}\n"


def list_commands_for(text: str) -> list[str]:
    return list_commands(make_report(text))


@pytest.mark.parametrize(
    ("card", "cc", "driver", "wanted"),
    [
        ("Tesla M60", "5 minor: 2", "", "tfdoctor build --tf 1.14 --gpu 'Tesla M60'"),
        (
            "Tesla M60",
            "5 minor: 2",
            "440.100.0",
            "tfdoctor build --tf 1.14 --gpu 'Tesla M60' --driver 440.100",
        ),
        # CUDA 10.0 does not support this card, or the driver does not support CUDA 10.0: the planner has to choose
        ("GeForce RTX 3090", "8 minor: 6", "", "tfdoctor recommend --gpu 'GeForce RTX 3090' --tf 1.14"),
        (
            "Tesla M60",
            "5 minor: 2",
            "384.183.0",
            "tfdoctor recommend --gpu 'Tesla M60' --driver 384.183 --tf 1.14",
        ),
        ("A card of nobody", "5 minor: 2", "", "tfdoctor build --tf 1.14"),
    ],
)
def test_commands_name_the_gpu_and_driver_of_the_log(card: str, cc: str, driver: str, wanted: str) -> None:
    text = FOUND.format(card=card, cc=cc) + (DRIVER.format(version=driver) if driver else "")
    suggested = list_commands_for(text + MISSING.format(path="/opt/x"))
    assert wanted in suggested
    assert ("tfdoctor build" in wanted) == any("tfdoctor build" in command for command in suggested)
    if "--gpu" in wanted and "build" in wanted:
        host = select_host(COMPAT, gpus=[card], driver=driver or None, recording_path=None)
        assert recommend(COMPAT, Request("1.14", method=Method.CONTAINER), host).conflict is None


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("/usr/local/cuda-10.1/lib64:/opt/x", "/usr/local/cuda-10.0/lib64"),
        ("/opt/x:/srv/cuda-9.0/targets/x86_64-linux/lib/", "/srv/cuda-10.0/targets/x86_64-linux/lib"),
        ("/usr/local/cuda/lib64", None),
        ("/usr/local/cuda-10.0/lib64", None),
        ("/opt/cuda-10.1 of $(touch x)/lib64", None),
    ],
)
def test_required_cuda_is_expected_beside_the_searched_one(path: str, there: str | None) -> None:
    suggested = list_commands_for(MISSING.format(path=path))
    assignments = [command for command in suggested if command.startswith("CUDA=")]
    assert assignments == ([f"CUDA={there}"] if there else [])
    if there:
        assert f"ls {there}" in suggested
        assert 'export LD_LIBRARY_PATH="$CUDA${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"' in suggested


def test_old_driver_leads_to_recommend() -> None:
    suggested = list_commands_for(
        FOUND.format(card="Tesla M60", cc="5 minor: 2")
        + DRIVER.format(version="384.183.0")
        + "Status: CUDA driver version is insufficient for CUDA runtime version\n"
    )
    assert "tfdoctor recommend --gpu 'Tesla M60' --driver 384.183" in suggested


def test_cupti_folder_belongs_to_the_cuda_of_the_log() -> None:
    log = (
        "W tensorflow/stream_executor/platform/default/dso_loader.cc:59] Could not load dynamic library "
        "'libcupti.so.10.1'; dlerror: libcupti.so.10.1: cannot open shared object file: No such file or directory; "
        "LD_LIBRARY_PATH: /usr/local/cuda-10.1/lib64\n"
        "E tensorflow/core/profiler/internal/gpu/cupti_tracer.cc:1408] function cupti_interface_->Subscribe( "
        "&subscriber_, (CUpti_CallbackFunc)ApiCallback, this)failed with error CUPTI could not be loaded or symbol "
        "could not be found.\n"
    )
    assert "CUPTI=/usr/local/cuda-10.1/extras/CUPTI/lib64" in list_commands_for(log)
    assert "CUPTI=/usr/local/cuda/extras/CUPTI/lib64" in list_commands_for(
        log.replace("/usr/local/cuda-10.1/lib64", "/x")
    )


def test_stubs_folder_is_removed_from_the_search_path() -> None:
    log = (
        MISSING.format(path="/usr/local/cuda/lib64/stubs:/opt/x").replace("libcudart.so.10.0", "libcuda.so.1")
        + 'libcuda reported version is: Invalid argument: form for driver version; got "1"\n'
        + "failed call to cuInit: CUDA_ERROR_STUB_LIBRARY: CUDA driver is a stub library\n"
    )
    assert "export LD_LIBRARY_PATH=/opt/x" in list_commands_for(log)


def test_toolkit_is_installed_as_check_says() -> None:
    line = "docker: Error response from daemon: could not select device driver with capabilities: [[gpu]].\n"
    report = diagnose_log([line.encode()], Compat.load())
    assert report.root_finding is not None
    assert make_toolkit_remedy(list_configure_commands("sudo ")) in report.root_finding.remedies


@pytest.mark.parametrize("built", [".5.1", "..1", "5110", "9.3.0"])
def test_a_version_of_cudnn_gives_a_requirement(built: str) -> None:
    """`.5.1` is no version: then there is no command for it."""
    commands = list_commands(
        make_report(f"Loaded runtime CuDNN library: 9.1.0 but source was compiled with: {built}\n")
    )
    installed = [command for command in commands if "pip install" in command]
    assert installed == (["python3 -m pip install 'nvidia-cudnn-cu12>=9.3,<10'"] if built == "9.3.0" else [])


@pytest.mark.parametrize(
    ("line", "folder"),
    [
        ("/opt/miniforge3/envs/tf-1/lib/python3.11/site-packages", "/opt/miniforge3/envs/tf-1"),
        ("CONDA_DEFAULT_ENV=tf", "$CONDA_PREFIX"),
    ],
)
def test_folder_of_the_conda_environment_is_named(line: str, folder: str) -> None:
    report = make_report(f"{line}\nlibdevice not found at ./libdevice.10.bc\n")
    assert f"export XLA_FLAGS=--xla_gpu_cuda_data_dir={folder}" in list_commands(report)


@pytest.mark.parametrize(
    ("gpu", "version", "era", "basis", "cudnn", "text", "command"),
    [
        (True, "2.10.1", "2.10", "", "8.1", "TensorFlow 2.10.1 needs CUDA 11.2 and cuDNN 8.1.", "--tf 2.10.1"),
        (True, "2.10.1", None, "", None, "TensorFlow 2.10.1 needs CUDA 11.2.", "--tf 2.10.1"),
        (True, None, "2.10", "lines", None, "2.10 needs CUDA 11.2 (the release was deduced from the lines", "--tf 2.10"),
        (True, None, "2.10", "names", None, "2.10 needs CUDA 11.2 (the release was deduced from the names", "--tf 2.10"),
        (True, None, "2.9-2.10", "lines", None, "See what each release needs.", ""),
        (True, None, None, "lines", None, "See what each release needs.", ""),
        (False, "2.10.1", "2.10", "", None, "See what each release needs.", ""),
    ],
)  # fmt: skip
def test_requirements_of_the_release_are_named_if_it_is_known(
    gpu: bool, version: str | None, era: str | None, basis: str, cudnn: str | None, text: str, command: str
) -> None:
    release: Any = SimpleNamespace(gpu=gpu, minor="2.10", cuda="11.2", cudnn=cudnn)
    context: Any = SimpleNamespace(origin=SimpleNamespace(era=era, basis=basis))
    (remedy,) = advice._make_requirement_remedy(context, release, version)
    assert text in remedy.text
    assert remedy.commands == (f"tfdoctor matrix {command}".strip(),)


def test_path_of_windows_beside_linux_libraries_is_no_windows() -> None:
    report = make_report(
        "TensorFlow version: 1.14.0\n"
        "I tensorflow/stream_executor/platform/default/dso_loader.cc:53] Could not dlopen library 'libcudart.so.10.0'; "
        "dlerror: libcudart.so.10.0: cannot open shared object file: No such file or directory; LD_LIBRARY_PATH: "
        "/usr/local/cuda-10.1/lib64\n" + SKIPPED + "![](E:\\blog\\posts\\picture.png)\n"
    )
    assert report.cause is Cause.LIBS_WRONG_VERSION
    assert list_commands(report)[0] == "tfdoctor build --tf 1.14.0"
    assert not any("$env:" in command for command in list_commands(report))
