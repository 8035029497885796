"""From source to cubins: traces and compiles in the box, and keeps what comes of it."""
