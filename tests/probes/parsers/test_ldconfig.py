"""The output of `ldconfig -p`."""

from __future__ import annotations

from tfdoctor.probes.parsers.ldconfig import parse_ldconfig


def test_ldconfig() -> None:
    parsed = parse_ldconfig("""\
# \tlibcudnn.so.8 (libc6,x86-64) => /a/libcudnn.so.8    libcudnn.so (libc6,x86-64) => /a/libcudnn.so
\tlibicudata.so.60 (libc6,x86-64, OS ABI: Linux 3.2.0) => /usr/lib/libicudata.so.60
\tlibcudart.so.12 -> libcudart.so.12.4.127
/usr/local/cuda/lib64: (from /etc/ld.so.conf.d/cuda.conf:1)
""")
    assert [(lib.soname, lib.path) for lib in parsed.libs] == [
        ("libcudnn.so.8", "/a/libcudnn.so.8"),
        ("libcudnn.so", "/a/libcudnn.so"),
        ("libicudata.so.60", "/usr/lib/libicudata.so.60"),
    ]
    assert [(link.soname, link.target) for link in parsed.links] == [
        ("libcudart.so.12", "libcudart.so.12.4.127")
    ]
    assert parsed.cuda_related == ("libcudart.so.12", "libcudnn.so", "libcudnn.so.8")
