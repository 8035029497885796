"""For which programs most of torch is imported ahead."""

import pytest
from pgo_agent.sandbox.packages_folder import imports_packages


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch, triton.language as tl\nfrom pathlib import Path\n", False),
        ("def test():\n    from hypothesis.strategies import integers\n", True),
        ("import hypothesis.strategies as st\n", True),
        ("from . import hypothesis\n", False),
        ("import nowhere_to_be_found\n", False),
        ("import hypothesis, (\n", False),
    ],
)
def test_an_installed_package_is_expected_to_import_the_compiler(text: str, expected: bool) -> None:
    assert imports_packages(text) == expected
