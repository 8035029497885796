"""Pages for users say what the program says: words that are quoted exist, and so do files and pages that are named."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs").glob("*.md"))
OURS = re.compile(r"`((?:agent|sandbox|evals|kernels|prompts|tests|docs)/[\w./-]+)`")
SAID = re.compile(r"`([^`]*)`")


@pytest.fixture(scope="module")
def code() -> str:
    """All source text, with the pieces of strings that are written over several lines put together."""
    texts = (p.read_text() for folder in ("agent", "sandbox") for p in sorted((ROOT / folder).rglob("*.py")))
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(texts))


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "AGENTS.md", *PAGES], ids=lambda p: p.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = OURS.findall(page.read_text())
    assert [n for n in named if not list(ROOT.glob(n.rstrip(".")))] == []


def test_what_troubleshooting_quotes_is_what_the_program_says(code: str) -> None:
    rows = [line for line in (ROOT / "docs" / "troubleshooting.md").read_text().splitlines() if line.startswith("| ")]
    seen = [s for row in rows[2:] for s in SAID.findall(row.split(" | ")[0])]
    assert len(seen) > 10
    assert [s for s in seen if s not in code and s.removeprefix("1.04x ") not in code and s != "--no-wait"] == []


def test_every_page_is_named_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    tree = text[text.index("docs/       ") :].splitlines()[0]
    assert [p.stem for p in PAGES if p.stem not in tree] == []
