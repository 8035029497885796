"""Are the results right? Launches plans on many inputs, and compares their outputs with the reference."""
