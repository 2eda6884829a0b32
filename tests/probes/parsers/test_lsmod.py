"""The output of lsmod and the text of /proc/modules."""

from __future__ import annotations

from tfdoctor.probes.parsers.lsmod import parse_lsmod


def test_lsmod_and_proc_modules() -> None:
    parsed = parse_lsmod("""\
Module                  Size  Used by
nvidia_drm             57344  0
nvidia              35315712  115 nvidia_uvm,nvidia_modeset
nouveau 2301952 -2 - Live 0xffffffffc0a5d000
drm 491520 6 drm_kms_helper,nvidia, Live 0xffffffffc0a5d000
""")
    assert (parsed.n_modules, parsed.nouveau) == (4, True)
    assert [(m.module, m.size, m.used, m.by) for m in parsed.nvidia_modules] == [
        ("nvidia_drm", 57344, 0, ()),
        ("nvidia", 35315712, 115, ("nvidia_uvm", "nvidia_modeset")),
    ]
