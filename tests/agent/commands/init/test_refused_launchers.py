"""`init` refuses a launcher that does what no plan can hold, in a sentence, instead of writing a target that fails."""

from pathlib import Path

from tests.agent.command_line import PYTEST, pgo

TABLE = """import torch
import triton
import triton.language as tl


@triton.jit
def _each(TABLE, n, BLOCK: tl.constexpr):
    x = tl.load(TABLE + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, i < n) * 2, i < n)


def doubled(rows):
    table = torch.tensor([r.data_ptr() for r in rows], device=rows[0].device)
    _each[(len(rows),)](table, rows[0].numel(), BLOCK=triton.next_power_of_2(rows[0].numel()))
    return rows


def test_doubled():
    rows = [torch.randn(100, device="cuda") for _ in range(3)]
    expected = [r * 2 for r in rows]
    for row, wanted in zip(doubled(rows), expected):
        torch.testing.assert_close(row, wanted)
"""


def test_a_table_of_addresses_is_refused_with_its_line_and_no_target_is_left(tmp_path: Path) -> None:
    (tmp_path / "table.py").write_text(TABLE)
    done = pgo("init", "table.py", "-o", "target.py", "--", *PYTEST, "table.py", cwd=tmp_path)
    assert done.code == 2, done.out + done.err
    said = " ".join(done.err.split())
    assert "no plan can hold what doubled does: line" in said and "a table of tensor addresses" in said
    assert not (tmp_path / "target.py").exists()
