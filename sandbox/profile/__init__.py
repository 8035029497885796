"""The multi-pass profiler: what a built kernel costs, and where.

A pass is a memoised function of a kernel (`memo.py`), a job is ordinary Python that calls passes. Nothing in here
decides anything, and nothing here times a kernel for the record: that is the judge's.
"""
