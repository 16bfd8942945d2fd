"""The commands of JMQ: a class for each payload, named as the protocol names it; its answer stands beside its code.

Invariants
- fields stand in wire order, with the meaning beside them
- a field that only some dialects or versions have has a default, so that a command can be made without asking which

Left to others: heads and messages (frame), error numbers (numbers), the order of commands (connection).
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, ClassVar

from serai.doors.jmq.schema.frame import IN_HOUSE, IN_REAL, IN_SEED, MessageSet, Name
from serai.wire.layout import (
    ARRAY16,
    INT8,
    INT16,
    INT32,
    INT64,
    Array16,
    Bool,
    By,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Layout,
    Maybe,
    Only,
    Rows,
    Text16,
    Unless,
)  # fmt: skip

RETRY_PARTITION = 0x7FFF
ANY_PARTITION = -1  # in a produce request: the server chooses
HOUSE_COMMANDS = 110  # codes from here on are of the house dialect only
ACK_INDEX = -1  # in a fetch request: from where the group stands


class Command(Layout):
    """The payload of a request; `reply` is the payload of its answer, None if that has none."""

    code: ClassVar[int]
    reply: ClassVar[type[Layout] | None]

    def __init_subclass__(cls, *, code: int, reply: type[Layout] | None = None) -> None:
        super().__init_subclass__()
        cls.code, cls.reply = code, reply
        COMMANDS[code] = cls


COMMANDS: dict[int, type[Command]] = {}


class AddConnectionAck(Layout):
    connection_id: Name  #: the server's name for the connection
    notification: Text16  #: clients log it when it is not empty


class AddConnection(Command, code=1, reply=AddConnectionAck):
    """The first command: who the client is.  Its bytes decide the dialect of the connection."""

    username: Name  #: reserved
    password: Name  #: reserved
    app: Name  #: the application
    token: Name  #: shows that it is the application
    region: Name  #: data centre of the client
    namespace: Name  #: of its topics
    language: Annotated[Int8, IN_REAL] = 0  #: 0 java, 1 c, 2 c++ (the Python client too), 3 python, to 8 other
    version: Name  #: of the client
    ip: Name  #: of the client
    time: Int64  #: milliseconds
    sequence: Int64  #: tells the connections of one client apart


class RemoveConnection(Command, code=2):
    """The last command."""


class ConsumerId(Layout):
    topic: Text16  #: as asked
    consumer_id: Text16  #: the server's name for the consumer


class AddConsumerAck(Layout):
    consumer_ids: Array16[ConsumerId]  #: one for each topic


class AddConsumer(Command, code=3, reply=AddConsumerAck):
    """Says that the application will fetch."""

    topics: Array16[Text16]  #: from these
    app: Text16  #: `app` or `app.group`
    sequence: Int64  #: the client's own


class RemoveConsumer(Command, code=4):
    """Frees what the consumers hold."""

    topics: Array16[Text16]  #: of these; unknown ones are ignored
    app: Text16  #: `app` or `app.group`


class ProducerId(Layout):
    topic: Text16  #: as asked
    producer_id: Text16  #: the server's name for the producer


class AddProducerAck(Layout):
    producer_ids: Array16[ProducerId]  #: one for each topic


class AddProducer(Command, code=5, reply=AddProducerAck):
    """Says that the application will produce."""

    topics: Array16[Text16]  #: to these
    app: Text16  #: the application
    sequence: Int64  #: the client's own


class RemoveProducer(Command, code=6):
    """Says that it will no more."""

    topics: Array16[Text16]  #: to these
    app: Text16  #: the application


class Heartbeat(Command, code=7):
    """Shows that the client is there."""


class FetchHealthAck(Layout):
    point: Float64  #: 100 is healthy


class FetchHealth(Command, code=8, reply=FetchHealthAck):
    """How the server feels."""


class Weight(Layout):
    broker_id: Text16  #: of this broker
    weight: Int16  #: how much it is preferred


class ProducerPolicy(Layout):
    is_nearby: Bool  #: use brokers of the own region only
    is_single: Bool  #: one sending thread at a time
    is_archive: Bool  #: what is sent is archived
    weight: Array16[Weight]  #: by broker
    black_list: Array16[Text16]  #: addresses that may not send
    timeout: Int32  #: of a produce request, ms


class ConsumerPolicy(Layout):
    is_nearby: Bool  #: use brokers of the own region only
    is_paused: Bool  #: nothing is delivered
    is_archive: Bool  #: what is consumed is archived
    is_retry: Bool  #: failed messages are delivered again, later
    is_seq: Bool  #: strictly in order
    ack_timeout: Int32  #: how long a delivered message may stay unacknowledged, ms
    batch_size: Int16  #: messages of a fetch that says no count
    concurrent_consume: Bool  #: seed: several fetches of a partition at a time; real: always false
    concurrent_prefetch_size: Int32  #: seed: messages ahead; real: fetches at a time, 1 is off
    delay: Int32  #: ms from sending to delivery
    black_list: Array16[Text16]  #: addresses that may not fetch
    err_times: Int32  #: failures after which a client hands a message to retry
    max_partition_num: Int32  #: partitions one consumer may hold
    read_retry_probability: Int32  #: of a look at the retry partition, per mille


class PartitionGroup(Layout):
    id: Int32  #: the partition's number: here each group is one partition
    leader: Int32  #: broker id, -1 none
    partitions: Array16[Annotated[int, By(seed=INT32, real=INT16, house=INT32)]]  #: the partition


class Parameter(Layout):
    key: Text16  #: name
    value: Text16  #: value


class ClusterTopic(Layout):
    topic_code: Text16  #: as asked
    producer_policy: Maybe[ProducerPolicy]  #: if the application may produce
    consumer_policy: Maybe[ConsumerPolicy]  #: if it may consume
    type: Annotated[int, By(seed=INT32, real=INT8, house=INT32)]  #: -1 none, 0 normal, 1 broadcast, 2 ordered
    partition_groups: Array16[PartitionGroup]  #: empty when the code is not 0
    code: Int32  #: 0, or why not
    params: Annotated[Array16[Parameter], Only("real", since=4)] = field(default_factory=list)  #: of the topic


class Broker(Layout):
    id: Int32  #: named by `leader`
    host: Text16  #: an address the client can reach
    port: Int32  #: its port
    data_center: Text16  #: its region
    nearby: Bool  #: in the client's region
    weight: Int32  #: how much it is preferred
    sys_code: Annotated[Int32, Only("real", since=2)] = 0  #: 0
    permission: Annotated[Int32, Only("real", since=2)] = 3  #: bit 0 readable, bit 1 writable


class FetchClusterAck(Layout):
    topics: Array16[ClusterTopic]  #: one for each topic
    brokers: Array16[Broker]  #: the leaders


class FetchCluster(Command, code=10, reply=FetchClusterAck):
    """Where topics live, and what the application may do with them."""

    topics: Array16[Text16]  #: these
    app: Text16  #: `app` or `app.group`


class Coordinator(Layout):
    topic: Text16  #: as asked
    id: Int32  #: broker id, -1 none
    host: Annotated[Text16, Unless("id", -1)] = ""  #: its address
    port: Annotated[Int32, Unless("id", -1)] = 0  #: its port
    data_center: Annotated[Text16, Unless("id", -1)] = ""  #: its region
    is_nearby: Annotated[Bool, Unless("id", -1)] = False  #: in the client's region
    weight: Annotated[Int32, Unless("id", -1)] = 0  #: how much it is preferred
    code: Int32  #: 0, or why not


class FindCoordinatorAck(Layout):
    coordinators: Array16[Coordinator]  #: one for each topic


class FindCoordinator(Command, code=20, reply=FindCoordinatorAck):
    """Which broker assigns partitions."""

    topics: Array16[Text16]  #: of these
    app: Text16  #: `app` or `app.group`


class AssignmentWish(Layout):
    topic: Text16  #: of this topic
    session_timeout: Int32  #: ms
    is_nearby: Bool  #: of the own region only


class Assignment(Layout):
    topic: Text16  #: as asked
    partitions: Array16[Int16]  #: to consume
    code: Int32  #: 0, or why not


class FetchAssignedPartitionAck(Layout):
    data: Array16[Assignment]  #: one for each topic


class FetchAssignedPartition(Command, code=21, reply=FetchAssignedPartitionAck):
    """Which partitions a member of the group consumes."""

    topics: Array16[AssignmentWish]  #: these
    app: Text16  #: `app` or `app.group`


class TopicWish(Layout):
    topic: Text16  #: this
    count: Int16  #: most messages; 0 or less: what the policy says


class TopicMessages(Layout):
    topic: Text16  #: as asked
    partition: Annotated[Int16, IN_HOUSE] = 0  #: all the messages are of this one
    index: Annotated[Int64, IN_HOUSE] = 0  #: of the first message of the set
    lead: Annotated[Int32, IN_HOUSE] = 0  #: messages of the first entry, a batch, that come before what is delivered
    count: Annotated[Int32, IN_HOUSE] = 0  #: messages delivered
    messages: MessageSet  #: end to end
    code: Annotated[Int32, IN_REAL, IN_HOUSE] = 0  #: 0, or why not


class FetchTopicMessageAck(Layout):
    data: Array16[TopicMessages]  #: one for each topic


class FetchTopicMessage(Command, code=30, reply=FetchTopicMessageAck):
    """Messages of one partition of each topic; the server picks it and holds it until they are acknowledged."""

    topics: Array16[TopicWish]  #: from these
    app: Text16  #: `app` or `app.group`
    ack_timeout: Int32  #: ms; 0 or less: what the policy says
    long_poll_timeout: Int32  #: how long an empty answer may wait, ms


class PartitionWish(Layout):
    partition: Int16  #: of this partition
    count: Int32  #: most messages
    index: Int64  #: first one, -1: from where the group stands


class PartitionWishes(Layout):
    topic: Text16  #: this
    partitions: Array16[PartitionWish]  #: and these


class PartitionMessages(Layout):
    partition: Int16  #: as asked
    index: Annotated[Int64, IN_HOUSE] = 0  #: of the first message of the set
    lead: Annotated[Int32, IN_HOUSE] = 0  #: messages of the first entry, a batch, that come before the one asked for
    count: Annotated[Int32, IN_HOUSE] = 0  #: messages behind the lead
    messages: MessageSet  #: end to end
    code: Int32  #: 0, or why not


class TopicPartitionMessages(Layout):
    topic: Text16  #: as asked
    partitions: Array16[PartitionMessages]  #: one for each partition


class FetchPartitionMessageAck(Layout):
    data: Array16[TopicPartitionMessages]  #: one for each topic


class FetchPartitionMessage(Command, code=31, reply=FetchPartitionMessageAck):
    """Messages of chosen partitions from chosen indexes; nothing is held."""

    topics: Array16[PartitionWishes]  #: from these
    app: Text16  #: `app` or `app.group`


class Acknowledged(Layout):
    partition: Int16  #: once more
    index: Int64  #: of the message
    type: Int8  #: 0 done, 1 timeout, 2 exception, 3 other
    count: Annotated[Int32, IN_HOUSE] = 1  #: so many messages from there on


class PartitionAcks(Layout):
    partition: Int16  #: of this partition
    data: Array16[Acknowledged]  #: these messages, without gaps


class TopicAcks(Layout):
    topic: Text16  #: of this topic
    partitions: Array16[PartitionAcks]  #: these


class PartitionCode(Layout):
    partition: Int16  #: as asked
    code: Int32  #: 0, or why not


class TopicCodes(Layout):
    topic: Text16  #: as asked
    partition_data: Array16[PartitionCode]  #: one for each partition


class CommitAckAck(Layout):
    data: Array16[TopicCodes]  #: one for each topic


class CommitAck(Command, code=32, reply=CommitAckAck):
    """Acknowledges what was delivered."""

    topics: Array16[TopicAcks]  #: of these
    app: Text16  #: `app` or `app.group`


class PartitionIndex(Layout):
    partition: Int16  #: of this partition
    index: Int64  #: the next message to consume; -1 behind the newest, -2 the oldest


class TopicIndexes(Layout):
    topic: Text16  #: this
    partitions: Array16[PartitionIndex]  #: and these


class CommitAckIndexAck(Layout):
    data: Array16[TopicCodes]  #: one for each topic


class CommitAckIndex(Command, code=33, reply=CommitAckIndexAck):
    """Moves the group to an index."""

    topics: Array16[TopicIndexes]  #: in these
    app: Text16  #: `app` or `app.group`


class TopicPartitions(Layout):
    topic: Text16  #: this
    partitions: Array16[Int16]  #: and these


class AckIndex(Layout):
    partition: Int16  #: as asked
    index: Int64  #: where the group stands, -1 unknown
    code: Int32  #: 0, or why not


class TopicAckIndexes(Layout):
    topic: Text16  #: as asked
    partitions: Array16[AckIndex]  #: one for each partition


class FetchAckIndexAck(Layout):
    topics: Array16[TopicAckIndexes]  #: one for each topic


class FetchAckIndex(Command, code=34, reply=FetchAckIndexAck):
    """Where the group stands; reserved by the seed, shaped like 35."""

    topics: Array16[TopicPartitions]  #: in these
    app: Text16  #: `app` or `app.group`


class IndexRange(Layout):
    partition: Int16  #: as asked
    index: Int64  #: where the group stands, -1 unknown
    code: Int32  #: 0, or why not
    left_index: Annotated[Int64, Only("real", since=3), IN_HOUSE] = -1  #: the oldest stored
    right_index: Annotated[Int64, Only("real", since=3), IN_HOUSE] = -1  #: behind the newest


class TopicRanges(Layout):
    topic: Text16  #: as asked
    partitions: Array16[IndexRange]  #: one for each partition


class FetchIndexAck(Layout):
    topics: Array16[TopicRanges]  #: one for each topic


class FetchIndex(Command, code=35, reply=FetchIndexAck):
    """Where the group stands, and what is stored."""

    topics: Array16[TopicPartitions]  #: in these
    app: Text16  #: `app` or `app.group`


class Produced(Layout):
    topic: Text16  #: to this topic
    tx_id: Text16  #: inside this transaction, or empty
    timeout: Int32  #: ms
    qos_level: Int8  #: what is waited for; the table of levels says which
    partition: Annotated[Int16, IN_HOUSE] = ANY_PARTITION  #: -1: the server chooses
    messages: MessageSet  #: seed, real: all for one partition


class Placed(Layout):
    partition: Int16  #: -1 of a failed topic
    index: Int64  #: of the first message, -1 not known
    start_time: Int64  #: the message's send time, -1 of a failed topic
    count: Annotated[Int32, IN_HOUSE] = 1  #: messages with consecutive indexes


class TopicPlaced(Layout):
    topic: Text16  #: as asked
    code: Int32  #: 0, or why not
    result: Annotated[list[Placed] | bytes, Rows(ARRAY16)]  #: one for each entry; house: one for all


class ProduceMessageAck(Layout):
    data: Array16[TopicPlaced]  #: one for each topic


class ProduceMessage(Command, code=50, reply=ProduceMessageAck):
    """Stores messages: those of a topic together or not at all."""

    topics: Array16[Produced]  #: one for each topic
    app: Text16  #: the application


class ProduceMessagePrepareAck(Layout):
    tx_id: Text16  #: the transaction
    code: Int32  #: 0, or why not


class ProduceMessagePrepare(Command, code=51, reply=ProduceMessagePrepareAck):
    """Opens a transaction."""

    topic: Text16  #: of this topic
    app: Text16  #: the application
    sequence: Int64  #: the client's own
    transaction_id: Text16  #: the user's key, empty: no feedback
    timeout: Annotated[Int32, IN_REAL, IN_HOUSE] = 0  #: ms


class ProduceMessageCommitAck(Layout):
    code: Int32  #: 0, or why not


class ProduceMessageCommit(Command, code=52, reply=ProduceMessageCommitAck):
    """Makes a transaction's messages visible."""

    topic: Text16  #: of this topic
    app: Text16  #: the application
    tx_id: Text16  #: the transaction


