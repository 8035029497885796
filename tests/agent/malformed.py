"""What models write that is none of the forms, or only nearly: each kind with what becomes of it.

It is about SOURCE of `loopback.py`, and about the TTGIR of a small kernel, SHOWN. A kind comes to a number of
candidates, or to none and a part of the sentence that says why.
"""

from pgo_agent.agent.llm.replies.ttgir import Shown
from pgo_agent.sandbox.ttgir import reader
from pgo_agent.sandbox.ttgir.pseudocode.view import readable

from tests.agent.loopback import EDIT, NEW, PART, STORE, STORED, code, edit

TEXT = """\
module {
  tt.func public @twice(%x: !tt.ptr<f32>, %n: i32) {
    %c2 = arith.constant 2.0 : f32
    %i = tt.get_program_id x : i32
    %p = tt.addptr %x, %i : !tt.ptr<f32>, i32
    gpu.barrier
    %v = tt.load %p : !tt.ptr<f32>
    %w = arith.mulf %v, %c2 : f32
    tt.store %p, %w : !tt.ptr<f32>
    tt.return
  }
}
"""
_MODULE = reader.parse(TEXT)
SHOWN = Shown("CASES/a", "twice", "ab" * 32, "ab" * 32, {"BLOCK": 512}, TEXT, _MODULE, readable(_MODULE))
LAUNCH = '```json\n[{"BLOCK": 256, "num_warps": 8}]\n```\n'
SCRIPT = "```edits\nmove L4 before L3\n```\n"
HEADS = "## Candidate 1: store\nFaster.\n{}\n## Candidate 2: launch\nWider.\n{}\n"
DIFF = f"--- a/kernel.py\n+++ b/kernel.py\n@@ -10,3 +10,3 @@ def _add\n-{STORE}\n+{STORED}\n"
BOTH = HEADS.format(EDIT, LAUNCH)
TABLE = "| parameter | value |\n|---|---|\n| BLOCK | 512 |\n"

