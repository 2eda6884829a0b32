"""TFD119, card-switched-off."""

from __future__ import annotations

import shutil
import subprocess

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
