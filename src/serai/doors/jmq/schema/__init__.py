"""The bytes of JMQ, in three dialects.

    frame      heads of frames, messages, forms: what stands around every command
    commands   a class for each request and each answer
    numbers    error numbers and levels, and the house's words for them

    seed    the layout of the seed document; versions 1 and 2 of the frame's head
    real    what JoyQueue's Java (version 4) and Python (version 2) clients put on the wire; versions 1 to 4
    house   our own, version 16: the seed's commands around house messages, and commands 110 to 119

Where seed and real differ, the field says so.  A number of this protocol stands in this folder and nowhere else; the message
offsets of `_core.entries` and the frames of `_core.frames` are tested against it.

Left to others: which bytes are legal when (connection), what a command does (service).
"""
