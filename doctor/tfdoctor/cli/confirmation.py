"""Say how much a command downloads, and ask before it starts."""

from __future__ import annotations

import sys

from tfdoctor.core.text import clean_line
from tfdoctor.render.paragraphs import Page, Text
from tfdoctor.render.terminal import ERR, OUT

__all__ = ["ask", "confirm_download"]


def ask(question: str, *, default: bool) -> bool:
    """Ask a question on the terminal and return the answer; `default` is that of an empty line."""
    OUT.flush()
    ERR.write(f"{question} [{'Y/n' if default else 'y/N'}] ")
    ERR.flush()
    line = sys.stdin.readline()
    reply = line.strip().lower()
    return reply in ("y", "yes") or (default and not reply and bool(line))


def confirm_download(summary: str, *, yes: bool, quiet: bool) -> bool:
    """Print what is about to be downloaded and, on a terminal, ask whether to start.

    Without a terminal, and with `yes` or `quiet`, the answer is yes.
    """
    if quiet:
        return True
    page = Page(ERR.width, coloured=False)
    for line in summary.splitlines():
        page.print(Text(clean_line(line, limit=1000)))
    ERR.write(page.text)
    if yes or not (sys.stdin.isatty() and ERR.is_terminal):
        return True
    if ask("Go on?", default=True):
        return True
    ERR.write("Nothing was changed.\n")
    return False
