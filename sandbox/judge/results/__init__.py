"""Are the results right? Launches plans on many inputs, and compares what they give with the reference."""
