"""`tfdoctor verify`."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from tfdoctor.compat import Compat
from tfdoctor.dockerfile.write import check_reference
from tfdoctor.errors import ExitCode, UsageError
from tfdoctor.system.writing import check_file, write_file
from tfdoctor.text import clean_line
from tfdoctor.verify import Wish, verify_image, verify_python
from tfdoctor.verify.stages import STAGES, Limits

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.engine import Engine
    from tfdoctor.facts import Facts
    from tfdoctor.findings import Stage, Verification

LOOKING = 8.0
"""Seconds that looking at this machine may take: how many GPUs it has, and what is wrong with its engine."""
_GPUS = re.compile(r"all|none|[A-Za-z0-9_.:-]{1,80}(?:,[A-Za-z0-9_.:-]{1,80}){0,63}")
_MEMORY = re.compile(r"(\d{1,6})([kmg])b?", re.IGNORECASE)


def verify(
    image: str | None,
    *,
    python: str | None,
    expect: int | None,
    gpus: str | None,
    stages: str | None,
    timeout: float | None,
    memory: str | None,
    device: str,
    junit: Path | None,
    as_json: bool,
    verbose: bool,
    quiet: bool,
) -> int:
    """Verify, tell, and return the exit status."""
    if image is None and python is None:
        raise UsageError("verify what?", hint="tfdoctor verify IMAGE, or tfdoctor verify --python PATH.")
    wish = Wish(
        stages=_stages(stages),
        expected=expect,
        gpus=_gpus(gpus),
        limits=Limits.all(timeout) if timeout is not None else Limits(),
        memory=_memory(memory),
        python=python if image is not None else None,
        device=device,
    )
    if junit is not None:
        check_file(junit, force=True, option="--junit")
    compat = Compat.load()
    teller = Teller(quiet=quiet or as_json)
    if image is None:
        done = _python(compat, python, wish, teller)
    else:
        done = verify_with(compat, check_reference(image), wish, teller)
    tell(done, as_json=as_json, verbose=verbose, quiet=quiet)
    if junit is not None:
        _write_junit(done, junit)
    return ExitCode.OK if done.ok else ExitCode.FOUND


class Teller:
    """Each stage's line as it ends."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def __call__(self, stage: Stage) -> None:
        if self._quiet:
            return
        from tfdoctor.render.terminal import colour, width, write
        from tfdoctor.render.verify_console import render_stage

        write(render_stage(stage, width=width(), colour=colour()))
        sys.stdout.flush()


def verify_with(compat: Compat, image: str, wish: Wish, on_stage: Teller | None = None) -> Verification:
    """Verify an image with the engine that is to be found."""
    from tfdoctor.engine import connect

    engine = connect()
    host = host_of_engine(compat, engine)
    return verify_image(engine, compat, image, wish, host=host, on_stage=on_stage or Teller(quiet=True))


def host_of_engine(compat: Compat, engine: Engine) -> Facts | None:
    """This machine, where the engine is on it."""
    from tfdoctor.examine import look
    from tfdoctor.system import LiveSystem

    if not engine.url.startswith("unix://"):
        return None
    return look(LiveSystem(), compat, timeout=LOOKING)


def _python(compat: Compat, python: str | None, wish: Wish, teller: Teller) -> Verification:
    from tfdoctor.system import LiveSystem

    return verify_python(LiveSystem(), compat, python, wish, on_stage=teller)


def tell(done: Verification, *, as_json: bool, verbose: bool, quiet: bool) -> None:
    """Print the answer."""
    if as_json:
        from tfdoctor.render.json import write_json
        from tfdoctor.render.verify_json import verification_json

        write_json(verification_json(done))
        return
    from tfdoctor.render.terminal import colour, width, write
    from tfdoctor.render.verify_console import render_end

    write(render_end(done, verbose=verbose, quiet=quiet, width=width(), colour=colour()))


def _write_junit(done: Verification, path: Path) -> None:
    from tfdoctor.render.verify_json import junit

    write_file(path, junit(done).encode("utf-8"), force=True, option="--junit")


def _stages(text: str | None) -> tuple[str, ...]:
    """`"visible"`: that stage and those before it; `"import,visible"`: those."""
    if text is None:
        return STAGES
    names = [name.strip() for name in text.split(",")]
    wrong = next((name for name in names if name not in STAGES), None)
    if wrong is not None:
        msg = f"--stages: there is no stage `{clean_line(wrong)}`."
        raise UsageError(msg, hint=f"They are, in order: {', '.join(STAGES)}. One name: up to that one.")
    if len(names) == 1:
        return STAGES[: STAGES.index(names[0]) + 1]
    return tuple(name for name in STAGES if name in names)


def _gpus(text: str | None) -> str | None:
    if text is None or _GPUS.fullmatch(text):
        return text
    raise UsageError("--gpus: all, none, indexes or UUIDs are meant.", hint="For example --gpus 0,1")


def _memory(text: str | None) -> int | None:
    if text is None:
        return None
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise UsageError("--memory: a size such as 8g or 500m is meant.")
    return int(match[1]) * {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[match[2].lower()]
