"""Slow, obvious implementations that the fast ones are compared with; they import nothing of serai."""
