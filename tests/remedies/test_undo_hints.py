"""Hints on what a remedy changes, how to undo it, and which rights that needs."""

from __future__ import annotations

import pytest

from tfdoctor.core.causes.steps import Remedy
from tfdoctor.remedies.undo_hints import (
    READ_ONLY_TEXT,
    describe_root,
    describe_undo,
    describe_undo_with_root_note,
    needs_root,
)


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        (("nvidia-smi", "tfdoctor check"), READ_ONLY_TEXT),
        (("sudo dmesg | grep -i -E 'nvrm|nvidia|xid' | tail -n 40",), READ_ONLY_TEXT),
        (("/env/bin/python -c 'import sys; print(sys.version)'",), READ_ONLY_TEXT),
        (("sudo nvidia-smi --gpu-reset -i 0",), "cannot be undone"),
        (("kill 4242",), "cannot be undone"),
        (("export CUDA_VISIBLE_DEVICES=0",), "this shell"),
        (("echo /usr/lib/x | sudo tee /etc/ld.so.conf.d/x.conf", "sudo ldconfig"), "remove the file"),
        (("echo 0000:01:00.0 | sudo tee /sys/bus/pci/drivers/nvidia/bind",), "until the machine restarts"),
        (("sudo apt-get update", "sudo apt-get install nvidia-driver", "sudo reboot"), "package manager"),
        (("cat /a.pth", "mv /a.pth /a.pth.aside"), "move it back"),
        (("/srv/tf/bin/python -m venv tf-env", "tf-env/bin/python -m pip install x"), "new folder"),
        (("/srv/tf/bin/python -m pip install x",), "pip freeze"),
        (("sudo sed -i.bak -E 's/a/# &/' /etc/modprobe.d/x.conf", "sudo reboot"), ".bak"),
        (("tfdoctor check", "tfdoctor fix"), "--undo reverts everything"),
        (("tfdoctor build --tf 2.15",), "docker rmi"),
        ((), ""),
        (("where.exe cudart64_*.dll", "$env:Path"), READ_ONLY_TEXT),
        (("$env:TF_CPP_MIN_LOG_LEVEL = '0'",), "this shell"),
        (("wsl --install", "tfdoctor install"), "wsl --unregister"),
        (("a-program-of-tomorrow --now",), ""),
    ],
)
def test_undo_hint_of_commands(commands: tuple[str, ...], expected: str) -> None:
    hint = describe_undo(Remedy("Do it.", commands))
    assert expected in hint
    assert bool(hint) == bool(expected)


@pytest.mark.parametrize(
    ("text", "command", "ending"),
    [
        ("Load it.", "sudo modprobe nvidia", "these commands need root."),
        ("Install a newer driver.", "nvidia-smi", "this needs root."),
        ("Install WSL 2.", "wsl --install", "these commands need their rights."),
    ],
)
def test_advice_for_a_user_without_root(text: str, command: str, ending: str) -> None:
    hint = describe_root(Remedy(text, (command,), changes_system=True))
    assert hint == f"Send this to your administrator: {ending}"


@pytest.mark.parametrize(
    ("command", "begins"),
    [
        ("tfdoctor check", "No root needed. Read-only"),
        ("docker run --rm --gpus all IMAGE nvidia-smi", "No root needed where you may use Docker. "),
        ("tfdoctor build --tf 2.15", "No root needed where you may use Docker. "),
        ("srun --gres=gpu:1 python3 train.py", "No root needed. It changes nothing on this machine."),
        (
            "apptainer exec --nv docker://tensorflow/tensorflow:2.17.0-gpu python3 train.py",
            "No root needed. It changes nothing on this machine.",
        ),
        ("sudo reboot", "A restart changes no setting"),
        ("a-program-of-tomorrow --now", ""),
    ],
)
def test_rights_needed_for_commands(command: str, begins: str) -> None:
    remedy = Remedy("Do it.", (command,))
    assert describe_undo_with_root_note(remedy).startswith(begins)
    assert bool(describe_undo_with_root_note(remedy)) == bool(begins)
    assert needs_root(remedy) == command.startswith("sudo ")
    assert needs_root(Remedy("Update the driver.", changes_system=True))
