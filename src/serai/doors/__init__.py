"""A folder for each wire protocol: schema (what are the bytes), connection (which are legal now), service (what they do)."""