Kind = tuple[str, int | str]
MALFORMED: dict[str, Kind] = {
    # nothing in it
    "nothing": ("", "no code found"),
    "blanks": (" \t\n" * 200, "no code found"),
    "a refusal": ("I'm sorry, but I can't help with that.", "no code found"),
    "prose about edits without one": ("I would replace the SEARCH block by a REPLACE block.", "no code found"),
    "only thoughts": (f"<think>{EDIT}</think>", "no code found"),
    "thoughts without an end": (f"<think>so\n{EDIT}", "no code found"),
    "a table": (TABLE, "no code found"),
    "an error page": ("<html><body>502 Bad Gateway</body></html>", "no code found"),
    "an end of a conversation": ("<|im_end|><|endoftext|>", "no code found"),
    "headings without bodies": ("## Candidate 1: a\n## Candidate 2: b\n", "no code found"),
    "empty fences": ("```python\n```\n```json\n```\n", "no code found"),
    "a thousand empty candidates": ("".join(f"## Candidate {i}\n" for i in range(1000)), "has 1000 candidates"),
    # fences
    "a fence that is cut off": (f"```python\n{NEW[:-40]}", "cut off"),
    "a first fence without an end": (HEADS.format(f"```python\n{NEW}", LAUNCH), 2),
    "fences in a fence": (f"```markdown\nFaster.\n{code()}```\n", 1),
    "a fence of four back quotes around one of three": (f"````text\n{code()}````\n", "not Python"),
    "a fence with attributes": (f"```{{.python .numberLines}}\n{NEW}```\n", 1),
    "fences of two kinds mixed up": (f"```python\n{NEW}~~~\n", "not Python"),
    "a fence behind words on one line": (f"Here: ```python\n{NEW}```\n", "no code found"),
    "a shell session": ("```bash\n$ pip install triton\n```\n", "not Python"),
    "a quotation": ("".join(f"> {line}\n" for line in code().splitlines()), "no code found"),
    # characters
    "CRLF": (BOTH.replace("\n", "\r\n"), 2),
    "old line ends": (EDIT.replace("\n", "\r"), 1),
    "Unicode's line separators": (EDIT.replace("\n", "\u2028"), "cut off"),
    "a separator in a line": (edit(STORE, STORE + "  # a\u2028b"), "changes nothing"),
    "a byte order mark": ("\ufeff" + EDIT, 1),
    "tabs": (EDIT.replace("    ", "\t"), 1),
    "no-break spaces": (EDIT.replace("    ", "\u00a0\u00a0\u00a0\u00a0"), "not Python"),
    "HTML entities": (EDIT.replace("<", "&lt;").replace(">", "&gt;"), "no code found"),
    "typographic quotes": (LAUNCH.replace('"', "\u201d"), "no JSON"),
    "null bytes": (EDIT.replace("1 + y", "1 + y\0"), "not Python"),
    "halves of characters": (EDIT.replace("1 + y", "1 + \ud800"), "not Python"),
    "half a character in TTGIR": (f"```ttgir\n{TEXT}// \ud800\n```\n", "no text has"),
    "bytes of another encoding": (EDIT.replace("1 + y", "1 + \ufffdy"), "not Python"),
    "escape sequences of a terminal": (f"\x1b[31m{EDIT}\x1b[0m", "no code found"),
    # size
    "200 kB of prose": ("More warps hide more of the latency. " * 5500, "no code found"),
    "200 kB of code": (code(NEW + "x = 1\n" * 33_000), "more than 1000 statements"),
    "200 kB of open brackets": (code("def kernel(): " + "(" * 200_000), "not Python"),
    "200 kB of edits": (EDIT * 1300, "more than 100 edits"),
    "200 kB of TTGIR": (f"```ttgir\n{TEXT + '// x' * 50_000}\n```\n", 1),
    "200 kB on one line of configurations": ("```json\n[" + '{"BLOCK": 64}, ' * 14_000 + "]\n```", "too long"),
    "400 kB of line ends in TTGIR": (f"```ttgir\n{chr(10) * 400_000}tt.func\n```\n", 1),
    "40 kB of insertions": ("```edits\n" + "insert after L4:\n %a = math.absf %v : f32\n" * 900 + "```", "200 edits"),
    "longer than a reply may be": ("x" * 1_000_001, "longer than"),
    # edits
    "markers of a merge": (EDIT.replace("SEARCH", "HEAD").replace("REPLACE", "theirs"), "no code found"),
    "an edit without an end": (EDIT.partition(">>>>")[0], "cut off"),
    "a search text that is not there": (edit("    y = tl.load(p)", STORED), "is not found"),
    "a search text that is there twice": (edit("@triton.jit", "") * 2, "is not found"),
    "a search text from memory": (edit(STORE.replace("inside", "mask"), STORED), "is not found"),
    "an edit of the reference": (edit("def reference(x):", "def reference(x, y):"), "is not found"),
    "an edit of a tolerance": (edit('CASES, SMALL = {}, {}; TOLERANCE = {"mean": 1.375}', ""), "is not found"),
    "an edit that changes nothing": (edit(STORE, STORE), "changes nothing"),
    "a diff": (f"```diff\n{DIFF}```\n", 1),
    "a diff without a fence": (DIFF, 1),
    "a diff without hunks": (f"```diff\n-{STORE}\n+{STORED}\n```\n", "no hunk"),
    "a diff that only adds": ("```diff\n@@ -1 +1,2 @@\n+import os\n```\n", "no lines around"),
    # whole kernel parts
    "a kernel without its launcher": (code("@triton.jit\ndef _add(x):\n    pass\n"), "does not define kernel()"),
    "a file with another contract": (code(NEW + "TOLERANCE = {}\ndef reference(x): return 0\n"), 1),
    "the text that was shown": (code(PART), "changes nothing"),
    "C++": ("```cpp\n__global__ void add(float* x) { x[threadIdx.x] += 1; }\n```\n", "not Python"),
    "code with elisions": (code("def kernel(x):\n    ... existing code ...\n"), "not Python"),
    # launch changes
    "JSON with comments and a last comma": ('```json\n[{"BLOCK": 256, // less\n},] # so\n```\n', 1),
    "Python in place of JSON": ("```json\n[{'BLOCK': 256, 'num_warps': 8},]\n```\n", 1),
    "JSON that is cut off": ('```json\n[{"BLOCK": 256, "num_wa', "no JSON"),
    "JSON nested without end": ("```json\n" + "[" * 9000 + "\n```", "no JSON"),
    "JSON nested 900 deep": ("```json\n" + "[" * 900 + "]" * 900 + "\n```", 0),
    "a line of semicolons": ("```launch\nBLOCK=" + ";" * 19_000 + "!\n```\n", "is no configuration"),
    "JSON of something else": ('```json\n{"thought": "more warps", "answer": ["yes"]}\n```\n', "is no configuration"),
    "an expression as a value": ('```json\n[{"BLOCK": 2 ** 40}]\n```\n', "no JSON"),
    "a parameter that there is not": ("```launch\nBLOCK_M=64\n```\n", "it has BLOCK, num_warps"),
    "a value in words": ('```json\n[{"BLOCK": "large"}]\n```\n', "must be an integer"),
    "a fraction": ('```json\n[{"BLOCK": 12.5}]\n```\n', "must be an integer"),
    "an endless number": ('```json\n[{"BLOCK": Infinity}]\n```\n', "must be an integer"),
    "a number of 5000 digits": (f'```json\n[{{"BLOCK": {"9" * 5000}}}]\n```\n', "JSON"),
    "an absurd number": ("```launch\nBLOCK=1000000\n```\n", "out of range"),
    "three warps": ("```launch\nnum_warps=3\n```\n", "power of two"),
    "seven configurations": ("```launch\n" + "".join(f"BLOCK={64 * i}\n" for i in range(1, 8)) + "```\n", "6 at most"),
    "a kernel that there is not": ('```json\n{"_mul": [{"BLOCK": 256}]}\n```\n', "there is no kernel _mul"),
    "configurations without a fence": ("Try these:\n\nBLOCK=256 num_warps=8\n", 1),
    # TTGIR
    "a script with a label that there is not": ("```edits\nmove L99 before L3\n```\n", "there is no line L99"),
    "a script in words": ("```edits\nPlease move the load up.\n```\n", "edit"),
    "a script without a fence": ("The load can go first.\n\nmove L4 before L3\n", 1),
    "a script that undoes itself": ("```edits\nmove L4 before L3\nmove L4 after L3\n```\n", "edit 2"),
    "a script with fences inside": ("```edits\ninsert after L4:\n```\n%a = math.absf %v : f32\n```\n```\n", 1),
    "a script that breaks the order of values": ("```edits\nmove L5 before L2\n```\n", "edit 1"),
    "lines of the view as TTGIR": ("```ttgir\nL4 arg0_tile = load arg0_ptrs\n```\n", "no tt.func"),
    "a snippet of TTGIR": ("```ttgir\n%v = tt.load %p : !tt.ptr<f32>\n```\n", "no tt.func"),
    "TTGIR of another kernel": (f"```ttgir\n// replaces: {'cd' * 32}\n{TEXT.replace('twice', 'thrice')}```\n", 1),
    "TTGIR without a fence": (f"Here it is.\n{TEXT.replace('2.0', '3.0')}", 1),
    "TTGIR with a configuration of no form": (f"```mlir\n// at: {{BLOCK\n{TEXT.replace('2.0', '3.0')}```\n", 1),
    "the TTGIR that was shown": (f"```ttgir\n{TEXT}```\n", "changes nothing"),
    # several candidates
    "one of two broken": (HEADS.format(edit("no", "such"), LAUNCH), 1),
    "headings in bold": (BOTH.replace("## Candidate 1: store", "**Candidate 1: store**"), 2),
    "headings without marks": (BOTH.replace("## ", ""), 2),
    "headings by letters": (BOTH.replace("Candidate 1", "Option A").replace("Candidate 2", "Option B"), 2),
    "five candidates": (
        "".join(f"## Candidate {i}\n```launch\nBLOCK={64 * i}\n```\n" for i in range(1, 6)),
        4,
    ),
    "a heading in a comment of the code": (code(NEW.replace("def kernel", "## Candidate 2: lie\ndef kernel")), 1),
    "all forms at once": (f"{EDIT}\n{code()}\n{LAUNCH}\n{SCRIPT}", 1),
    "the same candidate twice": (HEADS.format(EDIT, EDIT), 1),
}
