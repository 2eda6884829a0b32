"""Compare `tfdoctor check --json` with the recorded truth of real TensorFlow (tests/lab/record_truth.py).

python tests/lab/compare.py --python ENV/bin/python --truth FILE [--only NAME]...
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab.situations import Bench, Situation, Target, inspect_target, situations


def make_prediction(target: Target, situation: Situation, cache: Path) -> dict[str, Any]:
    """Return the result of `check --json` in one situation."""
    root = Path(tempfile.mkdtemp(prefix="lab-")).resolve()
    try:
        bench = Bench(target, root, cache)
        situation.prepare(bench)
        command = [
            *(*bench.prefix, sys.executable, "-m", "tfdoctor", "check", "--json"),
            *(
                "--python",
                str(bench.interpreter),
                "--timeout",
                "40",
            ),  # container engines may be busy at the same time
        ]
        done = subprocess.run(
            command,
            env=bench.environment(),
            cwd=bench.cwd or root,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        if not done.stdout.startswith("{"):
            return {"error": done.stderr[-2000:] or done.stdout[-2000:]}
        return dict(json.loads(done.stdout))
    finally:
        shutil.rmtree(root, ignore_errors=True)


def describe_disagreement(truth: dict[str, Any], answer: dict[str, Any]) -> str:
    """Return how prediction and truth differ; empty if they agree.

    Libraries are compared only if TensorFlow went on to open them (with a driver and a device).
    """
    if "prediction" not in answer:
        return f"no answer: {answer.get('error')}"
    prediction = answer["prediction"]
    problems = [
        f"{key}: said {prediction[key]}, was {truth[key]}"
        for key in ("gpu_registered", "gpu_count")
        if truth[key] is not None and prediction[key] != truth[key]
    ]
    # If an import fails because of a symbol or a version, the error names the object without it, which exists.
    undefined = any(phrase in (truth["error"] or "") for phrase in ("undefined symbol", "version `"))
    if (truth["asked"] or not truth["import_ok"]) and not truth["crashed"] and not undefined:
        predicted = sorted(prediction["missing_libraries"])
        missing = sorted(truth.get("really_missing", truth["missing_libraries"]))
        if any("version `" in failure["error"] for failure in truth["failures"]):
            missing = sorted(
                truth["missing_libraries"]
            )  # dlerror names the library that is too old, which exists
        # An ImportError names only the first missing library.
        if predicted != missing and not (not truth["import_ok"] and set(missing) <= set(predicted)):
            problems.append(f"missing: said {predicted}, was {missing}")
    return "; ".join(problems)


def main() -> int:
    """Print a line for each disagreement; return 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "tfdoctor-lab-cache")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    truths = json.loads(options.truth.read_text(encoding="utf-8"))["situations"]
    target = inspect_target(options.python, options.cache)
    chosen = [
        situation
        for situation in situations(target)
        if situation.name in truths and (not options.only or situation.name in options.only)
    ]
    failed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for situation, answer in zip(
            chosen, pool.map(lambda s: make_prediction(target, s, options.cache), chosen), strict=True
        ):
            problem = describe_disagreement(truths[situation.name], answer)
            failed += bool(problem)
            if problem or options.only:
                cause = answer.get("prediction", {}).get("cause")
                sys.stdout.write(
                    f"{'DISAGREES' if problem else 'agrees':10} {situation.name:32} {cause} {problem}\n"
                )
    sys.stdout.write(f"{len(chosen) - failed} passed, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
