"""Benchmarks: programs that measure serai beside what a user would pick instead; `README.md` says how to read them."""
