"""What a person sees of a run while it goes on: a line for each event, and the dashboard of a terminal."""
