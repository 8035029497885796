"""The page of a profile: it loads nothing, whatever a kernel calls itself, and it says what the terminal says."""

import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.agent.profile.case_profile import Profile
from pgo_agent.agent.profile.findings import Defect, Finding
from pgo_agent.agent.profile.summary import Summary
from pgo_agent.agent.views.charts import roofline
from pgo_agent.agent.views.profile import format, page
from pgo_agent.sandbox.profile.kernel_profile import KernelProfile, Roofline
from pgo_agent.sandbox.profile.timeline.types import Timed, Timeline

from tests.agent import timelines
from tests.agent.views.test_profile_terminal import SOURCE, full, profiled

VOID = {"meta", "br", "hr", "img", "input", "link"}
LOADING = {"script", "link", "img", "iframe", "object", "embed", "audio", "video", "image", "use", "base", "form", "a"}
HOSTILE = "</pre></style></title><script>alert(1)</script><img src=x onerror='y'>\"'&{{ 7*7 }}{% raw %}"


class Read(HTMLParser):
    """A page as a list of its elements, with its text. Fails on an end tag that ends nothing."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> ends nothing"

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def summary(text: str) -> Summary:
    return Summary("CASES/one", "", None, (), (), "", (), (), text)


def named(hostile: str) -> tuple[Profile, str, Summary]:
    """A profile in which everything that a target or its compiler chooses is that text."""
    k = full("cp_async")
    assert isinstance(k.timeline, Timeline)
    timed = tuple(replace(p, timed=_renamed(p.timed, hostile)) for p in k.timeline.passes)
    k = replace(k, kernel=hostile, timeline=replace(k.timeline, passes=timed, machine={"gpu": hostile}))
    found = profiled(k)
    (case,) = found.cases
    finding = Finding(Defect.SPILL, 1.0, "B", 3, hostile)
    texts = dict(case=hostile, configuration=hostile, chosen=hostile, code={k.build: hostile})
    case = replace(case, findings={k.build: (finding,)}, **texts)  # type: ignore[arg-type]
    source = "\n".join([hostile.replace("\n", " ")] * 300)
    return replace(found, target=hostile, cases=(case,), failures=(hostile,)), source, summary(hostile)


def _renamed(timed: Timed, hostile: str) -> Timed:
    scopes = (replace(s, scope=replace(s.scope, role=hostile, source=f"{hostile}:7")) for s in timed.scopes)
    return replace(timed, scopes=tuple(scopes), problems=(hostile,))


@settings(max_examples=25)
@given(
    st.just(HOSTILE) | st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)
)
def test_hostile_names_and_sources_are_text_and_nothing_else(hostile: str) -> None:
    found, source, told = named(hostile)
    made = Read(page.render(found, source, {found.cases[0].case: told}))
    plain = Read(page.render(*_plain()))
    assert sorted(t for t, _ in made.elements) == sorted(t for t, _ in plain.elements)
    assert hostile in "".join(made.text)


def _plain() -> tuple[Profile, str, dict[str, Summary]]:
    found, source, told = named("plain")
    return found, source, {found.cases[0].case: told}


def test_a_page_loads_nothing_and_runs_nothing() -> None:
    found, source, told = named(HOSTILE)
    html = page.render(found, source, {HOSTILE: told})
    made = Read(html)
    assert not {t for t, _ in made.elements} & LOADING
    assert not [a for _, attrs in made.elements for a in attrs if a.startswith("on") or a in ("src", "href", "srcset")]
    assert "url(" not in html.replace(HOSTILE, "") and "@import" not in html
    policy = next(a["content"] for t, a in made.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


@pytest.mark.parametrize("name", ["attention", "cp_async"])
def test_every_figure_of_every_scope_is_in_the_page(name: str) -> None:
    k = full(name)
    assert isinstance(k.timeline, Timeline)
    html = page.render(profiled(k), SOURCE, {})
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr.*?</tr>", html)]
    for t in k.timeline.scopes:
        assert any(row[2:8] == list(format.figures(t)) for row in rows), t.scope.name


def test_bars_lie_within_their_track_and_tails_begin_where_bars_end() -> None:
    html = page.render(profiled(full("attention")), SOURCE, {})
    rects = re.findall(r'<rect class="(\w+)( tail)?" x="([\d.]+)%" width="([\d.]+)%"', html)
    bars = [(float(x), float(width)) for _, tail, x, width in rects if not tail]
    tails = [float(x) for _, tail, x, _ in rects if tail]
    assert bars and all(x >= 0 and x + width <= 100.001 for x, width in bars)
    ends = [x + width for x, width in bars]
    assert all(min(abs(x - end) for end in ends) < 0.002 for x in tails)


def test_without_a_gpu_there_is_no_empty_drawing_and_each_reason_once() -> None:
    html = page.render(profiled(timelines.bare("cp_async"), roof=False), SOURCE, {})
    Read(html)
    assert "<svg" not in html
    assert html.count("no GPU is visible here") == 2


def test_the_summary_stands_first() -> None:
    html = page.render(profiled(full("cp_async")), SOURCE, {"CASES/one": summary("Waits for dots come first.")})
    assert 0 < html.index("Waits for dots") < html.index("<svg")


FIGURES = st.floats(1e-3, 1e18)


@settings(max_examples=300)
@given(FIGURES, FIGURES, st.floats(1e-9, 1e3), FIGURES, FIGURES)
def test_a_roofline_is_drawn_within_its_frame(f: float, b: float, s: float, peak: float, memory: float) -> None:
    r = Roofline(f, b, s, "made up", peak, memory)
    p = roofline.plot(r)
    assert p is not None
    points = [tuple(map(float, xy.split(","))) for xy in p.roof.split()]
    for x, y in (*points, p.point):
        assert p.left - 0.1 <= x <= p.right + 0.1 and p.top - 0.1 <= y <= p.bottom + 0.1
    corner = points[1]
    assert (p.point[0] < corner[0] + 0.2) == (r.bound == "memory") or abs(p.point[0] - corner[0]) < 0.3


@pytest.mark.parametrize("nothing", [dict(flops=0.0), dict(bytes=0.0)])
def test_work_without_arithmetic_or_without_bytes_is_said_and_not_drawn(nothing: dict[str, float]) -> None:
    r = replace(timelines.roofline(), **nothing)
    assert roofline.plot(r) is None
    found = profiled(full("cp_async"))
    (case,) = found.cases
    html = page.render(replace(found, cases=(replace(case, roofline=r),)), SOURCE, {})
    assert format.roof(r) in unescape(html)


def test_a_kernel_without_any_pass_has_its_name_and_the_reasons() -> None:
    k: KernelProfile = timelines.bare("cp_async")
    text = "".join(Read(page.render(profiled(k), SOURCE, {})).text)
    assert "cp_async" in text and "No static profile: none was made" in text
