"""The version in cuDNN's header files."""

from __future__ import annotations

from tfdoctor.probes.parsers.cudnn_header import parse_cudnn_header


def test_cudnn_header() -> None:
    parsed = parse_cudnn_header("""\
a/cudnn_version.h:#define CUDNN_MAJOR      99
a/cudnn_version.h:#define CUDNN_MINOR 10
a/cudnn_version.h:#define CUDNN_PATCHLEVEL 1
#define CUDNN_VERSION (CUDNN_MAJOR * 10000 + CUDNN_MINOR * 100 + CUDNN_PATCHLEVEL)
#define CUDNN_MAJOR 7
""")
    assert (parsed.major, parsed.minor, parsed.patch) == (99, 10, 1)
    assert [(header.major, header.minor) for header in parsed.all] == [(99, 10), (7, None)]
    assert parse_cudnn_header("").major is None
