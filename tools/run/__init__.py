"""`make run`: serai's main job on this machine, with nothing to set up.

    queue        a queue in a directory: written, read, typed, tailed by a second process         seconds, nothing to fetch
    server       one port: messages sent and received through it, each acknowledged                seconds, nothing to fetch
    pipelines    a real Spark job over what the server just stored: archive, metrics, audit        fetches Spark first

Each act says what it does and whether everything arrived.  The exit code is 1 if anything did not, 130 after Ctrl-C.
What was written stays in `.serai-run`, so that the commands shown at the end have something to look at.  On a terminal the
server stays up until Ctrl-C; `DEMO_SECONDS=20` keeps it up that long, terminal or not.
"""
