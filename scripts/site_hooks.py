"""The mkdocs hook that adds to the site what is no page (`hooks` in mkdocs.yml): the explorer, llms.txt and Markdown."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = "explorer.html"


def on_post_build(config: Any, **_: object) -> None:
    """Write the explorer, llms.txt and each page as Markdown. Raise CalledProcessError if the explorer fails."""
    site = Path(config["site_dir"])
    pages = list_pages(config["nav"])
    for _title, name in pages:
        target = site / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(config["docs_dir"]) / name, target)
    address = (config["site_url"] or "").rstrip("/")
    (site / "llms.txt").write_text(
        format_llms_txt(config["site_name"], config["site_description"], pages, address), encoding="utf-8"
    )
    installed = ROOT / ".venv-test" / "bin" / "tfdoctor"
    command = installed if installed.is_file() else ROOT / "scripts" / "tfdoctor"
    subprocess.run([str(command), "matrix", "--html", str(site / PAGE), "--force"], check=True)


def list_pages(nav: Any) -> list[tuple[str, str]]:
    """Return the title and the file of each page of the navigation."""
    pages = []
    for entry in nav:
        for title, value in entry.items():
            pages += [(title, value)] if isinstance(value, str) else list_pages(value)
    return pages


def format_llms_txt(name: str, description: str, pages: list[tuple[str, str]], address: str) -> str:
    """Return the content of llms.txt, a list of the pages for language models (llmstxt.org)."""
    links = [f"- [{title}]({address + '/' if address else ''}{file})" for title, file in pages]
    return f"# {name}\n\n> {description}\n\n## Pages\n\n" + "\n".join(links) + "\n"
