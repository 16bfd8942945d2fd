"""The broker: topics, groups, leases and acknowledgements as plain functions of (state, request, now).

    door service  ->  Broker  ->  the engine's logs
                        |
                        +-- Wait     what cannot be answered yet; the broker finishes it, `turn` hands it over
                        +-- Effect   a change of the catalogue; the gate runs it and feeds it back

    names        what may be called what
    policy       every setting of a topic or a subscription
    topics       Topic, Partition: where the logs are, who owns them
    catalogue    which topics and subscriptions there are; a change is an Effect
    sessions     who is connected: Session, Consumer, Producer
    progress     how far a group is in a partition: position, acknowledged ranges, deliveries
    groups       Group, Share: one position and one lease for each partition
    rights       who may do what, by the catalogue
    delivery     which messages a consumer gets now
    polls        long polls: who is looked at when
    forgetting   what a topic may forget
    waits        parked requests: by log, by group, by deadline
    desk         Broker, the one face of it all

Invariants
- no sockets, clocks, threads, chance or files: the time is an argument, files are reached through the log's engine
- nothing waits: a call answers, raises `Refused`, or returns a `Wait` that the broker finishes
- only the engine decides ordinals
- what was acknowledged is not delivered again, what was not is, also after kill -9; lease clocks are memory

Left to others: bytes of protocols (doors), sockets and timers (gate), durability (log).
Not built yet, and refused in words: the retry store and dead letters (`retry-disabled`), transactions
(`unsupported`).  Concurrent delivery is kept as a policy and served as a window of one.
"""

from serai.broker.catalogue import Effect, Subscription
from serai.broker.delivery import Delivery
from serai.broker.desk import Broker
from serai.broker.groups import NEWEST, OLDEST
from serai.broker.policy import ConsumerPolicy, ProducerPolicy, TopicPolicy
from serai.broker.sessions import Consumer, Producer, Session
from serai.broker.topics import Node, Owner, Partition, Topic
from serai.broker.waits import Wait

__all__ = [
    "NEWEST", "OLDEST", "Broker", "Consumer", "ConsumerPolicy", "Delivery", "Effect", "Node", "Owner", "Partition",
    "Producer", "ProducerPolicy", "Session", "Subscription", "Topic", "TopicPolicy", "Wait",
]  # fmt: skip
