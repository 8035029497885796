"""`init --from-trace`: a trace of tritonparse is listed, and its kernels become targets.

The trace is of `model_kernels.py`, recorded without a GPU by `record.py`: its launches are real, its values unknown.
"""

import gzip
import json
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pgo_agent.agent.commands.traces import events, stream, summary, target_file
from pgo_agent.agent.commands.traces.launched_calls import calls, shrunk
from pgo_agent.agent.commands.traces.launcher import Launcher
from pgo_agent.sandbox import devices, target
from pgo_agent.sandbox.errors import UsageFault

from tests.agent.command_line import pgo
from tests.agent.commands.traces.edited import RECORDED, edited, function_only, lines, of

AS_IT_STOOD = "compared with the kernel as it stood, no independent reference"


def launcher(path: Path, kernel: str) -> Launcher:
    trace = summary.summarize(path)
    return target_file.made(trace, trace.named(kernel))


# the list -------------------------------------------------------------------------------------------------------------


def test_kernels_are_listed_with_launches_shapes_and_a_share_that_is_called_an_estimate(tmp_path: Path) -> None:
    done = pgo("init", "--from-trace", RECORDED, cwd=tmp_path)
    assert done.code == 0, done.err
    first = next(line.split() for line in done.out.splitlines() if line.startswith("_product"))
    assert first[:3] == ["_product", "6", "~58%"]
    assert "float16[1000, 512], float16[512, 2048], float16[1000, 2048] (2)" in done.out
    assert "ESTIMATE" in done.out
    assert f"pgo-agent init --from-trace {RECORDED} --kernel _product" in done.out


def test_measured_times_in_the_trace_take_the_place_of_the_estimate(tmp_path: Path) -> None:
    path = edited(tmp_path, lambda e: None)
    with path.open("a") as file:
        file.write(
            json.dumps({"event_type": events.TIMES, "ms": {"_norm": 0.1, "_product": 0.033}, "gpu": "NVIDIA H200"})
            + "\n"
        )
    done = pgo("init", "--from-trace", path, cwd=tmp_path)
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[1][:6] == ["_norm", "6", "75%", "0.1", "ms", "~6%"]
    assert next(row for row in rows if row[0] == "_product")[2:6] == ["25%", "0.033", "ms", "~94%"]
    assert "no: ~90% of its roof, or more" in done.out


# targets --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_target_passes_its_check_and_finds_a_wrong_candidate_wrong_without_an_edit(tmp_path: Path) -> None:
    done = pgo("init", "--from-trace", RECORDED, "--kernel", "_norm", cwd=tmp_path)
    assert done.code == 0, done.err
    assert AS_IT_STOOD in done.out
    path = tmp_path / "norm_target.py"
    written = target.read(path)
    assert written.of_original
    assert "def capped(" in written.source  # the helper that the kernel calls, and its constant
    assert (
        'WEIGHTS = {  # launches in the trace\n    "4096-512": 3,\n    "1000-512": 2,\n    "128-512": 1,\n}'
        in written.source
    )
    checked = pgo("init", "--check", path, "--json", cwd=tmp_path)
    (verdict,) = [e for e in checked.events if e["type"] == "candidate.verdict"]
    assert (checked.code, verdict["verdict"]) == (0, "no_change"), checked.err
    assert verdict["reason"].endswith(AS_IT_STOOD)
    part, contract = written.source.split("# ---", 1)
    candidate = tmp_path / "candidate.py"  # it changes the helper, which the original has its own copy of
    candidate.write_text(part.replace("-LIMIT)", "LIMIT / 30)") + "# ---" + contract)
    judged = pgo("check", candidate, "--target", path, "--json", cwd=tmp_path)
    assert [e["verdict"] for e in judged.events if e["type"] == "candidate.verdict"] == ["wrong"], judged.err


def test_grid_and_numbers_are_sizes_and_an_autotuner_is_replaced_by_what_it_chose() -> None:
    made = launcher(RECORDED, "_product")
    text = made.text[made.text.index("def launch_product") :]
    assert text.startswith("def launch_product(A, B):\n    C = torch.empty((A.shape[0], B.shape[1])")
    assert '_product[lambda meta: (triton.cdiv(A.shape[0], meta["BLOCK_M"]), triton.cdiv(B.shape[1], ' in text
    assert "A, B, C, A.shape[0], B.shape[1], A.shape[1], A.stride(0), 1, 1, B.stride(1), C.stride(0), 1" in text
    assert "BLOCK_M=64" in text and "num_warps=4" in text
    assert "autotune" not in made.text and "_configs" not in made.text
    assert made.notes == []


