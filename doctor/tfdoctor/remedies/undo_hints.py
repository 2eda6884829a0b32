"""Hints about how to undo the commands of a remedy, or that the commands change nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfdoctor.core.causes.steps import Remedy

__all__ = ["READ_ONLY_TEXT", "describe_root", "describe_undo", "describe_undo_with_root_note", "needs_root"]

READ_ONLY_TEXT = "Read-only."
"""The hint for a remedy whose commands change nothing."""
_REMOVE_FOLDER = "Undo: remove the new folder; nothing else changes."
_PACKAGE_MANAGER = "To undo it, use the same package manager."
_UNTIL_RESTART = "It lasts until the machine restarts."
_UNDO_HINTS: tuple[tuple[str, str], ...] = (
    (r"tfdoctor fix\b", "It asks first; --undo reverts everything."),
    (r"tfdoctor build\b", "Undo: remove the image (`docker rmi`)."),
    (r"wsl(?:\.exe)? --install", "Undo: `wsl --unregister` with the name of the new Linux."),
    (r"tfdoctor install|python\S* -m venv|\S+/python\S* -m venv|conda create", _REMOVE_FOLDER),
    (r"docker run|srun|salloc|apptainer exec", "It changes nothing on this machine."),
    (r"docker restart", "What runs in the container ends; its files stay."),
    (r"nvidia-smi .*(?:-r\b|--gpu-reset)", "This cannot be undone: what the card's memory holds is lost."),
    (r"nvidia-uninstall", "Undo: run NVIDIA's installer again."),
    (r"kubectl set env", "Undo: the command with a hyphen in place of the `=` and its value."),
    (r"docker context use", "Undo: the same command with the old context."),
    (r"kill|fuser -k", "This cannot be undone: what the program has not saved is lost."),
    (r"\S*python\S* -m pip|\S*pip3? ", "To undo it later, save `pip freeze` first."),
    (r"conda install|conda remove", "Undo: `conda install --revision N` (`conda list --revisions`)."),
    (r"winget install", "Undo: `winget uninstall` with the same name."),
    (r"sed -i\.bak", "Undo: put the .bak file back."),
    (r"prime-select|envycontrol|supergfxctl|system76-power", "Undo: with the same tool."),
    (r"(?:apt-get|apt|dnf|yum|zypper|pacman|snap|ubuntu-drivers|dkms)\b", _PACKAGE_MANAGER),
    (r"nvidia-ctk cdi generate", "Undo: remove the file that it wrote."),
    (r"nvidia-ctk (?:config|runtime)", "Undo: set the old value again; nvidia-ctk changes one file."),
    (r"tee (?:-a )?/(?!sys/|proc/|dev/)", "Undo: remove the file that it wrote."),
    (r"mv ", "Undo: move it back."),
    (r"ln ", "Undo: remove the link."),
    (r"chmod|chown", "Undo: set the old permissions again (`ls -l` shows them before)."),
    (r"usermod|gpasswd|newgrp", "Undo: remove the user from the group again (`gpasswd -d`)."),
    (r"systemctl (?:--user )?enable", "Undo: `systemctl disable --now` with the same name."),
    (
        r"systemctl|service|snap restart",
        "This interrupts programs that use the service; there is nothing to undo.",
    ),
    (r"update-grub|grub2?-mkconfig|update-initramfs|dracut|mkinitcpio", "Undo: set the old line again."),
    (
        r"(?:tee /sys/|modprobe|rmmod|nvidia-modprobe|nvidia-smi .*(?:-c |-cgi|-pm|-mig))",
        _UNTIL_RESTART,
    ),
    (
        r"export|unset|\$env:|Remove-Item Env:|deactivate|conda activate|conda deactivate|\. |source |module ",
        "It applies to this shell only.",
    ),
    (
        r"reboot|poweroff|shutdown|wsl(?:\.exe)? --shutdown",
        "A restart changes no setting; save your work first.",
    ),
)
"""The hint for each pattern of a command, or of a part of a pipeline. The first match is used."""
_READ_ONLY_COMMAND = re.compile(
    r"(?:time )?(?:tfdoctor (?:check|explain|recommend|matrix|diagnose|verify)|tail|head|cat|ls|ldd|grep|namei|findmnt|"
    r"type|file|stat|dmesg|journalctl|lspci|lsof|fuser -v|scontrol|sinfo|"
    r"kubectl (?:describe|get|logs)|nvidia-container-cli |nvidia-smi(?! .*(?:-c |-cgi|-pm|-r\b|--gpu-reset))|"
    r"docker (?:info|logs|context ls)|conda (?:env )?list|python3 -m json\.tool|dpkg -S|snap logs|nvcc|id\b|ps\b|"
    r"systemctl status|nvidia-ctk cdi list|wsl(?:\.exe)? --version|\S*python\S* (?:-S )?-c |ulimit|env\b|where\.exe |"
    r"\$env:\w+$|echo [^|>]*$)"
)
"""Commands that change nothing."""
_WINDOWS_TEXT = re.compile(r"\bWindows\b|\bwsl\b")
"""Words of a remedy that is applied in Windows, which has no root."""
_DOCKER_COMMAND = re.compile(r"docker |tfdoctor build\b")
_QUOTED_TEXT = re.compile(r"'[^']*'|\"[^\"]*\"")
_COMMAND_START = re.compile(r"(?:^|\||&&|;)\s*(?:sudo (?:-\S+ )*)?")
"""The text before a command: the start of the line or a shell operator, with sudo if it is used."""


def describe_undo(remedy: Remedy) -> str:
    """Return the hint for the first known command that changes something.

    Return `READ_ONLY_TEXT` if no command changes anything. Return "" if there are no commands, or if no pattern
    matches a command that changes something.
    """
    if not remedy.commands:
        return ""
    unquoted = [_QUOTED_TEXT.sub("''", command) for command in remedy.commands]
    parts = [part.strip() for command in unquoted for part in _COMMAND_START.split(command) if part.strip()]
    if all(_READ_ONLY_COMMAND.match(part) for part in parts):
        return READ_ONLY_TEXT
    changing_parts = [part for part in parts if not _READ_ONLY_COMMAND.match(part)]
    return next(
        (hint for pattern, hint in _UNDO_HINTS for part in changing_parts if re.match(pattern, part)), ""
    )


def needs_root(remedy: Remedy) -> bool:
    """Return whether the remedy changes the system or uses sudo."""
    return remedy.changes_system or any("sudo " in command for command in remedy.commands)


def describe_root(remedy: Remedy) -> str:
    """Return the advice for a user without root. Commands that change nothing need none, even if the remedy does."""
    subject = "this needs" if describe_undo(remedy) == READ_ONLY_TEXT else "these commands need"
    rights = "their rights" if _WINDOWS_TEXT.search(" ".join((remedy.text, *remedy.commands))) else "root"
    return f"Send this to your administrator: {subject} {rights}."


def describe_undo_with_root_note(remedy: Remedy) -> str:
    """Return the hint of `describe_undo`, with a note if root is not needed; "" if there is no hint."""
    hint = describe_undo(remedy)
    if not hint or needs_root(remedy):
        return hint
    uses_docker = any(_DOCKER_COMMAND.match(command) for command in remedy.commands)
    return f"No root needed{' where you may use Docker' if uses_docker else ''}. {hint}"
