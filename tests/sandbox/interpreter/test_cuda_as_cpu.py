"""Code for 'cuda' on the CPU: what a contract hears of the machine while it is imported."""

import subprocess

import torch
from pgo_agent.sandbox import devices
from pgo_agent.sandbox.interpreter.cuda_as_cpu import CUDA, DevicesOnCpu, answering


def test_a_module_that_asks_for_the_gpu_hears_of_one_and_makes_tensors_on_the_cpu() -> None:
    asked = torch.cuda.is_available, torch.compile, subprocess.run, torch.accelerator.current_accelerator
    with answering(devices.find("h100")), DevicesOnCpu():
        assert torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
        there = torch.accelerator.current_accelerator()
        assert there == CUDA and torch.zeros(2, device=there).device.type == "cpu"
    assert asked == (torch.cuda.is_available, torch.compile, subprocess.run, torch.accelerator.current_accelerator)


def test_what_a_package_changes_stays_changed() -> None:
    before = torch.cuda.empty_cache
    with answering(devices.find("h100")):
        torch.cuda.empty_cache = print
    assert torch.cuda.empty_cache is print
    torch.cuda.empty_cache = before
