"""Run one TensorFlow in the situations of tests/lab/logs.py, report errors of `diagnose`, and store new logs.

python tests/lab/keep_logs.py --python ENV/bin/python [--only NAME]... [--full] [--keep FOLDER]

With --keep, logs whose messages are not yet in that folder (tests/logs/lab) are added to it, with the truth
about them.
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

from lab.logs import NAMELESS, LogRun, find_disagreements, minor, print_all
from lab.situations import inspect_target
from tfdoctor.logs.signatures import load_signatures

_EVERY_ERA = frozenset(
    {
        *("all-present", "cc-80-30", "visible-minus-one", "no-nvml", "no-driver", "no-driver-no-libraries"),
        *("init-100", "init-803", "kernel-differs", "without-cudart", "without-cusolver", "without-cudnn"),
    }
)
"""Situations whose logs are kept for every release with other messages.

The logs of the other situations are kept for the releases of _FOR_ALL only.
"""
_KEPT_RELEASES = ((1, 13), (1, 14), (2, 10), (2, 21))
_REDUNDANT = frozenset(
    {
        *("init-3", "init-34", "init-36", "init-101", "init-802", "gpus-0", "gpus-2", "cc-120"),
        *("visible-empty", "visible-abc", "no-libcuda", "stub-unversioned", "older-major"),
        *("runtime-46", "context-fails-46", "cublas-needs-lt", "nvml-init-18"),
    }
)
"""Situations with the same messages as another one."""
_NOISE = re.compile(r"FutureWarning|np_resource|_np_q?u?int\d|np\.dtype\(\[")
_PROCESSOR = re.compile(
    r"oneDNN custom|CPU instructions|CPU supports instr|^To enable th|CPU Frequency|platform Host"
)
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_SOURCE = re.compile(r"([\w./-]+\.cc):\d+\]")
_MACHINE = (
    (re.compile(r"/(?:root|home/[\w.-]+)/\.pyenv/versions/"), "/opt/python/"),
    (re.compile(r"(host: |hostname: |this host \()[\w.-]+"), r"\1host"),
)


def store_log(printed: LogRun, folder: Path) -> str | None:
    """Add a log to the folder without the names of this machine, and return its file name.

    Return None if the folder has a log of the same situation with the same known messages from the same
    sources.
    """
    if printed.situation.startswith("without-") and printed.situation not in _EVERY_ERA:
        return None  # the same messages with another library name
    everywhere = printed.situation in _EVERY_ERA or minor(printed.tensorflow) in _KEPT_RELEASES
    if not everywhere or printed.situation in _REDUNDANT:
        return None
    table_path = folder / "expected.json"
    table = json.loads(table_path.read_text(encoding="utf-8")) if table_path.exists() else {}
    log = _trim_log(printed.log, whole=printed.situation == "all-present")
    always = printed.situation in _EVERY_ERA and minor(printed.tensorflow) in _KEPT_RELEASES
    for stored_name, entry in ({} if always else table).items():
        is_same_situation = (entry["situation"], entry.get("named", False)) == (
            printed.situation,
            printed.named,
        )
        if is_same_situation and _find_messages(
            (folder / stored_name).read_text(encoding="utf-8")
        ) == _find_messages(log):
            return None
    mode = "-named" if printed.named and minor(printed.tensorflow) >= NAMELESS else ""
    name = f"{printed.tensorflow}-{printed.situation}{mode}.log"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(log, encoding="utf-8")
    entry = asdict(replace(printed, causes=frozenset())) | {"causes": sorted(printed.causes)}
    entry = {key: value for key, value in entry.items() if value and key not in {"log", "error"}}
    table = dict(sorted({**table, name: entry}.items()))
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in table.items())
    table_path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return name


def _trim_log(log: str, *, whole: bool) -> str:
    """Return a log without Python's warnings, repeated similar lines, and the names of this machine.

    TensorFlow's usual messages about the processor are kept if `whole` is true or if there are no other
    messages.
    """
    for pattern, replacement in _MACHINE:
        log = pattern.sub(replacement, log)
    counts: Counter[str] = Counter()
    kept_lines = []
    for line in log.splitlines(keepends=True):
        shape = _NUMBERS.sub("0", line)
        counts[shape] += 1
        if counts[shape] == 1 and not _NOISE.search(line):
            kept_lines.append(line)
    brief = "".join(line for line in kept_lines if not _PROCESSOR.search(line))
    return brief if _find_messages(brief) and not whole else "".join(kept_lines)


def _find_messages(log: str) -> frozenset[tuple[str, str]]:
    """Return (signature, source file) of every significant message."""
    catalogue = load_signatures()
    messages = set()
    for line in log.splitlines():
        source = _SOURCE.search(line)
        for match in catalogue.iter_matches(line):
            if match.signature.benign_code is None and not match.signature.id.startswith("format-"):
                messages.add((match.signature.id, source[1] if source else ""))
    return frozenset(messages)


def load_logs(folder: Path) -> dict[str, LogRun]:
    """Return the logs of a folder by file name."""
    logs = {}
    for name, entry in json.loads((folder / "expected.json").read_text(encoding="utf-8")).items():
        logs[name] = LogRun(
            situation=entry["situation"],
            tensorflow=entry["tensorflow"],
            named=entry.get("named", False),
            causes=frozenset(entry["causes"]),
            registered=entry.get("registered", False),
            devices=tuple(tuple(device) for device in entry.get("devices", ())),
            missing=tuple(entry.get("missing", ())),
            log=(folder / name).read_text(encoding="utf-8"),
            silent=entry.get("silent", False),
        )
    return logs


def main() -> int:
    """Run one TensorFlow in all situations; return 1 if `diagnose` was wrong about one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--full", action="store_true", help="import all of TensorFlow, as users do: slow")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "tfdoctor-lab-cache")
    options = parser.parse_args()
    target = inspect_target(options.python, options.cache)
    printed = print_all(target, options.cache, only=options.only, quick=not options.full)
    failed = 0
    for log in printed:
        differences = find_disagreements(log)
        failed += bool(differences)
        if differences:
            sys.stdout.write(f"{log.situation}{' (named)' if log.named else ''}: {'; '.join(differences)}\n")
        if options.keep:
            store_log(log, options.keep)
    sys.stdout.write(f"TensorFlow {printed[0].tensorflow}: {len(printed) - failed} of {len(printed)} right\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
