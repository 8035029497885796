"""A real language model of 1.5 billion parameters and a server for it, from the package index alone."""
