"""Decides: the loop, the moves, the store, the command line. Never imports a candidate, never touches a GPU."""
