"""What came of the seeds: one JSON line each, said in words, summed up in rates."""

from __future__ import annotations

import json
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def read(path: Path | None) -> dict[int, dict[str, Any]]:
    """The lines of a file by their seed; a line that was cut off is left out."""
    found: dict[int, dict[str, Any]] = {}
    if path is not None and path.exists():
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            found[int(line["seed"])] = line
    return found


def add(path: Path | None, line: dict[str, Any]) -> None:
    """Write a line, at once."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


def problems(line: dict[str, Any]) -> list[str]:
    """Where tfdoctor was wrong, in words."""
    if "skipped" in line:
        return []
    found = [f"prediction: {text}" for text in line["differences"]]
    if not line["cause_right"]:
        found.append(f"cause: said {line['cause']}, right were {', '.join(line['acceptable'])}")
    if line["green_lie"]:
        found.append("exit 0 where the import fails")
    if line.get("by_hand") is False and line.get("by_hand_possible"):
        found.append(f"by hand: {line.get('commands') or 'nothing printed'} did not mend it")
    if line.get("fixed") is False and line.get("fix_possible"):
        found.append("fix did not mend it")
    if line.get("second_same") is False:
        found.append("a second fix changed something")
    if line.get("undo_exact") is False:
        found.append(f"undo: {line.get('undo_left')}")
    if line["state"] == "whole" and line.get("fixed") is False:
        found.append("fix broke what was whole")
    return found


def tell(line: dict[str, Any], *, verbose: bool) -> None:
    """Print one line of a run."""
    if "skipped" in line:
        print(f"skipped {line['seed']:6}  {line['changes']}: {line['skipped'][:200]}", flush=True)
        return
    wrong = problems(line)
    story = line["story"]
    word = "WRONG" if wrong else "right"
    place = f"{story['base']:5} {story['way']:9} {line['state']:6}"
    print(
        f"{word}   {line['seed']:6}  {line['seconds']:6.1f} s  {place} {'; '.join(line['changes'])}",
        flush=True,
    )
    for text in wrong:
        print(f"      - {text}")
    if wrong and line.get("smallest") and len(line["changes"]) > 1:
        print(f"      smallest that keeps it: {'; '.join(line['smallest'])}")
    if wrong or verbose:
        truth = line["truth"]
        print(
            f"      | TensorFlow: import {truth['import_ok']}, {truth['gpu_count']} GPUs, "
            f"missing {truth['missing_libraries']} {truth['crashed'] or ''} {truth['error']}"
        )
        said = line["said"]
        for text in [str(said.get("error") or said["verdict"]), *said.get("findings", ())]:
            print(f"      | said: {text}")


def sum_up(lines: Sequence[dict[str, Any]]) -> int:
    """Print the rates; 1 where something was wrong."""
    tried = [line for line in lines if "skipped" not in line]
    if not tried:
        return 0
    states = Counter(line["state"] for line in tried)
    counted = ", ".join(f"{states[name]} {name}" for name in ("whole", "fewer", "none", "import"))
    print(f"{len(tried)} tried ({counted}), {len(lines) - len(tried)} could not be set up")
    _rate("prediction", tried, lambda line: line["predicted"])
    _rate("import", tried, lambda line: not any("import_ok" in text for text in line["differences"]))
    _rate("cause", tried, lambda line: line["cause_right"])
    for name, possible in (("by_hand", "by_hand_possible"), ("fixed", "fix_possible")):
        counted_lines = [
            line for line in tried if line.get(possible) and line["state"] != "whole" and name in line
        ]
        words = {"by_hand": "printed commands mend", "fixed": "fix mends"}[name]
        _rate(words, counted_lines, itemgetter(name))
    for name, words in (("second_same", "second fix changes nothing"), ("undo_exact", "undo exact")):
        _rate(words, [line for line in tried if name in line], itemgetter(name))
    lies = [line["seed"] for line in tried if line["green_lie"]]
    print(f"exit 0 where the import fails: {len(lies)} {lies or ''}")
    return int(any(problems(line) for line in tried))


def _rate(name: str, lines: Sequence[dict[str, Any]], right: Callable[[dict[str, Any]], bool]) -> None:
    good = sum(bool(right(line)) for line in lines)
    share = f"{100 * good / len(lines):.1f} %" if lines else "-"
    print(f"{name:28} {good} of {len(lines)}  {share}")
