"""The TCP port: who knocks, who is served by whom, and what leaves when.  Owns sockets, tasks and timers.

    accept -> Session -> sniff -> Guest (a door's service, or `http`)        first bytes choose once
                 |  read        receive -> answers
                 |  broker's waits are over: resume -> answers
                 +- outbox: one write for all answers of one read

    clock      milliseconds since 1970 that never step back
    sniff      the table of first bytes
    outbox     answers on their way out of one socket
    session    one connection: its socket, its guest, its deadlines
    http       HTTP requests for the console, through a small ASGI bridge
    server     the port, the broker's turns, the end
    logs       what the server says of itself while it runs

Invariants
- a guest that breaks the rules, or stays away, is shown out; its neighbours do not notice
- nothing is read from a guest that does not take its answers
- after every read: effects, turn, answers, in that order, so that a wish is durable before anybody hears of it

Left to others: what bytes mean (doors), what commands do (broker), what the API says (console).
"""
