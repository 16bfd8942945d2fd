"""Who comes and goes, what there is, where it lives.

Left to others: the connection's own coming and going (guest), permissions and policies (broker).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from serai.doors.jmq.schema import commands
from serai.doors.jmq.schema.numbers import Number
from serai.doors.jmq.service.visit import FAILURES, Visit, number_of
from serai.errors import Refused

if TYPE_CHECKING:
    from serai.broker import ConsumerPolicy, ProducerPolicy
    from serai.broker.views import Description
    from serai.doors.jmq.service.visit import Said

KINDS = {"normal": 0, "broadcast": 1, "ordered": 2}
NO_KIND = -1
INT_MAX = (1 << 31) - 1
HEALTHY = 100.0
READABLE_AND_WRITABLE = 3


# ---- who produces and consumes -----------------------------------------------------------------------------------


def add_consumer(visit: Visit, command: commands.AddConsumer) -> Said:
    """ADD_CONSUMER: all topics, or none is told."""
    broker, session = visit.broker, visit.session
    return commands.AddConsumerAck(
        consumer_ids=[
            commands.ConsumerId(
                topic=topic, consumer_id=broker.add_consumer(session, topic, command.app, visit.now_ms).id
            )
            for topic in command.topics
        ]
    )


def remove_consumer(visit: Visit, command: commands.RemoveConsumer) -> Said:
    """REMOVE_CONSUMER."""
    for topic in command.topics:
        visit.broker.remove_consumer(visit.session, topic, command.app)
    return None


def add_producer(visit: Visit, command: commands.AddProducer) -> Said:
    """ADD_PRODUCER."""
    return commands.AddProducerAck(
        producer_ids=[
            commands.ProducerId(
                topic=topic, producer_id=visit.broker.add_producer(visit.session, topic, command.app).id
            )
            for topic in command.topics
        ]
    )


def remove_producer(visit: Visit, command: commands.RemoveProducer) -> Said:
    """REMOVE_PRODUCER."""
    for topic in command.topics:
        visit.broker.remove_producer(visit.session, topic, command.app)
    return None


# ---- what there is -----------------------------------------------------------------------------------------------


def heartbeat(visit: Visit, command: commands.Heartbeat) -> Said:  # noqa: ARG001 - coming is all it does
    """HEARTBEAT."""
    return None


def health(visit: Visit, command: commands.FetchHealth) -> Said:  # noqa: ARG001 - whoever gets an answer asked a healthy server
    """FETCH_HEALTH."""
    return commands.FetchHealthAck(point=HEALTHY)


def cluster(visit: Visit, command: commands.FetchCluster) -> Said:
    """FETCH_CLUSTER."""
    node = visit.broker.node
    here = commands.Broker(
        id=node.id, host=node.host, port=node.port, data_center=node.region, weight=0, sys_code=0,
        nearby=visit.broker.is_near(node, visit.session), permission=READABLE_AND_WRITABLE,
    )  # fmt: skip
    topics = [_topic(visit, name, command.app) for name in command.topics]
    leads = any(group.leader == node.id for topic in topics for group in topic.partition_groups)
    return commands.FetchClusterAck(topics=topics, brokers=[here] if leads else [])


def _topic(visit: Visit, name: str, app: str) -> commands.ClusterTopic:
    """A topic as the application may know it."""
    try:
        found = visit.broker.describe(name, app)
    except FAILURES as error:
        return commands.ClusterTopic(
            topic_code=name, producer_policy=None, consumer_policy=None, type=NO_KIND, partition_groups=[],
            code=number_of(error, visit.form, producing=True),
        )  # fmt: skip
    return commands.ClusterTopic(
        topic_code=name,
        producer_policy=None if found.producer is None else _producer_policy(found.producer),
        consumer_policy=None if found.consumer is None else _consumer_policy(found.consumer, visit.form.dialect),
        type=_kind(found, visit.form.dialect),
        partition_groups=[
            commands.PartitionGroup(id=owner.partition, leader=owner.node, partitions=[owner.partition])
            for owner in found.owners
        ],
        code=0,
        params=[commands.Parameter(key=key, value=value) for key, value in found.topic.policy.params],
    )


def _kind(found: Description, dialect: str) -> int:
    """The real layout has lost the ordered kind."""
    kind = KINDS[found.topic.policy.kind]
    return 0 if dialect == "real" and kind == KINDS["ordered"] else kind


def _producer_policy(policy: ProducerPolicy) -> commands.ProducerPolicy:
    return commands.ProducerPolicy(
        is_nearby=policy.nearby, is_single=policy.single, is_archive=policy.archive,
        weight=[commands.Weight(broker_id=str(node), weight=weight) for node, weight in policy.weight],
        black_list=list(policy.black_list), timeout=policy.timeout_ms,
    )  # fmt: skip


def _consumer_policy(policy: ConsumerPolicy, dialect: str) -> commands.ConsumerPolicy:
    return commands.ConsumerPolicy(
        is_nearby=policy.nearby, is_paused=policy.paused, is_archive=policy.archive, is_retry=policy.retry,
        is_seq=policy.seq, ack_timeout=policy.ack_timeout_ms, batch_size=policy.batch_size,
        concurrent_consume=dialect != "real" and policy.concurrent > 1, concurrent_prefetch_size=policy.concurrent,
        delay=min(policy.delay_ms, INT_MAX), black_list=list(policy.black_list), err_times=policy.err_times,
        max_partition_num=policy.max_partitions or INT_MAX, read_retry_probability=policy.read_retry_probability,
    )  # fmt: skip


# ---- what nobody does here yet -----------------------------------------------------------------------------------


def find_coordinator(visit: Visit, command: commands.FindCoordinator) -> Said:  # noqa: ARG001 - the same for everybody
    """FIND_COORDINATOR: there is none."""
    code = int(Number.COORDINATOR_NOT_AVAILABLE)
    return commands.FindCoordinatorAck(
        coordinators=[commands.Coordinator(topic=topic, id=-1, code=code) for topic in command.topics]
    )


def assigned(visit: Visit, command: commands.FetchAssignedPartition) -> Said:  # noqa: ARG001 - the same for everybody
    """FETCH_ASSIGNED_PARTITION."""
    raise Refused(
        "no coordinator assigns partitions here yet; fetch from the topic, whose partitions are shared out by its locks",
        code="no-coordinator",
    )
