"""Package lists of pip and conda."""

from __future__ import annotations

import pytest

from tfdoctor.probes.parsers.pip_conda import parse_pip_conda


@pytest.mark.parametrize(
    ("text", "layout", "count", "relevant"),
    [
        (
            "!pip freeze\nabsl-py==1.0\nKeras==2.3.1\ntorch==1.5.0+cu101 ; python_version>'3'\nx @ file:///x.whl\n",
            "freeze",
            4,
            [("Keras", "2.3.1"), ("torch", "1.5.0+cu101")],
        ),
        (
            (
                "Package    Version Editable project location\n---------- -------\nnumpy      1.26.4\n"
                "tf-nightly 2.99.0  /home/user/src\n"
            ),
            "pip_list",
            2,
            [("tf-nightly", "2.99.0")],
        ),
        ("numpy (1.13.1)\ntensorflow-gpu (1.6.0)\n", "pip_list", 2, [("tensorflow-gpu", "1.6.0")]),
        (
            (
                "# packages in environment at /opt/conda:\n#\n# Name   Version   Build  Channel\n"
                "_tflow_select  2.1.0  gpu\ncudatoolkit  9.0  h13b8566_0  a\nKeras  2.2.2\nblas 1.0 mkl\n"
            ),
            "conda_list",
            4,
            [("_tflow_select", "2.1.0"), ("cudatoolkit", "9.0"), ("Keras", "2.2.2")],
        ),
        (
            "name: x\ndependencies:\n  - cudnn=7.6.0=cuda9.0_0\n  - zlib=1.2.11=h7b6447c_3\n",
            "conda_export",
            2,
            [("cudnn", "7.6.0")],
        ),
        ("There is nothing to see here.\n", None, 0, []),
    ],
)
def test_pip_conda(text: str, layout: str | None, count: int, relevant: list[tuple[str, str]]) -> None:
    parsed = parse_pip_conda(text)
    assert (parsed.format, parsed.n_packages) == (layout, count)
    assert [(package.name, package.version) for package in parsed.relevant] == relevant
