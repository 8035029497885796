"""A whole kernel part, in a fence or as the reply itself; and whether a part is Triton or Gluon."""

import ast
import re

from pgo_agent.agent.llm.replies.errors import BadReply
from pgo_agent.agent.llm.replies.merge_contract import problem
from pgo_agent.sandbox import parsing

GLUON = "triton.experimental.gluon"
KERNEL = re.compile(r"^(def kernel\b|kernel *=)", re.M)


def is_whole(code: str) -> bool:
    """Whether a text is Python that defines kernel()."""
    return KERNEL.search(code) is not None and not problem(code)


def refused(code: str, closed: bool) -> BadReply:
    """Return why a fence holds no kernel part."""
    fault = problem(code) or "the code does not define kernel(): give the whole kernel part, or edits"
    return BadReply(fault if closed else f"the code block is cut off: {fault}")


def kind(part: str) -> str:
    """Return `gluon` for a kernel part that imports Gluon, else `source`."""
    imported = [n for n in ast.walk(parsing.module(part)) if isinstance(n, ast.Import | ast.ImportFrom)]
    names = [f"{getattr(n, 'module', None) or ''}.{a.name}".strip(".") for n in imported for a in n.names]
    return "gluon" if any(f"{name}.".startswith(f"{GLUON}.") for name in names) else "source"
