"""Merges a kernel part with the contract of a target. Parts of the contract in a reply are dropped, with a note.

Relies on `ast` and on the contract's names in `sandbox/target.py`. Definitions that the new part uses but omits come
from the file that it replaces a part of.
"""

import ast
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from pgo_agent.agent.kernel_part import Block, blocks, hidden, kernel_part, mentioned, used_by
from pgo_agent.agent.llm.replies.errors import TOO_DEEP, BadReply, Nothing, short
from pgo_agent.sandbox import parsing
from pgo_agent.sandbox.target import CONTRACT, same_contract

MOST_STATEMENTS = 1000  # at the top level of a kernel part


def candidate(kernel: str, source: str) -> tuple[str, list[str]]:
    """Return a candidate's file, and notes on what was dropped. Raises BadReply."""
    try:
        whole, notes = _merged(source, kernel)
        if ast.dump(parsing.module(whole)) == _unchanged(source):
            raise Nothing("the reply changes nothing")
    except RecursionError:
        raise BadReply(TOO_DEEP) from None
    return whole, notes


@lru_cache(maxsize=8)
def _unchanged(source: str) -> str:
    """The syntax tree of a reply that returns the kernel part unchanged."""
    return ast.dump(parsing.module(_merged(source, kernel_part(source))[0]))


def merge(source: str, kernel: str) -> str:
    """Return the file `source` with another kernel part and its own contract, whatever `kernel` holds. Raises
    BadReply."""
    return _merged(source, kernel)[0]


def _merged(source: str, kernel: str) -> tuple[str, list[str]]:
    """The merged file, and a note on what was dropped. Definitions that the reply omits come from the source."""
    if fault := problem(kernel):
        raise BadReply(fault)
    if len(parsing.module(kernel).body) > MOST_STATEMENTS:
        raise BadReply(f"the code has more than {MOST_STATEMENTS} statements at its top level")
    ours, theirs = blocks(source), blocks(kernel)
    secret = hidden(ours)
    contract = [b for i, b in enumerate(ours) if i in secret]
    protected = CONTRACT.union(*(b.names for b in contract))
    new = [b for b in theirs if not b.names & protected]
    defined, wanted = _union(b.names for b in new), _union(b.loads for b in new)
    if "kernel" not in defined:
        raise BadReply("the code does not define kernel()")
    used = used_by(ours, secret | {i for i, b in enumerate(ours) if b.names & wanted})
    text = _joined(new, [ours[i] for i in sorted(used - secret) if not ours[i].names <= defined], contract)
    if problem(text) or not same_contract(text, source):
        raise BadReply("the contract did not come through")
    dropped = sorted(_union(b.names for b in theirs) & protected)
    return text, [f"dropped from the reply, for the target defines it: {', '.join(dropped)}"] if dropped else []


def _joined(new: Sequence[Block], missing: Sequence[Block], contract: Sequence[Block]) -> str:
    """The merged text. The contract comes last, except for what the kernel part reads at import."""
    early = _union(mentioned(_run_at_import(n)) for b in new for n in b.nodes)
    cut = max((i for i, b in enumerate(contract, 1) if b.names & early), default=0)
    above = [b for b in missing if b.imports or cut]
    below = [b for b in missing if b not in above]
    body = (i for i, b in enumerate(new) if not (b.imports or _is_text(b.nodes[0])))
    head = next(body, len(new)) if above or cut else len(new)
    groups = (new[:head], above, contract[:cut], new[head:], below, contract[cut:])
    texts = ("".join(b.text for b in group).strip("\n") for group in groups)
    return "\n\n\n".join(t for t in texts if t) + "\n"


def _union(sets: Iterable[Collection[str]]) -> set[str]:
    return set[str]().union(*sets)


def _run_at_import(node: ast.stmt) -> list[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [*node.decorator_list, node.args]
    return [node]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def problem(code: str) -> str:
    """Return why a text is not Python, with the line; empty if it is."""
    try:
        parsing.module(code)
        return ""
    except (SyntaxError, ValueError) as e:
        line = getattr(e, "lineno", None) or 0
        message = short(f"line {line} is not Python ({getattr(e, 'msg', e)})" if line else f"not Python ({e})")
        shown = short("".join(code.split("\n")[line - 1 : line]) if line else "")
        return f"{message}: {shown}" if shown else message
    except (RecursionError, MemoryError):
        return TOO_DEEP
