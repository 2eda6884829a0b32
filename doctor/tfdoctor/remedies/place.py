"""Places in which a user types the commands of a remedy, and the commands that fit there."""

from __future__ import annotations

import enum
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core.text import lower_first

if TYPE_CHECKING:
    from collections.abc import Collection

    from tfdoctor.core.causes.steps import Remedy

__all__ = ["Place", "fit_remedy"]


class Place(str, enum.Enum):
    """A kind of place. Its value is the signature that shows it in a log."""

    WINDOWS = "windows-hint"
    WSL = "wsl-hint"
    MAC = "mac-hint"
    CONTAINER = "container-hint"
    COMPOSE = "compose-hint"
    APPTAINER = "apptainer-hint"
    POD = "pod-hint"
    LXC = "lxc-hint"
    SLURM = "slurm-hint"
    COLAB = "colab-hint"
    KAGGLE = "kaggle-hint"
    SAGEMAKER = "sagemaker-hint"
    CONDA = "conda-hint"
    NIX = "nix-hint"
    SNAP = "snap-hint"
    NODE = "node-hint"
    R = "r-hint"
    JETSON = "jetson-hint"


NOTEBOOK_SERVICES = frozenset({Place.COLAB, Place.KAGGLE, Place.SAGEMAKER})
"""Places in which the user has a notebook and no access to the machine."""
_ADMINISTRATION = r"\bsudo\b|\b(?:apt|apt-get|dnf|zypper|modprobe|rmmod|dmesg|dkms|systemctl|mokutil|prime-select|nvidia-ctk)\b"
_ENGINES = r"^(?:docker|podman|nvidia-container-cli|kubectl|printf .*\| docker)\b"
_UNIX_PROGRAMS = (
    r"^(?:[A-Z_]+=\S* |cd |ls |cat |free |ulimit |df |which |grep |findmnt |ldconfig |file |nix |apptainer |nvidia-ctk )"
    r"|\| ?(?:grep|head|tail)\b|\$\("
)
_LINUX_WHEELS = r"pip install (?:--\S+ )*'?nvidia-|\bnvidia\.cuda_"
_ABSENT_COMMANDS = (
    (frozenset({Place.WINDOWS}), re.compile(f"{_ADMINISTRATION}|{_UNIX_PROGRAMS}|{_LINUX_WHEELS}")),
    (
        frozenset({Place.MAC}),
        re.compile(rf"{_ADMINISTRATION}|\b(?:nvidia-smi|ldconfig|apptainer)\b|{_LINUX_WHEELS}"),
    ),
    (NOTEBOOK_SERVICES, re.compile(f"{_ADMINISTRATION}|{_ENGINES}|^apptainer ")),
    (frozenset({Place.POD}), re.compile(r"^(?:docker|podman)\b")),
)
"""Commands that a place does not have."""
_COMMANDS_FOR_LINUX = re.compile(r"^tfdoctor (?:check|fix|run|verify|install|build|capture|report)\b")
"""Commands of tfdoctor that need the machine, which they can examine on Linux and in WSL only."""
_HOST_COMMANDS = re.compile(
    r"^sudo (?!apt install libcuda1)|^docker |^nvidia-container-cli |^dkms |\bnvidia-ctk "
)
"""Commands that someone in a container types on its host."""


def fit_remedy(remedy: Remedy, places: Collection[Place]) -> Remedy | None:
    """Return the remedy with the commands that its user can type, or None if none of its commands is left."""
    is_windows = Place.WINDOWS in places and Place.WSL not in places
    present = frozenset(places) - (frozenset() if is_windows else {Place.WINDOWS})
    commands = tuple(
        _translate_for_windows(command) if is_windows else command
        for command in remedy.commands
        if not any(present & where and absent.search(command) for where, absent in _ABSENT_COMMANDS)
        and not (is_windows and "WSL" not in remedy.text and _COMMANDS_FOR_LINUX.match(command))
    )
    if remedy.commands and not commands:
        return None
    text = remedy.text
    is_in_container = present & {Place.CONTAINER, Place.APPTAINER, Place.POD}
    if (
        is_in_container
        and "host" not in text
        and "node" not in text
        and any(map(_HOST_COMMANDS.search, commands))
    ):
        text = f"On the host: {lower_first(text)}"
    return replace(remedy, text=text, commands=commands)


def _translate_for_windows(command: str) -> str:
    """Return the command in the notation of PowerShell."""
    if match := re.search(r"^export (\w+)=[\"']?([^\"']*)[\"']?$", command):
        return f"$env:{match[1]} = '{match[2]}'"
    if match := re.search(r"^unset (\w+)$", command):
        return f"Remove-Item Env:{match[1]}"
    command = re.sub(r"^python(3\.\d{1,2}) ", r"py -\1 ", command)
    command = re.sub(r"(?:^|(?<= ))python3(?= )", "python", command)
    return command.replace("'", '"') if '"' not in command else command
