"""The results of the seeds: one JSON line each, printed as text and summarised as rates."""

from __future__ import annotations

import json
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def read_lines(path: Path | None) -> dict[int, dict[str, Any]]:
    """Return the lines of a file by seed, without an incomplete last line."""
    lines: dict[int, dict[str, Any]] = {}
    if path is not None and path.exists():
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            lines[int(line["seed"])] = line
    return lines


def append_line(path: Path | None, line: dict[str, Any]) -> None:
    """Append a line to the file at once."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


def list_errors(line: dict[str, Any]) -> list[str]:
    """Return a description of each error of tfdoctor."""
    if "skipped" in line:
        return []
    errors = [f"prediction: {text}" for text in line["differences"]]
    if not line["cause_right"]:
        errors.append(f"cause: said {line['cause']}, right were {', '.join(line['acceptable'])}")
    if line["green_lie"]:
        errors.append("exit 0 where the import fails")
    if line.get("by_hand") is False and line.get("by_hand_possible"):
        errors.append(f"by hand: {line.get('commands') or 'nothing printed'} did not mend it")
    if line.get("fixed") is False and line.get("fix_possible"):
        errors.append("fix did not mend it")
    if line.get("second_same") is False:
        errors.append("a second fix changed something")
    if line.get("undo_exact") is False:
        errors.append(f"undo: {line.get('undo_left')}")
    if line["state"] == "whole" and line.get("fixed") is False:
        errors.append("fix broke what was whole")
    return errors


def print_line(line: dict[str, Any], *, verbose: bool) -> None:
    """Print one line of a run."""
    if "skipped" in line:
        print(f"skipped {line['seed']:6}  {line['changes']}: {line['skipped'][:200]}", flush=True)
        return
    errors = list_errors(line)
    story = line["story"]
    outcome = "WRONG" if errors else "right"
    setting = f"{story['base']:5} {story['way']:9} {line['state']:6}"
    print(
        f"{outcome}   {line['seed']:6}  {line['seconds']:6.1f} s  {setting} {'; '.join(line['changes'])}",
        flush=True,
    )
    for text in errors:
        print(f"      - {text}")
    if errors and line.get("smallest") and len(line["changes"]) > 1:
        print(f"      smallest that keeps it: {'; '.join(line['smallest'])}")
    if errors or verbose:
        truth = line["truth"]
        print(
            f"      | TensorFlow: import {truth['import_ok']}, {truth['gpu_count']} GPUs, "
            f"missing {truth['missing_libraries']} {truth['crashed'] or ''} {truth['error']}"
        )
        answer = line["said"]
        for text in [str(answer.get("error") or answer["verdict"]), *answer.get("findings", ())]:
            print(f"      | said: {text}")


def print_summary(lines: Sequence[dict[str, Any]]) -> int:
    """Print the rates; return 1 if something was wrong."""
    tried = [line for line in lines if "skipped" not in line]
    if not tried:
        return 0
    states = Counter(line["state"] for line in tried)
    state_counts = ", ".join(f"{states[name]} {name}" for name in ("whole", "fewer", "none", "import"))
    print(f"{len(tried)} tried ({state_counts}), {len(lines) - len(tried)} could not be set up")
    _print_rate("prediction", tried, lambda line: line["predicted"])
    _print_rate("import", tried, lambda line: not any("import_ok" in text for text in line["differences"]))
    _print_rate("cause", tried, lambda line: line["cause_right"])
    for name, possible in (("by_hand", "by_hand_possible"), ("fixed", "fix_possible")):
        counted_lines = [
            line for line in tried if line.get(possible) and line["state"] != "whole" and name in line
        ]
        label = {"by_hand": "printed commands mend", "fixed": "fix mends"}[name]
        _print_rate(label, counted_lines, itemgetter(name))
    for name, label in (("second_same", "second fix changes nothing"), ("undo_exact", "undo exact")):
        _print_rate(label, [line for line in tried if name in line], itemgetter(name))
    lies = [line["seed"] for line in tried if line["green_lie"]]
    print(f"exit 0 where the import fails: {len(lies)} {lies or ''}")
    return int(any(list_errors(line) for line in tried))


def _print_rate(name: str, lines: Sequence[dict[str, Any]], right: Callable[[dict[str, Any]], bool]) -> None:
    right_count = sum(bool(right(line)) for line in lines)
    share = f"{100 * right_count / len(lines):.1f} %" if lines else "-"
    print(f"{name:28} {right_count} of {len(lines)}  {share}")
