"""JMQ4: the seed document's layout, the one its real clients speak, and our own dialect of it."""
