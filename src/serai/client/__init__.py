"""serai's own client: messages to and from a server, for plain programs and for asyncio.

    sync, aio     what a program uses: Client, Producer, Consumer, Reader; they own sockets, and wait
        |
    outgoing      what a producer has on its way          incoming   what a consumer holds
    reading       positions of a reader without a group
        |
    line          a connection that comes back: hello, registration, back-off
        |
    link          one connection: calls out, answers in, time-outs
        |
    doors.jmq     the bytes, in the house dialect (header version 16)

Only the first row differs between plain programs and asyncio.  Everything below it is without I/O: a step that has to wait is a
generator that yields what it waits for (`line.Wish`), and the row above waits for it in its own manner.

Invariants
- an answer that did not come is `OutcomeUnknown`, never a failure; what was surely not stored is tried again until its time is over
- messages of one producer for one partition are sent in the order in which they were given, and stored so unless one is refused
- a message is delivered until its acknowledgement was confirmed
- no object is made for a message, unless somebody sends or looks at a single one

Left to others: the bytes (doors.jmq), packing and finding messages (_core.parcels).
"""
