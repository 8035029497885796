"""One run: what its parts share, its incumbent, what a person asked of it, and its record."""
