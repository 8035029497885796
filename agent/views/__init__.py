"""What a person gets to see of a profile: in the terminal, as a page, as a trace. Draws, and measures nothing."""