def test_a_kernel_of_inductor_becomes_plain_triton_with_the_block_size_that_was_launched() -> None:
    made = launcher(RECORDED, "triton_per_fused_0")
    text = made.text[made.text.index("def launch_") :]
    assert "triton_per_fused_0[(in_ptr0.shape[0],)](" in text
    assert "in_ptr0, in_ptr1, out_ptr1, in_ptr0.shape[0], in_ptr0.shape[1], XBLOCK=1, num_warps=4" in text
    assert "from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math" in made.text
    assert "triton_heuristics.persistent_reduction" not in made.text
    assert "kernel that PyTorch 2.13 wrote" not in made.text  # of its module only what it needs


@pytest.mark.slow
def test_the_graph_of_a_kernel_of_inductor_is_its_reference_where_the_code_that_launched_it_is_here(
    tmp_path: Path,
) -> None:
    code = tmp_path / "code.py"
    code.write_text((Path(__file__).parents[1] / "init" / "inductor_code" / "two_graphs.txt").read_text())

    def launched_by_it(event: dict[str, Any]) -> None:
        if of(event, "triton_per_fused_0") and event["event_type"] == "launch":
            event["name"] = "triton_poi_fused_add_gelu_0"
            event["stack"] = [{"filename": str(code), "name": "call", "line": 70}]

    path = edited(tmp_path, launched_by_it)
    done = pgo("init", "--from-trace", path, "--kernel", "triton_poi_fused_add_gelu_0", "-o", "t.py", cwd=tmp_path)
    assert done.code == 0, done.err
    assert f"the reference is PyTorch's own graph, of {code}" in done.out
    assert not target.read(tmp_path / "t.py").of_original


def test_what_is_read_and_written_is_given_and_a_number_that_counts_makes_no_case_of_its_own() -> None:
    made = launcher(RECORDED, "_decay")
    assert made.arguments == ["P", "G", "rate", "step"]
    assert (made.changed, made.outputs, len(made.form.signatures)) == (["P"], {}, 1)
    assert made.form.signatures[0].launches == 6
    counted = launcher(RECORDED, "_count")
    assert (counted.changed, calls(counted)[0].launches[0]["unordered"]) == (["OUT"], True)


def test_values_are_drawn_in_the_range_that_the_trace_has(tmp_path: Path) -> None:
    def with_figures(event: dict[str, Any]) -> None:
        if of(event, "_count") and event["event_type"] == "launch":
            event["extracted_args"]["I"] |= {"min": 3.0, "max": 997.0, "mean": 500.0, "std": 280.0}
            event["extracted_args"]["OUT"] |= {"min": 0.0, "max": 0.0, "mean": 0.0, "std": 0.0}

    call = calls(launcher(edited(tmp_path, with_figures), "_count"))[0]
    assert call.args["I"]["recipe"] == {"low": 3, "high": 1000}  # they nearly reach the size that they are indices into
    assert call.args["OUT"]["recipe"] == {"values": [0.0, 0.0, 0.0, 0.0]}


@pytest.mark.long
def test_labels_of_which_one_stands_for_none_are_indices_and_that_mark(tmp_path: Path) -> None:
    def with_figures(event: dict[str, Any]) -> None:
        if of(event, "_count") and event["event_type"] == "launch":
            event["extracted_args"]["I"] |= {"min": -100.0, "max": 997.0, "mean": 500.0, "std": 280.0}

    path = edited(tmp_path, with_figures)
    assert pgo("init", "--from-trace", path, "--kernel", "_count", cwd=tmp_path).code == 0
    names = runpy.run_path(str(tmp_path / "count_target.py"))
    case = next(iter(names["CASES"].values()))
    drawn = names["inputs"](case, torch.Generator().manual_seed(0))["I"]
    assert set(drawn[drawn < 0].tolist()) == {-100} and 1 < int((drawn < 0).sum()) < len(drawn) // 8


def test_a_function_alone_is_enough_where_it_calls_nothing_else_and_else_what_is_missing_is_named(
    tmp_path: Path,
) -> None:
    path = edited(tmp_path, function_only)
    assert launcher(path, "_decay").text.count("def ") == 2
    with pytest.raises(UsageFault, match=r"not whole.*missing: capped"):
        launcher(path, "_norm")


def test_the_file_that_the_trace_names_is_taken_where_it_has_the_same_function(tmp_path: Path) -> None:
    file = tmp_path / "model_kernels.py"
    file.write_text(Path(__file__).with_name("model_kernels.py").read_text() + "\n# here\n")

    def moved(event: dict[str, Any]) -> None:
        if source := event.get("payload", {}).get("python_source"):
            source["file_path"] = str(file)

    path = edited(tmp_path, moved)
    assert launcher(path, "_norm").form.source.here
    file.write_text(file.read_text().replace("+ eps)", "+ 2 * eps)"))
    assert not launcher(path, "_norm").form.source.here


