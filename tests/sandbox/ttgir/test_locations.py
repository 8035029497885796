"""Locations of MLIR: what they say to each who asks, and that no text of them takes more than its share."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_agent.sandbox.gate.barriers import values
from pgo_agent.sandbox.profile import line_map
from pgo_agent.sandbox.ttgir.locations import MOST, Frame, Frames, Locations
from pgo_agent.sandbox.ttgir.pseudocode.source import Source, StatementLocation
from pgo_agent.sandbox.ttgir.tree import Op

K, STANDARD = "/box/candidate/k.py", "/usr/lib/triton/language/standard.py"
ALIASES = {
    "#loc": f'loc("{K}":10:4)',
    "#loc1": "loc(unknown)",
    "#loc2": 'loc("x"(#loc))',
    "#loc3": f'loc("{K}":30:8)',
    "#loc4": "loc(callsite(#loc2 at #loc3))",
    "#loc5": 'loc(fused<"why">[unknown, #loc4, #loc])',
    "#loc6": "loc(callsite(#loc6 at #loc6))",
    "#loc7": f'loc("{STANDARD}":180:40)',
    "#loc8": "loc(callsite(#loc7 at #loc4))",
    "#loc9": 'loc("k")',
    "#loc10": 'loc("acc"(#loc8))',
    "#loc11": f'loc("{K}":12:0 to :9)',
    "#loc12": "loc(callsite(#loc1 at #loc2))",
    "#loc13": f'loc("{K}":0:0)',
    "#loc14": 'loc(fused<{a = [1], b = "]"}>[callsite(#loc13 at #loc3)])',
    "#loc15": 'loc("y"("x"(#loc)))',
    "#loc16": "loc(#loc15)",
    "#layout": "#ttg.blocked<{order = [0]}>",
}
CALLED, CALLER, LIBRARY = Frame(K, 10, 4, ("x",)), Frame(K, 30, 8), Frame(STANDARD, 180, 40)


@pytest.mark.parametrize(
    ("location", "frames"),
    [
        ("#loc", (Frame(K, 10, 4),)),
        ("#loc4", (CALLED, CALLER)),
        ("#loc8", (LIBRARY, CALLED, CALLER)),
        ("#loc11", (Frame(K, 12, 0),)),
        ("#loc12", (CALLED,)),
        ("#loc15", (Frame(K, 10, 4, ("y", "x")),)),
        ("#loc16", (Frame(K, 10, 4, ("y", "x")),)),
        ('callsite("a.py":1:2 at "v"("b.py":3:4))', (Frame("a.py", 1, 2), Frame("b.py", 3, 4, ("v",)))),
    ],
)
def test_a_location_gives_its_frames_with_their_names(location: str, frames: Frames) -> None:
    assert Locations(ALIASES).frames(location) == frames


def test_of_a_fused_location_the_first_part_that_names_a_file_counts() -> None:
    found = Locations(ALIASES)
    assert found.frames("#loc5") == (CALLED, CALLER)
    assert found.frames("#loc14") == (Frame(K, 0, 0), CALLER)


def test_a_name_around_a_call_is_of_the_caller() -> None:
    assert Locations(ALIASES).frames("#loc10") == (LIBRARY, CALLED, Frame(K, 30, 8, ("acc",)))


BROKEN = [
    *["", "unknown", "#loc1", "#loc6", "#loc9", "#missing", "#layout", '"k"', 'callsite("broken', "fused[]", "é"],
    *['"k.py":1', '"k.py":a:2', '"k.py":1:2:3', f'"k.py":{"9" * 5000}:2', "loc(" * 5000, "fused<<[#loc]"],
    *["callsite(#loc at #loc", "callsite(#loc, #loc)", "#loc #loc", '"x"(' * 65 + "#loc" + ")" * 65],
]


@pytest.mark.parametrize("location", BROKEN, ids=lambda text: text[:20])
def test_what_names_no_file_or_is_broken_says_nothing(location: str) -> None:
    assert Locations(ALIASES).frames(location) == ()


# who asks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("#loc", "k.py:10"),
        ("#loc1", ""),
        ("#loc2", "k.py:10"),
        ("#loc4", "k.py:10"),
        ("#loc5", "k.py:10"),
        ("#loc7", "standard.py:180"),
        ("#loc8", "k.py:10"),
        ("#loc13", ""),
        ("#loc14", "k.py:30"),
        ('"/a/b.py":3:1', "b.py:3"),
    ],
)
def test_the_gate_tells_the_innermost_line_outside_of_tritons_library(location: str, said: str) -> None:
    assert values.place(Locations(ALIASES).frames(location)) == said


def test_the_profile_keeps_files_without_their_folders() -> None:
    place = line_map.place(Locations(ALIASES).frames("#loc8"))
    assert place.names == ("x",)
    assert place.frames == (
        line_map.Frame("standard.py", 180, 40),
        line_map.Frame("k.py", 10, 4),
        line_map.Frame("k.py", 30, 8),
    )
    assert (place.line("k.py"), place.line("standard.py"), place.line("none.py")) == (10, 180, 0)
    assert place.file == "k.py"
    assert line_map.place(()) == line_map.NOWHERE


def test_pseudo_code_takes_the_innermost_place_in_the_kernels_own_file() -> None:
    source = Source(Locations(ALIASES), K)
    assert source.place(_op("#loc8")) == StatementLocation(K, 10, "x")
    assert source.place(_op("#loc7")) is None
    assert Source(Locations(ALIASES), "/elsewhere/k.py").place(_op("#loc8")) is None


@pytest.mark.parametrize(("names", "variable"), [(("acc",), "acc"), (("a b", "", "x"), "x"), (("1",), ""), ((), "")])
def test_only_names_that_python_has_are_variables(names: tuple[str, ...], variable: str) -> None:
    around = "".join(f'"{name}"(' for name in names) + "#loc" + ")" * len(names)
    assert Source(Locations(ALIASES), K).name(around) == variable


def _op(location: str) -> Op:
    return Op(("",), "tt.load", 1, (), (), (), (), {}, (), (), location)


# any text -------------------------------------------------------------------------------------------------------------

WORDS = ["loc", "(", ")", "#loc4", "callsite", "at", "fused", "[", "]", "<", ">", ",", '"f"', ":", "3", "to", "{", "é"]


@given(st.lists(st.sampled_from(WORDS)))
def test_any_words_say_something_or_nothing(words: list[str]) -> None:
    assert len(Locations(ALIASES | {"#loc4": f"loc({' '.join(words)})"}).frames("#loc4")) <= MOST
    assert len(Locations(ALIASES).frames(" ".join(words))) <= MOST


FORMS = [
    "#",
    '"n"(#)',
    "callsite(# at #)",
    "fused[#, #, #]",
    'callsite("k.py":1:2 at #)',
    'fused<"why">["k.py":3:4, #]',
]


@settings(max_examples=200)
@given(count=st.integers(1, 300), forms=st.lists(st.sampled_from(FORMS), min_size=1), seed=st.integers(0, 2**32))
def test_aliases_that_name_each_other_at_random_are_read_in_bounded_time(
    count: int, forms: list[str], seed: int
) -> None:
    """In circles, themselves, and many from many."""
    dice = random.Random(seed)
    texts = [f"loc({dice.choice(forms)})" for _ in range(count)]
    found, seconds = _timed({f"#loc{i}": _filled(text, dice, 0, count) for i, text in enumerate(texts)})
    assert all(len(frames) <= MOST and all(len(f.names) <= MOST for f in frames) for frames in found)
    assert seconds < 1.0


@settings(max_examples=100)
@given(count=st.integers(1, 300), forms=st.lists(st.sampled_from(FORMS), min_size=1), seed=st.integers(0, 2**32))
def test_aliases_without_circles_all_say_where_they_are(count: int, forms: list[str], seed: int) -> None:
    dice = random.Random(seed)
    texts = {f"#loc{i}": f"loc({_filled(dice.choice(forms), dice, 0, i)})" for i in range(1, count)}
    aliases = list((texts | {"#loc0": 'loc("k.py":1:1)'}).items())
    dice.shuffle(aliases)
    found, seconds = _timed(dict(aliases))
    assert all(1 <= len(frames) <= MOST for frames in found)
    assert seconds < 1.0


def _filled(text: str, dice: random.Random, low: int, high: int) -> str:
    """The text with an alias in every gap."""
    first, *rest = text.split("#")
    return first + "".join(f"#loc{dice.randrange(low, high)}{part}" for part in rest)


def _timed(aliases: dict[str, str]) -> tuple[list[Frames], float]:
    begin = time.process_time()
    locations = Locations(aliases)
    found = [locations.frames(alias) for alias in aliases]
    return found, time.process_time() - begin


@pytest.mark.parametrize("form", FORMS)
def test_a_chain_of_ten_thousand_aliases_is_read_to_its_end(form: str) -> None:
    chain = {f"#loc{n}": f"loc({form.replace('#', f'#loc{n - 1}')})" for n in range(10_000, 0, -1)}
    found, seconds = _timed(chain | {"#loc0": 'loc("k.py":1:1)'})
    assert all(1 <= len(frames) <= MOST for frames in found)
    assert seconds < 5.0


def test_a_circle_of_ten_thousand_aliases_says_nothing_and_what_is_beside_it_all() -> None:
    circle = {f"#loc{n}": f"loc(callsite(#loc{(n + 1) % 10_000} at #beside))" for n in range(10_000)}
    found = Locations(circle | {"#beside": 'loc("k.py":1:1)'})
    assert found.frames("#loc0") == found.frames("#loc9999") == ()
    assert found.frames("#beside") == (Frame("k.py", 1, 1),)
    assert found.frames("callsite(#loc0 at #beside)") == (Frame("k.py", 1, 1),)
