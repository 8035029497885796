"""What a candidate must pass before its speed means anything: verdicts, and the stages that need no GPU."""