# bad input ------------------------------------------------------------------------------------------------------------


def test_of_a_trace_that_is_cut_short_what_is_whole_is_used(tmp_path: Path) -> None:
    path = tmp_path / "cut.ndjson.gz"
    path.write_bytes(RECORDED.read_bytes()[:-2000])
    done = pgo("init", "--from-trace", path, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "_product" in done.out
    assert "cut short: cut.ndjson.gz; what is whole is used" in done.out


def test_each_compression_is_read_a_folder_of_files_too_and_what_is_whole_of_one_that_is_cut(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")  # which comes with tritonparse
    plain = [json.dumps(e).encode() + b"\n" for e in lines()]
    forms = {
        "a.ndjson": b"".join(plain),
        "b.bin.ndjson": b"".join(map(gzip.compress, plain)),  # a member for each line, as tritonparse writes them
        "c.ndjson.zst": b"".join(zstandard.ZstdCompressor().compress(line) for line in plain),
    }
    for name, content in forms.items():
        (tmp_path / name).write_bytes(content)
        trace = summary.summarize(tmp_path / name)
        assert (trace.reading.events, trace.reading.cut) == (len(plain), []), name
        (tmp_path / name).write_bytes(content[:-20])
        cut = summary.summarize(tmp_path / name).reading
        assert (cut.events, cut.cut) == (len(plain) - 1, [name])
    whole = summary.summarize(tmp_path)
    assert whole.reading.events == 3 * (len(plain) - 1)
    assert {k.name: k.launches for k in whole.kernels}["_norm"] == 18


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a letter\n", "is no trace of tritonparse"),
        ('{"cases": []}\n', "is no trace of tritonparse"),
        ("", "is no trace of tritonparse"),
        (json.dumps({"event_type": "compilation", "payload": {}}) + "\n", "no launches, only compilations"),
    ],
)
def test_what_is_no_trace_or_has_no_launches_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "trace.ndjson").write_text(text)
    with pytest.raises(UsageFault, match=said):
        summary.summarize(tmp_path / "trace.ndjson")


def test_launches_within_a_cuda_graph_have_no_arguments_and_that_is_said(tmp_path: Path) -> None:
    def captured(event: dict[str, Any]) -> None:
        if event["event_type"] == "launch":
            event["extracted_args"] = {"_note": "argument extraction skipped during CUDA graph capture"}

    with pytest.raises(UsageFault, match=r"no arguments of _norm: .*CUDA graph capture"):
        launcher(edited(tmp_path, captured), "_norm")


def test_a_kernel_whose_compilation_is_not_in_the_trace_is_refused_and_an_unknown_one_too(tmp_path: Path) -> None:
    path = edited(tmp_path, lambda e: e["event_type"] == "launch")
    with pytest.raises(UsageFault, match="not its source"):
        launcher(path, "_norm")
    with pytest.raises(UsageFault, match="no launches of _other"):
        launcher(path, "_other")


def test_trials_of_an_autotuner_count_as_no_launches(tmp_path: Path) -> None:
    def tried(event: dict[str, Any]) -> None:
        if of(event, "_product") and event["event_type"] == "launch" and event["grid"][0] > 16:
            event["stack"] = [{"filename": "/x/triton/runtime/autotuner.py", "name": "_bench", "line": 1}]

    (kernel,) = [k for k in summary.summarize(edited(tmp_path, tried)).kernels if k.name == "_product"]
    assert (kernel.launches, kernel.trials) == (3, 3)


def test_shapes_that_the_gpu_cannot_hold_are_scaled_down_and_that_is_said() -> None:
    whole = launcher(RECORDED, "_product")
    made = replace(whole, memory=60 << 20)
    assert [c.args["A"]["shape"] for c in calls(made)] == [[1024, 512], [1000, 512], [128, 512]]
    b = calls(made)[0].args["B"]
    assert (b["shape"], b["stride"]) == ([512, 1024], [1, 512])
    (said,) = shrunk(made)
    assert said.endswith("are scaled down: 2048 became 1024, 4096 became 1024")
    assert shrunk(whole) == [] == shrunk(replace(whole, memory=80 << 30))


def test_another_triton_is_said(tmp_path: Path) -> None:
    def older(event: dict[str, Any]) -> None:
        if "payload" in event:
            event["payload"]["metadata"]["triton_version"] = "3.1.0"

    assert "the trace is of Triton 3.1.0" in target_file.versions(summary.summarize(edited(tmp_path, older)))[0]


