"""Environments broken at random: composed by a grammar and a seed, and tried on real TensorFlow and on tfdoctor.

    scripts/strangers --bases FOLDER --seeds 1-40 --only-check
    scripts/strangers --bases FOLDER --results FILE --seeds 1000-1150 --tfdoctor ANOTHER/CHECKOUT
    scripts/strangers --results FILE                  # the summary of what is there

An interrupted run continues: seeds that are in FILE are skipped. Exits 1 if tfdoctor was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.broken_env import Unavailable
from lab.situations import can_mount
from lab.strangers import results
from lab.strangers.grammar import Change, Story, draw
from lab.strangers.ground import BASES_BY_RELEASE, BaseContents, Undrawn
from lab.strangers.kinds import KINDS
from lab.strangers.trying import SeedTrial, Stock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lab.strangers.person import User


def find_python(location: Path) -> Path:
    """Return the interpreter of a checkout or an environment, or the given interpreter."""
    candidates = (
        location,
        *(location / name / "bin" / "python" for name in (".venv-test", ".venv-run", ".")),
    )
    for path in candidates:
        if path.is_file():
            return path.absolute()
    message = f"no Python with tfdoctor in {location}"
    raise SystemExit(message)


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of a text such as '1-40,50'."""
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def main() -> int:
    """Try the seeds, print the results and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="strangers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bases", type=Path, help="where the environments are (env-2.20 …), or will be made")
    parser.add_argument("--results", type=Path, help="a file of JSON lines, one for each seed")
    parser.add_argument("--seeds", type=parse_seeds, default=[], metavar="FROM-TO", help="1-40,77")
    parser.add_argument(
        "--release", action="append", default=[], choices=list(BASES_BY_RELEASE), help="of the bases"
    )
    parser.add_argument("--kind", action="append", default=[], choices=[one.name for one in KINDS])
    parser.add_argument("--only-check", action="store_true", help="no commands, no fix")
    parser.add_argument("--draw", action="store_true", help="print what the seeds stand for, and try nothing")
    parser.add_argument(
        "--keep", action="store_true", help="stop at the first disagreement, leave it as it is"
    )
    parser.add_argument(
        "--tfdoctor", type=Path, default=Path(sys.executable), help="whose tfdoctor: a Python, or a checkout"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="also what was right")
    options = parser.parse_args()
    lines_by_seed = results.read_lines(options.results)
    if options.seeds:
        if options.bases is None:
            parser.error("--seeds needs --bases")
        if not can_mount():
            parser.error("this needs root and private mount namespaces")
        os.environ["PATH"] += f":{Path(sys.executable).parent}"  # the folder with uv
        pending = [seed for seed in options.seeds if seed not in lines_by_seed]
        # Exit normally, so that the broken environment is restored.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        stock = Stock(options.bases, find_python(options.tfdoctor))
        try:
            for seed in pending:
                line = try_seed(stock, seed, options)
                if line is None:
                    continue
                lines_by_seed[seed] = line
                results.append_line(options.results, line)
                results.print_line(line, verbose=options.verbose)
                if options.keep and results.list_errors(line):
                    print_shell(stock.keep(load_story(line)))
                    break
        finally:
            stock.drop_snapshots()
    lines = [
        lines_by_seed[seed] for seed in (options.seeds or sorted(lines_by_seed)) if seed in lines_by_seed
    ]
    return results.print_summary(lines)


@dataclass(frozen=True, slots=True)
class LazyBases(Mapping[str, BaseContents]):
    """The bases by name; each is inspected when it is drawn."""

    names: Sequence[str]
    stock: Stock

    def __getitem__(self, name: str) -> BaseContents:
        """Return a base. Raise Unavailable."""
        return self.stock.ground(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self.names)

    def __len__(self) -> int:
        """Return the number of bases."""
        return len(self.names)


def print_shell(person: User) -> None:
    """Print where the environment is and how to start the user's shell."""
    print(f"{person.visible_root} is left as it is; this is that person's shell:")
    variables = [f"{name}={value}" for name, value in sorted(person.environment().items())]
    print(shlex.join(["env", "-i", *variables, *person.prefix(), "bash", "--norc"]))


def load_story(line: dict[str, Any]) -> Story:
    """Return the story of a line of the results."""
    data = dict(line["story"])
    changes = tuple(Change(change["kind"], tuple(change["words"])) for change in data.pop("changes"))
    return Story(**data, changes=changes)


def try_seed(stock: Stock, seed: int, options: argparse.Namespace) -> dict[str, Any] | None:
    """Try a seed and return a line for the results, or None if it is only drawn."""
    started = time.monotonic()
    names = options.release or list(BASES_BY_RELEASE)
    kinds = [kind for kind in KINDS if not options.kind or kind.name in options.kind]
    story: Story | None = None
    try:
        story = draw(seed, LazyBases(names, stock), kinds)
        if options.draw:
            print(json.dumps(story.as_dict()))
            return None
        return SeedTrial(story, stock, only_check=options.only_check).run_trial()
    except (Undrawn, Unavailable) as reason:
        changes = [str(change) for change in story.changes] if story else []
        seconds = round(time.monotonic() - started, 1)
        return {"seed": seed, "skipped": str(reason)[:500], "changes": changes, "seconds": seconds}


if __name__ == "__main__":
    raise SystemExit(main())
