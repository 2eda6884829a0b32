"""TFD119, card-switched-off."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess

import pytest

from rules.kernel_facts import load_facts, make_report
from tfdoctor.core.facts import Known, value_of
from tfdoctor.rules import card_switched_off


def test_blacklist_lines_become_comments() -> None:
    conf = "# mine\nblacklist nvidia\n\talias  nvidia off\noptions nvidia NVreg_X=1\nblacklist nouveau\n"
    done = subprocess.run(
        [shutil.which("sed") or "sed", "-E", card_switched_off.COMMENT_OUT_SCRIPT],
        input=conf,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "# mine",
        "# blacklist nvidia",
        "# \talias  nvidia off",
        "options nvidia NVreg_X=1",
        "blacklist nouveau",
    ]


@pytest.mark.parametrize(
    ("path", "typed"),
    [
        ("/etc/modprobe.d/blacklist-nvidia.conf", "sudo envycontrol -s hybrid"),
        ("/etc/modprobe.d/supergfxd.conf", "sudo supergfxctl -m Hybrid"),
        ("/etc/modprobe.d/mine.conf", "sudo sed -i.bak -E "),
        ("/proc/cmdline", "sudo vi /etc/default/grub"),
    ],
)
def test_commands_for_a_blacklisted_module(path: str, typed: str) -> None:
    facts = load_facts("module-blacklisted")
    files = value_of(facts.kernel.modules)
    assert files is not None
    modules = Known(dataclasses.replace(files, blocked=((path, "blacklist nvidia"),)), path)
    report = make_report(
        dataclasses.replace(facts, kernel=dataclasses.replace(facts.kernel, modules=modules))
    )
    assert report.root_finding is not None
    remedy = report.root_finding.remedies[0]
    assert remedy.commands[0].startswith(typed)
    assert remedy.commands[-1] == "sudo reboot"
    assert remedy.changes_system
