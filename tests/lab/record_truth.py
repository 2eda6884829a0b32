"""Record what real TensorFlow does in every situation of the lab, as JSON.

python tests/lab/record_truth.py --python ENV/bin/python [--only NAME]... [--core] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab.situations import Bench, Situation, Target, inspect_target, situations
from lab.truth import observe


def record_situation(
    target: Target, situation: Situation, cache: Path, work: Path | None = None, *, quick: bool = False
) -> dict[str, Any]:
    """Set up one situation, run TensorFlow, clean up, and return the truth as plain data."""
    root = Path(tempfile.mkdtemp(prefix="lab-", dir=work)).resolve()
    try:
        bench = Bench(target, root, cache)
        situation.prepare(bench)
        env = bench.environment()
        truth = observe(
            bench.interpreter,
            env,
            cwd=bench.cwd or root,
            session=target.hard_linked,
            quick=quick,
            prefix=bench.prefix,
        )
        data = truth.as_dict()
        for old, new in ((str(root), "ROOT"), (str(target.root), "ENV")):
            data = json.loads(json.dumps(data).replace(old, new))
            env = {key: value.replace(old, new) for key, value in env.items()}
        relevant = {key: value for key, value in env.items() if key not in {"PATH", "HOME", "LANG"}}
        return {
            "name": situation.name,
            "group": situation.group,
            "about": situation.about,
            "env": relevant,
            "quick": quick,
            **data,
        }
    finally:
        shutil.rmtree(root, ignore_errors=True)


def main() -> int:
    """Run the chosen situations and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", type=Path, required=True, help="the interpreter of the environment")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="only situations so named, or in that group",
    )
    parser.add_argument("--core", action="store_true", help="only the short list")
    parser.add_argument(
        "--output", type=Path, help="write there (after each situation), not to standard output"
    )
    parser.add_argument("--add", action="store_true", help="keep what --output has already and run the rest")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "tfdoctor-lab-cache")
    parser.add_argument("--quick", action="store_true", help="ask TF's native code, not its Python")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="only name the situations")
    options = parser.parse_args()
    target = inspect_target(options.python, options.cache)
    selected = [
        situation
        for situation in situations(target)
        if (not options.core or situation.core)
        and (not options.only or {situation.name, situation.group} & set(options.only))
    ]
    if options.list:
        for situation in selected:
            sys.stdout.write(
                f"{'*' if situation.core else ' '} {situation.group:10} {situation.name:36} {situation.about}\n"
            )
        return 0
    results: dict[str, dict[str, Any]] = {}
    if options.add and options.output and options.output.exists():
        results = json.loads(options.output.read_text(encoding="utf-8"))["situations"]
    order = [situation.name for situation in situations(target)]
    selected = [
        situation for situation in selected if situation.name not in results or situation.name in options.only
    ]

    def render_results() -> str:
        ordered = {name: results[name] for name in order if name in results}
        header = {
            "tensorflow": ".".join(map(str, target.version)),
            "hard_linked": target.hard_linked,
            "required": list(target.required),
            "own_wheels": target.own_wheels,
        }
        return json.dumps({**header, "situations": ordered}, indent=1) + "\n"

    with ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(
            lambda situation: record_situation(target, situation, options.cache, quick=options.quick),
            selected,
        ):
            results[result["name"]] = result
            sys.stderr.write(
                f"{result['name']:34} import={result['import_ok']!s:5} gpus={result['gpu_count']}"
                f" missing={result['missing_libraries']} really={result['really_missing']}"
                f" crashed={result['crashed']} {result['seconds']} s\n"
            )
            if options.output:
                options.output.write_text(render_results(), encoding="utf-8")
    if not options.output:
        sys.stdout.write(render_results())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
