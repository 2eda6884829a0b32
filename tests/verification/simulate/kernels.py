"""A kernel that the tests of the software GPU's libraries launch."""

from __future__ import annotations

__all__ = ["TEXT"]

TEXT = """.version 7.0
.target sm_80
.address_size 64
.visible .global .u32 state[2] = {5, 6};
.visible .entry add(.param .u64 out, .param .u32 by)
.maxntid 64, 1, 1
{
.reg .u64 %p; .reg .u32 %v, %n, %t;
ld.param.u64 %p, [out]; ld.param.u32 %n, [by]; mov.u32 %t, %tid.x; mad.wide.u32 %p, %t, 4, %p;
ld.global.u32 %v, [%p]; add.u32 %v, %v, %n; st.global.u32 [%p], %v; ret;
}
"""