class ProduceMessageRollbackAck(Layout):
    code: Int32  #: 0, or why not


class ProduceMessageRollback(Command, code=53, reply=ProduceMessageRollbackAck):
    """Drops a transaction's messages."""

    topic: Text16  #: of this topic
    app: Text16  #: the application
    tx_id: Text16  #: the transaction


class Feedback(Layout):
    topic: Text16  #: of this topic
    tx_id: Text16  #: the transaction
    transaction_id: Text16  #: the user's key


class FetchProduceFeedbackAck(Layout):
    data: Array16[Feedback]  #: transactions nobody has ended
    code: Int32  #: 0, or why not


class FetchProduceFeedback(Command, code=54, reply=FetchProduceFeedbackAck):
    """Asks for transactions whose end is missing."""

    app: Text16  #: the application
    topic: Text16  #: of this topic
    status: Int8  #: 0 unknown, 1 prepare, 2 committed, 3 rollback
    count: Annotated[Int32, IN_SEED, IN_HOUSE] = 1  #: most of them
    long_poll_timeout: Annotated[int, By(seed=INT64, real=INT32, house=INT64)]  #: ms


class PartitionTime(Layout):
    partition: Int16  #: of this partition
    time: Int64  #: ms since 1970


class TopicTimes(Layout):
    topic: Text16  #: this
    partitions: Array16[PartitionTime]  #: and these


