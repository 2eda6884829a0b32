"""Valid files in which each value is replaced by values of other types: tfdoctor answers and never raises."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

from extensions.fleet.made import answer
from tfdoctor.extensions.cluster.analysis import evaluate_cluster
from tfdoctor.extensions.cluster.merge import merge_clusters
from tfdoctor.extensions.cluster.reader import parse_cluster
from tfdoctor.extensions.cluster.render import make_cluster_json, render_cluster
from tfdoctor.extensions.fleet.results import UnusableResultError, parse_result
from tfdoctor.extensions.lint.analysis import lint_text
from tfdoctor.extensions.lint.models import LintTarget
from tfdoctor.extensions.lint.settings import SettingsError, parse_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VALUES = (None, True, 0, -1, 1.5, 10**30, "", "x", "\udcff", [], [0], [None], {}, {"a": 0}, [[]], [{}])
CODE = {
    "cell_type": "code",
    "source": ["import os\n", "os.environ['CUDA_VISIBLE_DEVIES'] = '0'"],
    "outputs": [],
}
CONFIG = {
    "cluster": {"worker": ["a:2222", "b:2222"], "ps": {"0": "c:1"}},
    "task": {"type": "worker", "index": 0},
}
SAMPLES: dict[str, Any] = {
    "notebook": {"cells": [CODE, {"cell_type": "markdown", "source": "x"}], "metadata": {}, "nbformat": 4},
    "notebook of version 3": {
        "worksheets": [{"cells": [{"cell_type": "code", "input": "1"}]}],
        "nbformat": 3,
    },
    "yaml": {
        "spec": {
            "containers": [
                {
                    "command": ["python", "--job_name=worker", "--task_index=0"],
                    "env": [{"name": "CUDA_VISIBLE_DEVIES", "value": "0"}],
                }
            ]
        },
        "x": {"environment": {"TF_CONFIG": json.dumps(CONFIG)}, "run": "export CUDA_VISIBLE_DEVIES=0\n"},
    },
    "TF_CONFIG": CONFIG,
    "Python": CONFIG,
    "settings": {
        "tf": "2.16",
        "gpus": 4,
        "ignore": ["cluster-task"],
        "exclude": ["x"],
        "per-file-ignores": {"legacy/*": ["removed-api"]},
    },
}


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in a document."""
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from paths_in(value[key], (*path, key))


def variants(document: Any) -> Iterator[Any]:
    """Yield the document with each of its values replaced by each of `VALUES`."""
    for path in paths_in(document):
        for value in VALUES:
            if not path:
                yield value
                continue
            changed = parent = copy.deepcopy(document)
            for key in path[:-1]:
                parent = parent[key]
            parent[path[-1]] = value
            yield changed


def check_cluster(text: str, *, python: bool = False) -> None:
    """Evaluate and render a cluster as `tfdoctor cluster` does."""
    results = [
        evaluate_cluster(config, source)
        for source, config in merge_clusters([parse_cluster(text, "x", is_python=python)])
    ]
    render_cluster(results, verbose=True)
    json.dumps(make_cluster_json(results))


def check_python(value: Any) -> None:
    """Evaluate and lint a Python program whose cluster configuration is `value`."""
    text = (
        "import json, os\nimport tensorflow as tf\n"
        f"os.environ['TF_CONFIG'] = json.dumps({value!r})\n"
        f"tf.distribute.Server(tf.train.ClusterSpec({value!r}), {value!r}, {value!r})\n"
    )
    check_cluster(text, python=True)
    lint_text(text, "python", LintTarget())


def check_settings(value: Any) -> None:
    if isinstance(value, dict):
        with contextlib.suppress(SettingsError):
            parse_settings(value)


def check_yaml(value: Any) -> None:
    lint_text(json.dumps(value), "yaml", LintTarget())


def check_notebook(value: Any) -> None:
    lint_text(json.dumps(value), "notebook", LintTarget())


CHECKS_BY_SAMPLE: dict[str, Callable[[Any], None]] = {
    "notebook": check_notebook,
    "notebook of version 3": check_notebook,
    "yaml": check_yaml,
    "TF_CONFIG": lambda value: check_cluster(json.dumps(value)),
    "Python": check_python,
    "settings": check_settings,
}


@pytest.mark.parametrize("name", SAMPLES)
def test_values_of_any_type_are_accepted(name: str) -> None:
    for value in variants(SAMPLES[name]):
        CHECKS_BY_SAMPLE[name](value)


def test_fleet_results_are_read_or_refused() -> None:
    valid_result = answer("healthy-one-gpu")
    for key, value in valid_result.items():
        for variant in (
            VALUES if key == "facts" else variants(value[:2] if isinstance(value, list) else value)
        ):
            with contextlib.suppress(UnusableResultError):
                parse_result(json.dumps({**valid_result, key: variant}).encode())
