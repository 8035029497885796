"""The loop: its steps, how it goes on after it was stopped, how it ends, and the profile of the incumbent."""
