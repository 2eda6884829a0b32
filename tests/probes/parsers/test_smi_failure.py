"""Failures of nvidia-smi: its messages and its exit status."""

from __future__ import annotations

import pytest

from tfdoctor.probes.parsers.smi_failure import EXIT_STATUS_KINDS, parse_smi_failure, reports_missing_program

COULD_NOT_COMMUNICATE = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
    "NVIDIA driver is installed and running."
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (COULD_NOT_COMMUNICATE, "driver_not_communicating"),
        (
            COULD_NOT_COMMUNICATE.replace("'", "’").replace("with the", "with\n  the"),
            "driver_not_communicating",
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", "nvml_mismatch"),
        (
            "pynvml.NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch.",
            "nvml_mismatch",
        ),
        ("Failed to initialize NVML: Unknown Error", "nvml_unknown_error"),
        ("Failed to initialize NVML: Insufficient Permissions", "nvml_insufficient_permissions"),
        ("Failed to initialize NVML: GPU access blocked by the operating system", "nvml_access_blocked_os"),
        ("Failed to initialize NVML: Driver Not Loaded", "nvml_driver_not_loaded"),
        (
            "nvidia-container-cli: initialization error: nvml error: driver not loaded",
            "nvml_driver_not_loaded",
        ),
        ("Failed to initialize NVML: N/A", "nvml_na"),
        ("No devices were found", "no_devices"),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "libnvidia_ml_missing"),
        ("load library failed: libnvidia-ml.so.1: cannot open shared object file", "libnvidia_ml_missing"),
        (
            'exec: "nvidia-smi": executable file not found in $PATH: unknown',
            "executable_not_found_in_container",
        ),
        (
            r'caused "exec: \"nvidia-smi\": executable file not found in $PATH"',
            "executable_not_found_in_container",
        ),
        ("Error: crun: executable file `nvidia-smi` not found in $PATH", "executable_not_found_in_container"),
        (
            "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error",
            "device_handle_unknown_error",
        ),
        ("Unable to determine the device handle for gpu 0000:01:00.0: Not Found", "device_handle_not_found"),
        (
            "Unable to determine the device handle for GPU 0000:01:00.0: Some New Reason",
            "device_handle_error",
        ),
        ("-bash: nvidia-smi: command not found", "command_not_found"),
        ("sh: 1: nvidia-smi: not found", "command_not_found"),
        ("zsh: command not found: nvidia-smi", "command_not_found"),
        ("fish: Unknown command: nvidia-smi", "command_not_found"),
        ("'nvidia-smi' is not recognized as an internal or external command,", "command_not_found"),
        ("nvidia-smi : The term 'nvidia-smi' is not recognized as the name of a cmdlet", "command_not_found"),
        ("Command 'nvidia-smi' not found, but can be installed with:", "command_not_found"),
        ("/usr/bin/which: no nvidia-smi in (/usr/local/bin:/usr/bin)", "command_not_found"),
        ("bash: nvidia-smi: Kommando nicht gefunden.", "command_not_found"),
        ("bash: nvidia-smi : commande introuvable", "command_not_found"),
        ("bash: nvidia-smi: orden no encontrada", "command_not_found"),
        ("bash: nvidia-smi: 未找到命令", "command_not_found"),
        ("'nvidia-smi' 不是内部或外部命令，也不是可运行的程序", "command_not_found"),
        ("bash: nvidia-smi: команда не найдена", "command_not_found"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'nvidia-smi'", "command_not_found"),
        ("bash: nvcc: command not found", None),
        ("", None),
    ],
)
def test_failure_kinds(text: str, kind: str | None) -> None:
    assert parse_smi_failure(text).kind == kind


@pytest.mark.parametrize(
    "where", ["GPU 0000:C3:00.0", "GPU0: 0000:C3:00.0", "GPU0000:C3:00.0", "GPU00000:C3:00.0"]
)
def test_failure_names_the_gpu(where: str) -> None:
    failure = parse_smi_failure(
        f"Unable to determine the device handle for {where}: GPU is lost.  Reboot the system"
    )
    assert (failure.kind, failure.bus_id) == ("gpu_lost", "0000:C3:00.0")


def test_failure_details() -> None:
    failure = parse_smi_failure("""\
Failed to initialize NVML: Driver/library version mismatch
NVML library version: 999.144
nvidia-smi: exit status 18
Failed to properly shut down NVML: N/A
Cuda compilation tools, release 11.5, V11.5.119
""")
    assert (failure.kind, failure.also) == ("nvml_mismatch", ("nvml_shutdown_failed",))
    assert (failure.nvml_version, failure.exit_status) == ("999.144", 18)
    assert failure.nvcc_also_present


def test_first_failure_is_the_kind() -> None:
    text = (
        "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error\nNo devices were found\n"
    )
    failure = parse_smi_failure(text)
    assert (failure.kind, failure.also) == ("device_handle_unknown_error", ("no_devices",))


def test_exit_status_decides_only_without_a_message() -> None:
    assert parse_smi_failure("gibberish", exit_status=9).kind == EXIT_STATUS_KINDS[9]
    assert parse_smi_failure("No devices were found", exit_status=9).kind == "no_devices"
    assert parse_smi_failure("gibberish", exit_status=1).kind is None


def test_says_not_found_needs_the_program_on_the_line() -> None:
    assert reports_missing_program("bash: nvcc: command not found", "nvcc")
    assert not reports_missing_program("nvcc is here\nls: command not found", "nvcc")
