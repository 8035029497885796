"""What the installed Gluon offers is read from the package, in the box, and told in bounded lines."""

import inspect
from pathlib import Path

import pytest
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.build.builder import Builder
from pgo_agent.sandbox.bundle.store import ContentStore
from pgo_agent.sandbox.isolation import box
from pgo_agent.sandbox.profile import gluon_api
from pgo_agent.sandbox.profile.backend import Workbench
from triton.experimental.gluon.language.nvidia import hopper

from tests.agent.command_line import write


def bench(folder: Path, device: str = "h200") -> Workbench:
    found = target.read(write(folder))
    return Workbench(Builder(found, devices.find(device), box.choose("auto"), ContentStore(folder / "shelf")))


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    return gluon_api.api(bench(tmp_path_factory.mktemp("gluon")))


def test_it_names_every_function_that_the_installed_package_has_for_hopper(lines: tuple[str, ...]) -> None:
    called = {line.partition("(")[0] for line in lines}
    own = {n for n in hopper.__all__ if not inspect.ismodule(getattr(hopper, n))}
    assert own <= called
    assert {f"tma.{n}" for n in hopper.tma.__all__} <= called
    assert {f"mbarrier.{n}" for n in hopper.mbarrier.__all__} <= called


def test_arguments_are_those_that_the_package_takes(lines: tuple[str, ...]) -> None:
    (wait,) = [line for line in lines if line.startswith("warpgroup_mma_wait(")]
    taken = [n for n in inspect.signature(hopper.warpgroup_mma_wait).parameters if n != "_semantic"]
    assert wait.partition("(")[2].rstrip(")") == "num_outstanding=0, deps=None" and taken == ["num_outstanding", "deps"]


def test_it_is_short_and_plain(lines: tuple[str, ...]) -> None:
    assert 20 < len(lines) <= gluon_api.MOST
    assert all(line.isprintable() and len(line) <= gluon_api.LONGEST and "_semantic" not in line for line in lines)


def test_the_answer_is_kept(tmp_path: Path) -> None:
    context = bench(tmp_path)
    assert not gluon_api.api.known(context)
    gluon_api.api(context)
    assert gluon_api.api.known(context)


def test_an_older_architecture_has_no_warpgroups(tmp_path: Path) -> None:
    found = gluon_api.api(bench(tmp_path, "a100"))
    assert found and not any("warpgroup" in line or line.startswith("tma.") for line in found)


@pytest.mark.parametrize("left", ["", "[]", '{"lines": 3}', '{"lines": [1, null, "  "]}', "{" * 100_000])
def test_an_answer_that_is_none_leaves_no_lines(tmp_path: Path, left: str) -> None:
    (tmp_path / "result.json").write_text(left)
    assert gluon_api._read(tmp_path / "result.json") == ()


def test_lines_that_came_back_are_cut_and_made_printable(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"lines": ["gl.f(\\n\\u001b[31mx)", "%s"]}' % ("y" * 1000))
    assert gluon_api._read(tmp_path / "result.json") == ("gl.f(  [31mx)", "y" * gluon_api.LONGEST)
