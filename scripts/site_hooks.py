"""The mkdocs hook that adds the explorer page to the site (`hooks` in mkdocs.yml)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = "explorer.html"


def on_post_build(config: Any, **_: object) -> None:
    """Write the explorer into the site. Raise CalledProcessError if that fails."""
    installed = ROOT / ".venv-test" / "bin" / "tfdoctor"
    command = installed if installed.is_file() else ROOT / "scripts" / "tfdoctor"
    target = Path(config["site_dir"]) / PAGE
    subprocess.run([str(command), "matrix", "--html", str(target), "--force"], check=True)
