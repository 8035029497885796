"""Python is parsed in one thread at a time: CPython before 3.11.8 does not stand two (its issue 106905)."""

import ast
import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pgo_agent.sandbox import parsing

from tests.conftest import FA_FWD, ROOT

NESTED = "[" + "[[[1], 2], 3]," * 300 + "]"
PARSES: dict[str, Callable[[str], Any]] = {
    "a file": parsing.module,
    "an expression": lambda _: parsing.expression(NESTED),
    "a literal": lambda _: parsing.literal(NESTED),
}


@pytest.fixture
def collector_that_lets_others_in() -> Iterator[None]:
    """The garbage collector runs often, and each time as a finalizer would that another thread takes over in."""

    def yields(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)

    before = gc.get_threshold()
    gc.set_threshold(50)
    gc.callbacks.append(yields)
    yield
    gc.callbacks.remove(yields)
    gc.set_threshold(*before)


@pytest.mark.parametrize("name", PARSES)
@pytest.mark.usefixtures("collector_that_lets_others_in")
def test_threads_that_parse_at_once_do_not_disturb_each_other(name: str) -> None:
    text = FA_FWD.read_text()
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(parse, text) for _ in range(10) for parse in (parsing.module, PARSES[name])]
    assert all(task.result() is not None for task in both)


@pytest.mark.parametrize("line", ["# coding: unicode_escape", "#!/bin/python\n# -*- coding: latin-1 -*-"])
def test_a_text_by_whose_encoding_python_would_run_another_program_is_refused(line: str) -> None:
    with pytest.raises(SyntaxError, match="encoding"):
        parsing.module(f"{line}\nx = 1  # \\n y = 2\n")
    assert parsing.module("# -*- coding: utf-8 -*-\nx = 1\n").body


def test_nothing_else_calls_the_parser() -> None:
    files = (f for folder in ("agent", "sandbox", "evals") for f in (ROOT / folder).rglob("*.py"))
    texts = {f: text for f in files if "ast" in (text := f.read_text()) and "parse" in text}
    calling = [f.relative_to(ROOT) for f, text in texts.items() if "parse" in _of_ast(ast.parse(text))]
    assert [str(f) for f in calling] == ["sandbox/parsing.py"] and len(texts) > 20


def _of_ast(tree: ast.Module) -> set[str]:
    """The names that a file uses of `ast`."""
    used = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "ast"}
    imported = (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "ast")
    return used | {a.name for n in imported for a in n.names}
