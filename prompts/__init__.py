"""Jinja2 templates for the model forms of the three roles, loaded as data. Empty until a model may optimize."""
