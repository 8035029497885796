"""A comparison of two revisions as JUnit XML: one test for the results, one for the time of each public case."""

from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from pgo_agent.agent import text as texts
from pgo_agent.agent.run.regression import Outcome, Result
from pgo_agent.agent.views.regression import figures
from pgo_agent.sandbox.errors import Fault

_PASSED = (Outcome.SAME_CODE, Outcome.NOT_SLOWER, Outcome.RIGHT)
Test = tuple[str, str, str]  # name, how it ended (empty: it passed), what is said


def text(result: Result) -> str:
    """Return the document."""
    said = f"{result.file} {result.said}{f' ({result.stage}: {result.reason})' if result.reason else ''}"
    return _document(result.file, list(_tests(result, said)))


def failed(file: str, base: str, fault: Fault) -> str:
    """Return the document of a comparison that could not be made."""
    return _document(file, [(f"comparison with {base}", "error", str(fault))])


def _tests(result: Result, said: str) -> Iterator[Test]:
    timed = result.speedup is not None
    if result.outcome in _PASSED or timed:
        yield "results", "", said
    else:
        yield "results", "error" if result.outcome == Outcome.UNDECIDED else "failure", said
    if result.outcome == Outcome.SAME_CODE:
        yield "time", "", "the same code takes the same time"
    elif not timed:
        yield "time", "skipped", "not timed"
    else:
        ended = {str(Outcome.SLOWER): "failure", str(Outcome.UNDECIDED): "error"}.get(result.outcome, "")
        yield "time", ended, said
        yield from ((f"time of {c}", "", figures.time(r)) for c, r in result.cases.items())


def _document(file: str, tests: list[Test]) -> str:
    counts = {k: str(sum(t[1] == e for t in tests)) for k, e in
              (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))}  # fmt: skip
    suite = Element("testsuite", {"name": "pgo-agent check", "tests": str(len(tests)), **counts})
    for name, ended, said in tests:
        test = SubElement(suite, "testcase", {"classname": _clean(file), "name": _clean(name)})
        if ended:
            SubElement(test, ended, {"message": _clean(said)})
        else:
            SubElement(test, "system-out").text = _clean(said)
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def _clean(words: str) -> str:
    """Return words without what XML has no form of."""
    return texts.line(words, None)
