"""The command line: Typer functions, their options, and the interactive session. Nothing imports it."""
