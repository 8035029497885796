"""What a build is told of the launches that a candidate leaves as they are."""

from pgo_agent.agent.evaluation.known_configs import best_first

SLOW, FAST, OTHER = ({"BLOCK": n, "num_warps": 4} for n in (32, 512, 1024))


def test_the_best_comes_first_then_what_was_measured_each_once() -> None:
    measured = {"_one": [SLOW, FAST, OTHER], "_two": [SLOW, OTHER, SLOW]}
    assert best_first([{"_one": FAST}], measured) == {"_one": [FAST, SLOW, OTHER], "_two": [SLOW, OTHER]}


def test_the_best_of_all_cases_come_in_their_order() -> None:
    best = [{"_one": OTHER}, {"_two": FAST}, {"_one": FAST}]
    assert best_first(best, {"_one": [SLOW]}) == {"_one": [OTHER, FAST, SLOW]}
