"""Charts as plain numbers and SVG, which pages and reports draw."""
