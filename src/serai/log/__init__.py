"""The log: files of pages, and the queues that live in them.  The only room that touches files."""
