"""What a prompt says of edit scripts. It stands beside the readable view and excerpts of its lines."""

EXAMPLE = """\
move L4 before L3
set L4 evictionPolicy = evict_first
insert after L4:
    %a = math.absf %$L4 : f32
replace L5 with:
    tt.store %p, %a : !tt.ptr<f32>
"""
FORMAT = """\
Edit the kernel by a script: one edit a line, by the labels of the lines above (they do not shift). Remarks go behind #.
  move L31 before L28          also: after L40; a range: move L31..L33 after L40
  set L31 pendings = 1         an attribute of the line's op; of another op in it: set L35 ttg.memdesc_trans order = ...
  delete L17                   or a range
  insert after L20:            TTGIR ops on the lines below, indented
  replace L20..L24 with:       TTGIR ops on the lines below, indented
Of a line that opens a block (for, if, a role): at start of L29, at end of L29, past L29 (behind its end).
A line stands for its op and all inside of it; the address and index arithmetic that only it uses goes with it.
In TTGIR %$L31 is the result of line L31 (%$L31#1 its second); other values and layouts are named as in the excerpts.
Values that other lines use must be given again under the same name. Each value must be given before it is used; what
ends a block (next ..., return) can be replaced by its like, not moved or deleted. Edit each line once. Example:
"""


def reference() -> str:
    """Return the format of scripts in at most 25 lines, with an example."""
    return f"{FORMAT}{''.join(f'  {line}' for line in EXAMPLE.splitlines(keepends=True))}"
