"""Jinja2 templates, one for each role and reply format, loaded as data and named by their content hash."""
