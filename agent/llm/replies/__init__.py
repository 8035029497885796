"""Turns the reply of a model into candidates. Lenient in form, strict in meaning; no reply makes it raise.

A reply is one candidate, or up to four (`split.MOST`) under headings of their own. Each is a sentence (bottleneck,
change, expected effect), then one of the forms below. Text in fences is never read as a heading or as prose.

    ## Candidate 1: deeper pipeline
    One sentence.
    (a form)

    ## Candidate 2: transposed store
    One sentence.
    (a form)

Under a heading `## Candidate 2: edits of candidate 1: ..` edits change that candidate, not the kernel that was shown.

Source, as edits (`search_replace.py`). Each quotes whole lines exactly as they stand, enough of them to be unique:

    <<<<<<< SEARCH
        acc = tl.dot(a, b) + acc
    =======
        acc = tl.dot(a, b, acc)
    >>>>>>> REPLACE

Source, whole: all of the kernel part in one ```python fence. It may be Triton or Gluon: what imports
`triton.experimental.gluon` is a candidate of the kind `gluon`. (A unified diff in a ```diff fence is taken for edits.)

Launch (`launch_configs.py`): configurations in place of those of the launch, at most six (`moves.CARRIED`), each whole.
With several kernels, an object of lists by kernel name. A plain launch (not autotuned) makes a candidate of each.

    ```json
    [{"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 3}]
    ```
    ```launch
    BLOCK_M=128 BLOCK_N=64 num_warps=8 num_stages=3
    other_kernel: BLOCK=256 num_warps=4
    ```

TTGIR (`ttgir.py`), as an edit script with labels of the readable view that was shown (`proposal/ttgir_view.py` chooses
the kernel; `sandbox/ttgir/edits/reference.py` explains scripts to a model), or whole:

    ```edits
    move L31 before L28
    set L31 pendings = 1
    ```
    ```ttgir
    module attributes {...} { tt.func public @kernel(...) ... }
    ```

A whole text replaces the kernel that was shown; a line `// replaces: KEY` in it names another one.

`parse.parse` reads a reply, `merge_contract.merge` merges a kernel part with the contract of the target. Nothing here
executes or imports what it reads.
"""

from pgo_agent.agent.llm.replies.errors import LONGEST, TOO_DEEP, BadReply
from pgo_agent.agent.llm.replies.fences import rationale
from pgo_agent.agent.llm.replies.merge_contract import merge
from pgo_agent.agent.llm.replies.parse import Parsed, Proposed, Unread, parse

__all__ = ["LONGEST", "TOO_DEEP", "BadReply", "Parsed", "Proposed", "Unread", "merge", "parse", "rationale"]
