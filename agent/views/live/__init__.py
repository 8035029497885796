"""The live view of a run: a line for each event, and the dashboard of a terminal."""
