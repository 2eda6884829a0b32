"""`python -m tfdoctor`, and the command `tfdoctor`: from the first moment on Ctrl-C and poverty end it quietly."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn


def run() -> NoReturn:
    """Run the command line; what it is made of is loaded here."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # nothing was started yet
    try:
        from tfdoctor.cli.main import run as command
    except (ImportError, MemoryError, OSError, RuntimeError) as error:
        why = "there is not enough memory" if isinstance(error, MemoryError) else str(error)
        if sys.stderr is not None:
            sys.stderr.write(f"tfdoctor: it could not be loaded: {why}.\n")
        sys.exit(3)
    command()


if __name__ == "__main__":
    run()
