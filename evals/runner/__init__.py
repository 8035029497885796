"""Runs of a plan that is fixed before them: its TOML file, the file of their results, and the runs themselves."""
