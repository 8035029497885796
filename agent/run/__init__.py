"""One run: its context, settings, incumbent, the requests of a person, and its record."""
