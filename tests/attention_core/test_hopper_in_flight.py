"""Faults of registers in what ptxas makes are found: small listings, each right but for one line.

The compiled programs themselves are looked through where they are compiled: test_hopper_compiles.py.
"""

from __future__ import annotations

import pytest

from benchmarks.hopper_registers import faults_of

SCORES = "HGMMA.64x16x16.F32.BF16 R24, gdesc[UR8], RZ, !UPT, gsb0"
SUMS = "HGMMA.64x16x16.F32.BF16 R40, R4, gdesc[UR12].tnspB, RZ, !UPT, gsb0"
DESCRIPTORS = """
    ULDC UR4, c[0x0][0x210]
    USGXT.U32 UR8, UR4, 0xe
    UMOV UR9, 0x40000040
    UIADD3 UR10, UP0, UR8, 0x2, URZ
    UIADD3.X UR11, URZ, 0x40000040, URZ, UP0, !UPT
    UMOV UR14, UR8
    UMOV UR15, 0x40000040
    LDS.128 R4, [UR4]
"""
TWO_LOOPS = """
    S2R R0, SR_TID.X
    ULDC UR16, c[0x0][0x214]
    ULDC UR17, c[0x0][0x218]
    ISETP.GE.AND P0, PT, R0, UR16, PT
    {before}
    @!P0 BRA `(.L_x_2)
    {above}
.L_x_1:
    HGMMA.64x16x16.F32.BF16 R24, R4, gdesc[UR14].tnspB, RZ, !UPT, gsb0
    WARPGROUP.DEPBAR.LE gsb0, 0x0
    ISETP.GE.AND P0, PT, R24, R0, PT
    @P0 BRA `(.L_x_1)
.L_x_2:
    HGMMA.64x16x16.F32.BF16 R24, R4, gdesc[UR14].tnspB, RZ, !UPT, gsb0
    WARPGROUP.DEPBAR.LE gsb0, 0x0
    EXIT
"""
SHARED = "UIADD3.64 UR16, UR8, 0x2, URZ"


def listing(*parts: str) -> str:
    """As nvdisasm prints them."""
    lines = [line.strip() for part in parts for line in part.strip().splitlines()]
    return "\n".join(x if x.endswith(":") else f"        /*{n * 16:04x}*/ {x} ;" for n, x in enumerate(lines) if x)


def test_products_that_are_waited_for():
    assert faults_of(listing(DESCRIPTORS, SCORES, SUMS, "WARPGROUP.DEPBAR.LE gsb0, 0x1", "FADD R0, R24, R31")) == []


@pytest.mark.parametrize(
    ("touch", "allowed"),
    [
        ("FADD R0, R24, R31", 1),
        ("FADD R0, R40, R47", 0),
        ("MOV R44, 0x1", 0),
        ("LDS.64 R6, [UR4]", 0),
        ("HGMMA.64x16x16.F32.BF16 R60, R28, gdesc[UR12].tnspB, RZ, !UPT, gsb0", 1),
    ],
)
def test_a_register_in_flight(touch, allowed):
    enough = f"WARPGROUP.DEPBAR.LE gsb0, {allowed:#x}"
    assert faults_of(listing(DESCRIPTORS, SCORES, SUMS, enough, touch)) == []
    found = faults_of(listing(DESCRIPTORS, SCORES, SUMS, f"WARPGROUP.DEPBAR.LE gsb0, {allowed + 1:#x}", touch))
    assert [fault.split(":")[0] for fault in found] == ["in flight"]
    assert touch in found[0]


def test_a_product_that_flies_round_a_loop():
    text = """
    .L_x_1:
        FADD R0, R24, R24
        HGMMA.64x16x16.F32.BF16 R24, gdesc[UR8], RZ, !UPT, gsb0
        @P0 BRA `(.L_x_1)
        WARPGROUP.DEPBAR.LE gsb0, 0x0
        EXIT
    """
    (found,) = faults_of(listing(DESCRIPTORS, "MOV R24, 0x0", text))
    assert found.startswith("in flight: FADD R0, R24, R24, of the product HGMMA")


def test_descriptors_that_two_loops_share():
    dominating = TWO_LOOPS.format(before=SHARED, above="")
    assert faults_of(listing(DESCRIPTORS, dominating)) == []


def test_a_descriptor_that_is_made_on_the_way_into_the_first_loop_only():
    """What ptxas 12.8 made of the forward with dropout and products issued ahead; the registers held other numbers."""
    (found,) = faults_of(listing(DESCRIPTORS, TWO_LOOPS.format(before="", above=SHARED)))
    assert found.startswith("descriptor UR16: HGMMA.64x16x16")


def test_a_register_that_nobody_wrote():
    stale = TWO_LOOPS.replace("ULDC UR17, c[0x0][0x218]", "NOP").format(before="", above=SHARED)
    stale = stale.replace("UR16, PT", "0x4, PT")
    found = faults_of(listing(DESCRIPTORS, stale))
    assert [fault.split(":")[0] for fault in found] == ["unset UR17", "descriptor UR16"]


@pytest.mark.parametrize("copy", ["MOV R61, R60", "R2UR UR30, R60\nIMAD.U32 R61, RZ, RZ, UR30"])
def test_a_copy_of_a_register_that_nobody_wrote(copy):
    """Kept from round to round beside a loop's values, as ptxas 12.8 does: a fault where the copy counts only."""
    assert faults_of(listing(copy, "MOV R60, 0x0\n" + copy, "FADD R62, R61, R61")) == []
    assert faults_of(listing(copy, "FADD R62, R61, R61")) == ["unset R61: FADD R62, R61, R61"]
    assert faults_of(listing("@P0 MOV R61, R60")) == ["unset R60: @P0 MOV R61, R60"]


@pytest.mark.parametrize(
    "way",
    [
        "IMAD.U32 R60, RZ, RZ, UR10\nIMAD.U32 R61, RZ, RZ, UR11\nSTL.64 [R1+0x8], R60\nLDL R62, [R1+0x8]\n"
        "LDL R63, [R1+0xc]\nR2UR UR8, R62\nR2UR UR9, R63",
        "ULOP3.LUT UR8, UR8, UR9, URZ, 0x3c, !UPT\nULOP3.LUT UR9, UR8, UR9, URZ, 0x3c, !UPT\n"
        "ULOP3.LUT UR8, UR8, UR9, URZ, 0x3c, !UPT\nUMOV UR4, UR8\nUMOV UR8, UR9\nUMOV UR9, UR4",
        "ULOP3.LUT UR8, UR14, 0x4000000, URZ, 0xfc, !UPT",
        "CS2R R60, SRZ\nIADD3.X R61, R61, 0x40000040, RZ, P1, !PT\nR2UR UR9, R61",
    ],
)
def test_ways_that_descriptors_take(way):
    assert faults_of(listing("LDC R1, c[0x0][0x28]", DESCRIPTORS, way, SCORES)) == []
    torn = "UMOV UR8, UR4" if "STL" not in way else "ULDC UR9, c[0x0][0x210]"
    (found,) = faults_of(listing("LDC R1, c[0x0][0x28]", DESCRIPTORS, way, torn, SCORES))
    assert found.startswith("descriptor UR8")


def test_no_listing():
    with pytest.raises(ValueError, match="expected a listing of nvdisasm, got no instruction; give it a cubin"):
        faults_of("nvdisasm fatal")
