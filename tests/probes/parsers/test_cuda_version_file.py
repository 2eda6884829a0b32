"""The version files of a CUDA toolkit."""

from __future__ import annotations

from tfdoctor.probes.parsers.cuda_version_file import parse_cuda_version_file


def test_cuda_version_file() -> None:
    parsed = parse_cuda_version_file("""\
> cat /usr/local/cuda/version.json
   "cuda" : {
      "name" : "CUDA SDK",
      "version" : "99.8.20990929"
   },
   "cuda_nvcc" : {
      "name" : "CUDA NVCC",
      "version" : "99.8.89"
   },
   "libcublas" : {
""")
    assert (parsed.kind, parsed.cuda_version) == ("version.json", "99.8.20990929")
    assert parsed.components == {"cuda": "99.8.20990929", "cuda_nvcc": "99.8.89"}
    parsed = parse_cuda_version_file("CUDA Version 9.0.176\nCUDA Patch Version 9.0.176.1\n")
    assert (parsed.kind, parsed.cuda_version) == ("version.txt", "9.0.176")
    assert parse_cuda_version_file("nothing").kind is None
