"""The leaderboard: rows of nights and of recorded runs as a static site that opens from a file and loads nothing."""
