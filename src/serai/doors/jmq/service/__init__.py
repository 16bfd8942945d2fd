"""What commands of JMQ do: each is one or two calls of the broker, and back.

    guest      one connection: commands in their order, answers in the order of their requests
    visit      what every command needs besides itself, and what it may say
    produce    messages in
    consume    messages out, acknowledgements, positions
    describe   who comes and goes, what there is, where it lives

Left to others: the bytes (schema), which bytes are legal when (connection), what anything means (broker), sockets (gate).
Not served yet, and refused in words: transactions (35), coordinators (181).
"""

from serai.doors.jmq.service.guest import Service

__all__ = ["Service"]
