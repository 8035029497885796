# Each row has a prompt of its own length, whose tokens differ, as in the program.
def inputs(case, generator):
    device, rows = generator.device, case["rows"]
    lengths = [case["longest"] - case["step"] * (i % 8) for i in range(rows)]
    penalty = 1.0 + torch.rand((rows,), generator=generator, device=device)
    return {
        "scores": torch.randn((rows, case["vocab"]), generator=generator, device=device),
        "penalty": penalty,
        "input_ids_ptr": [torch.randperm(case["vocab"], generator=generator, device=device)[:n] for n in lengths],
        "input_ids_length": torch.tensor(lengths, device=device),
        "max_ids_length": case["longest"],
        "penalty_ty": "REPETITION",
    }


CASES = {"64-32000": dict(rows=64, vocab=32000, longest=2048, step=240)}
SMALL = {"even": dict(rows=4, vocab=512, longest=64, step=4), "ragged": dict(rows=3, vocab=301, longest=47, step=5)}
HELD_OUT = {"odd": dict(rows=5, vocab=1000, longest=130, step=13)}


def flops(case):
    return case["rows"] * case["longest"]


def bytes_moved(case):
    return case["rows"] * (case["longest"] - 3.5 * case["step"]) * (8 + 4 + 4)
