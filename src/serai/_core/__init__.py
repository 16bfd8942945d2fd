"""The compiled loops: checksums, mapped pages, typed values, Arrow columns.

Each module is a `.pyx` with a `.pyi` beside it.  They take buffers and integers, raise only built-in
exceptions, hold no policy and know nothing of the rest of serai; `tests/laws/test_core.py` keeps it so.
"""