class FetchIndexByTimeAck(Layout):
    topics: Array16[TopicAckIndexes]  #: one for each topic; `index` is that of the first message stored then or later


class FetchIndexByTime(Command, code=110, reply=FetchIndexByTimeAck):
    """Which message was stored first at or after a time; house dialect only."""

    topics: Array16[TopicTimes]  #: in these
    app: Text16  #: `app` or `app.group`


class PartitionDelay(Layout):
    partition: Int16  #: of this partition
    delay: Int32  #: ms


class TopicDelays(Layout):
    topic: Text16  #: this
    partitions: Array16[PartitionDelay]  #: and these


class Release(Command, code=111, reply=CommitAckAck):
    """Gives back what was delivered and is not acknowledged: it comes again, after the delay; house dialect only."""

    topics: Array16[TopicDelays]  #: of these
    app: Text16  #: `app` or `app.group`


class PartitionTerm(Layout):
    partition: Int16  #: of this partition
    ack_timeout: Int32  #: ms from now


class TopicTerms(Layout):
    topic: Text16  #: this
    partitions: Array16[PartitionTerm]  #: and these


class Renew(Command, code=112, reply=CommitAckAck):
    """Holds what was delivered for longer; house dialect only."""

    topics: Array16[TopicTerms]  #: of these
    app: Text16  #: `app` or `app.group`
