"""The box: bubblewrap or Landlock, limits, and processes that are forked into it."""
