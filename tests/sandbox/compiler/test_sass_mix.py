"""What SASS is made of is read from its words as nvdisasm lists it, which is asked of several kernels at once."""

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pgo_agent.sandbox.bundle import elf
from pgo_agent.sandbox.compiler import sass_mix
from triton import knobs

from tests.sandbox import forked_python

STRAIGHT = "mov.u64 %rd2, %rd1; st.global.u32 [%rd2], 7;"
LOOP = """
    mov.u32 %r1, 0;
again:
    ld.volatile.global.f32 %f1, [%rd1];
    ex2.approx.f32 %f1, %f1;
    st.volatile.global.f32 [%rd1], %f1;
    bar.sync 0;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p1, %r1, 1000;
    @%p1 bra again;
"""
ENTRY = """
.visible .entry kernel(.param .u64 p)
{{
    .reg .pred %p<2>; .reg .b32 %r<2>; .reg .f32 %f<2>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [p];
    {body}
    ret;
}}
"""
REGISTERS = """
    .reg .pred %p<2>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [p]; mov.u32 %r1, 0;
"""
TENSOR = f"""
.visible .entry kernel(.param .u64 p)
{{{{
    {REGISTERS}
again:
    .pragma "nounroll";
    {{body}}
    ex2.approx.f32 %f0, %f0;
    bar.sync 0;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p1, %r1, 1000;
    @%p1 bra again;
    st.global.f32 [%rd1], %f0; st.global.f32 [%rd1+4], %f1;
    ret;
}}}}
"""
WARP = "mma.sync.aligned.m16n8k{k}.row.col.f32.{type}.{type}.f32 {{%f0,%f1,%f2,%f3}}, {a}, {b}, {{%f0,%f1,%f2,%f3}};"
GROUP = (
    "wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k{k}.f32.{type}.{type} {{%f0,%f1,%f2,%f3}}, %rd2,"
    " %rd3, 1, 1, 1{turned}; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
)
Assemble = Callable[..., bytes]
LISTED: dict[tuple[bytes, ...], list[dict[str, object]]] = {}


@pytest.fixture
def cubins(tmp_path: Path, ptxas: Assemble) -> list[Path]:
    files = [tmp_path / f"{n}.cubin" for n in range(3)]
    for file, body in zip(files, (STRAIGHT, LOOP, STRAIGHT + LOOP), strict=True):
        file.write_bytes(ptxas(ENTRY.format(body=body)))
    return files


def mixes(files: list[Path]) -> list[dict[str, object]]:
    """What nvdisasm lists of files; of the same ones in every test it is asked once."""
    of = tuple(file.read_bytes() for file in files)
    if of not in LISTED:
        LISTED[of] = sass_mix.mixes(files, 90, knobs.nvidia.nvdisasm.path)
    return copy.deepcopy(LISTED[of])


def test_the_words_of_a_kernel_say_what_nvdisasm_lists(cubins: list[Path]) -> None:
    assert [sass_mix.of_words(file.read_bytes(), 90) for file in cubins] == mixes(cubins)


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90", "sm_100a", "sm_120a"])
def test_the_loop_of_a_product_by_warps_is_the_one_that_nvdisasm_lists(
    arch: str, ptxas: Assemble, tmp_path: Path
) -> None:
    number, files = int(arch[3:].rstrip("a")), []
    for type_, k, registers in (("f16", 16, 2), ("bf16", 16, 2), ("bf16", 8, 1), ("tf32", 8, 2)):
        a, b = (f"{{{', '.join(f'%r{2 + n}' for n in range(count))}}}" for count in (2 * registers, registers))
        files.append(tmp_path / f"{type_}{k}.cubin")
        files[-1].write_bytes(ptxas(TENSOR.format(body=WARP.format(k=k, type=type_, a=a, b=b)), arch))
    listed = sass_mix.mixes(files, number, knobs.nvidia.nvdisasm.path)
    assert [sass_mix.of_words(file.read_bytes(), number) for file in files] == listed
    assert [mix["loop"]["tensor_flops"] for mix in listed] == [2 * 16 * 8 * k for k in (16, 16, 8, 8)]


