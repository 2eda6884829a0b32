"""Run one TensorFlow in the situations of tests/lab/logs.py, say what `diagnose` gets wrong, and keep new logs.

python tests/lab/keep_logs.py --python ENV/bin/python [--only NAME]... [--full] [--keep FOLDER]

With --keep, logs whose messages are not yet in that folder (tests/logs/lab) are added to it, with what is true of them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

if __package__ in (None, ""):  # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab.logs import NAMELESS, Printed, disagreements, minor, print_all
from lab.situations import inspect_target
from tfdoctor.logs.signatures import load_signatures

_EVERY_ERA = frozenset(
    {
        *("all-present", "cc-80-30", "visible-minus-one", "no-nvml", "no-driver", "no-driver-no-libraries"),
        *("init-100", "init-803", "kernel-differs", "without-cudart", "without-cusolver", "without-cudnn"),
    }
)
"""Situations that are kept of every release whose messages differ; the others, of these releases alone:"""
_FOR_ALL = ((1, 13), (1, 14), (2, 10), (2, 21))
_LEFT_OUT = frozenset(
    {
        *("init-3", "init-34", "init-36", "init-101", "init-802", "gpus-0", "gpus-2", "cc-120"),
        *("visible-empty", "visible-abc", "no-libcuda", "stub-unversioned", "older-major"),
        *("runtime-46", "context-fails-46", "cublas-needs-lt", "nvml-init-18"),
    }
)
"""Those whose messages another one has, too."""
_NOISE = re.compile(r"FutureWarning|np_resource|_np_q?u?int\d|np\.dtype\(\[")
_PROCESSOR = re.compile(
    r"oneDNN custom|CPU instructions|CPU supports instr|^To enable th|CPU Frequency|platform Host"
)
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_PLACE = re.compile(r"([\w./-]+\.cc):\d+\]")
_MACHINE = (
    (re.compile(r"/(?:root|home/[\w.-]+)/\.pyenv/versions/"), "/opt/python/"),
    (re.compile(r"(host: |hostname: |this host \()[\w.-]+"), r"\1host"),
)


def keep(printed: Printed, folder: Path) -> str | None:
    """Add a log to the folder, without what names this machine; None where one with the same messages is there.

    The same: in this situation, what is known of its messages and the sources that print them are the same.
    """
    if printed.situation.startswith("without-") and printed.situation not in _EVERY_ERA:
        return None  # the same messages with another name
    everywhere = printed.situation in _EVERY_ERA or minor(printed.tensorflow) in _FOR_ALL
    if not everywhere or printed.situation in _LEFT_OUT:
        return None
    table_path = folder / "expected.json"
    table = json.loads(table_path.read_text(encoding="utf-8")) if table_path.exists() else {}
    log = _trimmed(printed.log, whole=printed.situation == "all-present")
    always = printed.situation in _EVERY_ERA and minor(printed.tensorflow) in _FOR_ALL
    for other, row in ({} if always else table).items():
        alike = (row["situation"], row.get("named", False)) == (printed.situation, printed.named)
        if alike and _messages((folder / other).read_text(encoding="utf-8")) == _messages(log):
            return None
    mode = "-named" if printed.named and minor(printed.tensorflow) >= NAMELESS else ""
    name = f"{printed.tensorflow}-{printed.situation}{mode}.log"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(log, encoding="utf-8")
    row = asdict(replace(printed, causes=frozenset())) | {"causes": sorted(printed.causes)}
    row = {key: value for key, value in row.items() if value and key not in {"log", "error"}}
    table = dict(sorted({**table, name: row}.items()))
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in table.items())
    table_path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return name


def _trimmed(log: str, *, whole: bool) -> str:
    """A log without Python's own warnings, the second of lines that are alike, and the names of this machine.

    What TensorFlow always says of the processor stays where it is `whole`, or says nothing else.
    """
    for pattern, instead in _MACHINE:
        log = pattern.sub(instead, log)
    seen: Counter[str] = Counter()
    kept_lines = []
    for line in log.splitlines(keepends=True):
        shape = _NUMBERS.sub("0", line)
        seen[shape] += 1
        if seen[shape] == 1 and not _NOISE.search(line):
            kept_lines.append(line)
    brief = "".join(line for line in kept_lines if not _PROCESSOR.search(line))
    return brief if _messages(brief) and not whole else "".join(kept_lines)


def _messages(log: str) -> frozenset[tuple[str, str]]:
    """(signature, source file) of every message that means something."""
    catalogue = load_signatures()
    found = set()
    for line in log.splitlines():
        place = _PLACE.search(line)
        for match in catalogue.matches(line):
            if match.signature.benign is None and not match.signature.id.startswith("format-"):
                found.add((match.signature.id, place[1] if place else ""))
    return frozenset(found)


def keep_outcome(folder: Path) -> dict[str, Printed]:
    """The logs of a folder, by file."""
    found = {}
    for name, row in json.loads((folder / "expected.json").read_text(encoding="utf-8")).items():
        found[name] = Printed(
            situation=row["situation"],
            tensorflow=row["tensorflow"],
            named=row.get("named", False),
            causes=frozenset(row["causes"]),
            registered=row.get("registered", False),
            devices=tuple(tuple(device) for device in row.get("devices", ())),
            missing=tuple(row.get("missing", ())),
            log=(folder / name).read_text(encoding="utf-8"),
            silent=row.get("silent", False),
        )
    return found


def main() -> int:
    """Run one TensorFlow in all situations and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--full", action="store_true", help="import all of TensorFlow, as users do: slow")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "tfdoctor-lab-cache")
    options = parser.parse_args()
    target = inspect_target(options.python, options.cache)
    printed = print_all(target, options.cache, only=options.only, quick=not options.full)
    wrong = 0
    for one in printed:
        problem = disagreements(one)
        wrong += bool(problem)
        if problem:
            sys.stdout.write(f"{one.situation}{' (named)' if one.named else ''}: {'; '.join(problem)}\n")
        if options.keep:
            keep(one, options.keep)
    sys.stdout.write(f"TensorFlow {printed[0].tensorflow}: {len(printed) - wrong} of {len(printed)} right\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
