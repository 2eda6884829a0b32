"""The mkdocs hooks (`hooks` in mkdocs.yml) that add generated pages, the explorer, llms.txt and Markdown."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv-test" / "bin" / "python"
PAGE = "explorer.html"


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each known message and each command. Raise CalledProcessError if they cannot be written."""
    from mkdocs.structure.files import File  # absent where only the functions below are used

    for name, content in render_generated_pages().items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Link the commands in the table of all commands to their pages, which only the site has."""
    if page.file.src_uri != "commands.md":
        return markdown
    return re.sub(r"(?m)^\| (`tfdoctor ([a-z]+)[^|]*`) \|", r"| [\1](commands/\2.md) |", markdown)


def on_post_build(config: Any, **_: object) -> None:
    """Write the explorer, llms.txt and each page as Markdown. Raise CalledProcessError if the explorer fails."""
    site = Path(config["site_dir"])
    pages = list_pages(config["nav"])
    for name, content in render_generated_pages().items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(content, encoding="utf-8")
    for _title, name in pages:
        if name.startswith("messages/"):
            continue
        target = site / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(config["docs_dir"]) / name, target)
    address = (config["site_url"] or "").rstrip("/")
    (site / "llms.txt").write_text(
        format_llms_txt(config["site_name"], config["site_description"], pages, address), encoding="utf-8"
    )
    subprocess.run(
        [str(PYTHON), "-m", "tfdoctor", "matrix", "--html", str(site / PAGE), "--force"], check=True
    )


@functools.cache
def render_generated_pages() -> dict[str, str]:
    """Return the pages of messages and commands as Markdown, by file name."""
    scripts = ROOT / "scripts"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        messages = ("generate_docs.py", "--messages", folder / "messages")
        for script, *arguments in (messages, ("command_pages.py", folder / "commands")):
            subprocess.run([PYTHON, scripts / script, *arguments], check=True)
        return {
            page.relative_to(folder).as_posix(): page.read_text(encoding="utf-8")
            for page in sorted(folder.rglob("*.md"))
        }


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