def test_the_loop_of_a_product_by_warpgroups_is_the_one_that_nvdisasm_lists(ptxas: Assemble, tmp_path: Path) -> None:
    files = []
    for type_, k in (("f16", 16), ("bf16", 16), ("tf32", 8)):
        files.append(tmp_path / f"{type_}.cubin")
        body = GROUP.format(k=k, type=type_, turned="" if type_ == "tf32" else ", 0, 0")
        files[-1].write_bytes(ptxas(TENSOR.format(body=body), "sm_90a"))
    listed = mixes(files)
    assert [sass_mix.of_words(file.read_bytes(), 90) for file in files] == listed
    assert [mix["loop"]["tensor_flops"] for mix in listed] == [2 * 64 * 8 * k for k in (16, 16, 8)]


@pytest.mark.parametrize("opcode", [0xFFF, 0x1FFF])
def test_a_kernel_with_a_word_that_is_not_known_is_left_to_nvdisasm(cubins: list[Path], opcode: int) -> None:
    image = bytearray(cubins[0].read_bytes())
    code = next(s.data for s in elf.sections(bytes(image)) if s.name.startswith(".text."))
    word = int.from_bytes(code[:16], "little") & ~(0xFFF | 1 << 91) | opcode & 0xFFF | (opcode >> 12) << 91
    at = image.index(code)
    image[at : at + 16] = word.to_bytes(16, "little")
    assert sass_mix.of_words(bytes(image), 90) is None


def test_several_kernels_at_once_hold_what_each_holds_by_itself(cubins: list[Path]) -> None:
    assert mixes(cubins) == [mix for file in cubins for mix in mixes([file])]


def test_a_loop_has_its_instructions_and_straight_code_has_none(cubins: list[Path]) -> None:
    straight, loop, _ = mixes(cubins)
    assert straight["loop"] == {} and straight["STG"] == 1
    found = loop["loop"]
    assert isinstance(found, dict) and found["mufu"] == found["barriers"] > 0 == found["tensor_flops"]
    assert found["all"] < int(str(loop["all"]))


def test_code_that_nvdisasm_refuses_takes_nothing_from_what_follows_it(cubins: list[Path]) -> None:
    whole, image = mixes(cubins), bytearray(cubins[1].read_bytes())
    code = next(s.data for s in elf.sections(bytes(image)) if s.name.startswith(".text."))
    at = image.index(code)
    image[at : at + len(code)] = bytes([0xFF]) * len(code)
    cubins[1].write_bytes(image)
    refused = mixes(cubins)
    assert refused[0] == whole[0] and refused[1]["all"] == 0 and refused[2] == whole[2]


def test_of_no_kernels_nothing_is_said() -> None:
    assert mixes([]) == []


TOGETHER = """
import json, sys
from functools import partial
from pathlib import Path
from pgo_agent.sandbox.compiler import __main__ as compiler
folder = Path(sys.argv[1])
listing, waiting, running = partial(compiler._listing, folder, 90), [], {}
unlisted = ["0", "1", "2"]
while waiting or running or unlisted:
    while len(running) < 2 and (job := compiler._next(waiting, unlisted, running, listing)):
        running[compiler._child(folder, job)] = (job, compiler.time.monotonic())
    unlisted += compiler._reap(folder, running, waiting, listing)
print(json.dumps([json.loads((folder / "out" / f"{k}.json").read_text()) for k in "012"]))
"""


def test_a_kernel_that_cannot_be_listed_fails_alone(cubins: list[Path], tmp_path: Path) -> None:
    whole = mixes(cubins)
    (tmp_path / "out").mkdir()
    for n, file in enumerate(cubins):
        file.rename(tmp_path / "out" / file.name)
        (tmp_path / "out" / f"{n}.unlisted").write_text('{"static": {}}')
    (tmp_path / "out" / "1.cubin").write_bytes(b"no cubin")
    done = forked_python.ran(TOGETHER, tmp_path)
    assert done.returncode == 0, done.stderr
    first, refused, last = json.loads(done.stdout)
    assert (first, last) == ({"static": {"sass": whole[0]}}, {"static": {"sass": whole[2]}})
    assert "not a cubin" in refused["error"]