@pytest.mark.parametrize("arch", ["sm103", "gfx942"])
def test_another_gpu_is_said(tmp_path: Path, arch: str) -> None:
    def elsewhere(event: dict[str, Any]) -> None:
        if "payload" in event:
            event["payload"]["metadata"]["arch"] = arch

    of_another = summary.summarize(edited(tmp_path, elsewhere))
    assert f"the trace is of {arch}" in target_file.gpus(of_another, devices.find("h100"))[0]
    assert not target_file.gpus(summary.summarize(RECORDED), devices.find("h100"))


def test_values_that_are_no_numbers_are_marked_and_not_drawn(tmp_path: Path) -> None:
    def masked(event: dict[str, Any]) -> None:
        if of(event, "_norm") and "extracted_args" in event:
            event["extracted_args"]["X"] |= {"min": "-inf", "max": 3.0, "mean": "-inf", "std": "nan"}

    done = pgo("init", "--from-trace", edited(tmp_path, masked), "--kernel", "_norm", "-o", "t.py", cwd=tmp_path)
    assert done.code == 0, done.err
    (line,) = [line for line in (tmp_path / "t.py").read_text().splitlines() if line.strip().startswith('"X": ')]
    assert "normal(" in line and line.endswith("# guessed: it held -inf, and here it does not")


def test_launches_that_cannot_be_read_are_not_called_none(tmp_path: Path) -> None:
    def shapeless(event: dict[str, Any]) -> None:
        for argument in event.get("extracted_args", {}).values():
            argument.pop("shape", None)

    with pytest.raises(UsageFault, match="no launch that can be read, and"):
        summary.summarize(edited(tmp_path, shapeless))


def test_a_line_that_is_too_long_is_left_out_and_its_neighbours_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MOST", 1 << 20)
    whole = edited(tmp_path, lambda e: None)
    long = tmp_path / "long.ndjson"
    long.write_bytes(b"\0" * (3 << 20) + b"\n" + whole.read_bytes() + b"\0" * (3 << 20))
    found, same = summary.summarize(long), summary.summarize(whole)
    assert [(k.name, k.launches) for k in found.kernels] == [(k.name, k.launches) for k in same.kernels]
    assert found.reading.unreadable == 2


def test_no_text_of_a_trace_but_the_source_gets_into_a_target(tmp_path: Path) -> None:
    """A path that ends a string, a type that is a call, an argument that no parameter has."""
    evil = 'x"""\n__import__("os")\n"""'

    def hostile(event: dict[str, Any]) -> None:
        if "payload" in event:
            event["payload"]["python_source"]["file_path"] = f"/model/{evil}.py"
        elif of(event, "_norm"):
            event["extracted_args"][evil] = event["extracted_args"]["X"]
        elif of(event, "_decay"):
            event["extracted_args"]["P"]["dtype"] = "torch.float32, x=__import__('os')"

    path = edited(tmp_path, hostile)
    made = launcher(path, "_norm")
    assert "__import__" not in made.text + str(made.form.source.path) + str(calls(made))
    trace = summary.summarize(path)
    assert (trace.reading.unreadable, [k.name for k in trace.kernels if k.name == "_decay"]) == (6, [])


# size and origin ------------------------------------------------------------------------------------------------------

LIMITED = """
import resource, sys
from pathlib import Path
from pgo_agent.agent.commands.traces import summary
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[2]),) * 2)
print(sum(k.launches for k in summary.summarize(Path(sys.argv[1])).kernels))
"""


@pytest.mark.long
def test_memory_stays_flat_however_long_the_trace_is(tmp_path: Path) -> None:
    """120 MiB of launches in 96 MiB, of which Python takes most."""
    launches = [e for e in lines() if e["event_type"] == "launch"]
    block = "".join(json.dumps(e) + "\n" for e in launches).encode() * 20
    path = tmp_path / "long.ndjson"
    with path.open("wb") as file:
        while file.tell() < 120 << 20:
            file.write(block)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), str(96 << 20)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-1000:]
    assert int(done.stdout) * len(block) // (20 * len(launches)) == pytest.approx(path.stat().st_size, rel=0.01)


@pytest.mark.long
def test_the_recorded_trace_is_what_tritonparse_writes_now(tmp_path: Path) -> None:
    pytest.importorskip("tritonparse")
    command = [sys.executable, "-m", "tests.agent.commands.traces.record", str(tmp_path)]
    subprocess.run(command, capture_output=True, check=True, cwd=Path(__file__).parents[4])
    now, then = (summary.summarize(p) for p in (tmp_path, RECORDED))

    def told(trace: summary.Trace) -> list[object]:
        return [(k.name, k.launches, [(s.launches, summary._key(s.first, {})) for s in k.most]) for k in trace.kernels]

    assert told(now) == told(then)
