"""What the Gluon of an installed Triton offers for an architecture: read from the package itself, so it cannot drift.

`__main__.py` runs in the box with the interpreter that traces and compiles; `sandbox/profile/gluon_api.py` asks it and
keeps the answer.
"""
