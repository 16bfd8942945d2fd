"""How bytes are described: layouts, what can be made from them, buffers and spans.  No protocol lives here."""
