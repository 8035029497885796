"""What the commands do: `optimize`, `check`, `profile`, `apply`, `doctor` and `init`, without Typer."""
