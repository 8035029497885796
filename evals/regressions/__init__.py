"""What became slower between two files of rows, beyond chance and beyond what counts."""
