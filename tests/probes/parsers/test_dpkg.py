"""Package lists of dpkg and apt."""

from __future__ import annotations

from tfdoctor.probes.parsers.dpkg import parse_dpkg


def test_dpkg_and_apt() -> None:
    parsed = parse_dpkg("""\
$ dpkg -l | grep nvidia
ii  libcudnn9-cuda-12:amd64    9.1.0.70-1    amd64        cuDNN runtime libraries
rc  nvidia-docker2             2.0.3+docker18.09.3-1  all  nvidia-docker CLI wrapper
un  nvidia-kernel-common       <none>        <none>       (no description available)
iF  nvidia-dkms-999            999.1-0ubuntu1 amd64
in this listing nothing amd64 is missing
libcudnn8/unknown,now 8.8.0.121-1+cuda11.8 amd64 [installed]
""")
    assert [(package.status, package.name, package.version, package.arch) for package in parsed.rows] == [
        ("ii", "libcudnn9-cuda-12:amd64", "9.1.0.70-1", "amd64"),
        ("rc", "nvidia-docker2", "2.0.3+docker18.09.3-1", "all"),
        ("un", "nvidia-kernel-common", "<none>", "<none>"),
        ("iF", "nvidia-dkms-999", "999.1-0ubuntu1", "amd64"),
    ]
    assert [(package.name, package.version, package.arch) for package in parsed.apt_rows] == [
        ("libcudnn8", "8.8.0.121-1+cuda11.8", "amd64")
    ]
    assert parsed.n_rows == 4
