"""The topics of the written bag: their types, type definitions and QoS profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from rosbags.interfaces import (
    Connection,
    ConnectionExtRosbag2,
    MessageDefinitionFormat,
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.typesys import Stores, TypesysError, get_types_from_idl, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from ..clouds.bags import POINT_CLOUD
from ..errors import InputError
from .settings import COPY_ALL, COPY_NONE

# What ROS 2 writes for a type hash that is not set; rosbags refuses an empty one.
HASH_NOT_SET = "RIHS00_" + 64 * "0"
_IDL_RULE = "=" * 80 + "\n"
_ZERO = QosTime(0, 0)
# What the perception node offers on its outputs.
NODE_QOS = Qos(
    QosHistory.KEEP_LAST, 5, QosReliability.RELIABLE, QosDurability.VOLATILE, _ZERO, _ZERO,
    QosLiveliness.SYSTEM_DEFAULT, _ZERO, False,
)  # fmt: skip


@dataclass(frozen=True)
class OutputTopic:
    """A topic of the written bag; ``definition`` is empty where the type's definition is not known."""

    name: str
    type: str
    definition: str
    type_hash: str
    qos: tuple[Qos, ...]


@dataclass(frozen=True)
class OutputPlan:
    """Which messages of a bag are read, and where each goes.

    Attributes:
        clouds: connections whose messages are processed.
        copied: connections whose messages are copied.
        topics: the written bag's topics.
        copies: for each copied connection (by `identity`) its place in ``topics``.
        results: for each processed topic's name the places of its samples and of its features in ``topics``.
    """

    clouds: tuple[Connection, ...]
    copied: tuple[Connection, ...]
    topics: tuple[OutputTopic, ...]
    copies: dict[tuple[int, str], int]
    results: dict[str, tuple[int, int | None]]

    @property
    def read(self) -> list[Connection]:
        """All connections whose messages are needed, each once."""
        return list({identity(c): c for c in (*self.clouds, *self.copied)}.values())

    @property
    def undefined_types(self) -> list[str]:
        """Types that are copied without a definition."""
        return sorted({topic.type for topic in self.topics if not topic.definition})


def identity(connection: Connection) -> tuple[int, str]:
    """A key for a connection, which itself cannot be hashed."""
    return connection.id, connection.topic


def plan_output(
    connections: Sequence[Connection], clouds: Sequence[Connection], copy: Sequence[str], features: bool
) -> OutputPlan:
    """Lay out the written bag.

    Args:
        connections: all of the bag.
        clouds: those that are processed.
        copy: ``["all"]``, ``["none"]``, or names of topics, with or without the leading slash.
        features: whether features are written too.

    Raises:
        InputError: a topic to be copied does not exist, or has the name of a result.
    """
    copied = _chosen(connections, copy)
    topics: list[OutputTopic] = []
    copies: dict[tuple[int, str], int] = {}
    for connection in copied:
        topic = _same_topic(connection)
        if topic not in topics:  # a bag may hold one topic in several channels
            topics.append(topic)
        copies[identity(connection)] = topics.index(topic)
    results: dict[str, tuple[int, int | None]] = {}
    for name in dict.fromkeys(connection.topic for connection in clouds):
        places = []
        for kind in ("sampled", "features")[: 1 + features]:
            topic = _result_topic(f"{name}/{kind}")
            if any(topic.name == other.name for other in topics):
                raise InputError(
                    f"the bag has a topic {topic.name!r} already; leave it out of --copy, or choose with --topic "
                    "what is processed"
                )
            places.append(len(topics))
            topics.append(topic)
        results[name] = places[0], places[1] if features else None
    return OutputPlan(tuple(clouds), tuple(copied), tuple(topics), copies, results)


def _chosen(connections: Sequence[Connection], copy: Sequence[str]) -> list[Connection]:
    if list(copy) == [COPY_ALL]:
        return list(connections)
    if list(copy) == [COPY_NONE]:
        return []
    chosen: list[Connection] = []
    for name in copy:
        named = [c for c in connections if c.topic in (name, f"/{name}")]
        if not named:
            topics = ", ".join(sorted({repr(c.topic) for c in connections}))
            raise InputError(f"--copy {name}: the bag has no such topic; its topics are: {topics}")
        chosen += [c for c in named if identity(c) not in map(identity, chosen)]
    return chosen


def _same_topic(connection: Connection) -> OutputTopic:
    if not isinstance(connection.ext, ConnectionExtRosbag2):
        raise TypeError(f"{connection.topic} does not come from a rosbag2 bag")
    definition, type_hash = _definition(connection)
    qos = tuple(connection.ext.offered_qos_profiles)
    return OutputTopic(connection.topic, connection.msgtype, definition, type_hash, qos)


def _result_topic(name: str) -> OutputTopic:
    definition, type_hash = _standard_definition(POINT_CLOUD)
    return OutputTopic(name, POINT_CLOUD, definition, type_hash, (NODE_QOS,))


def _definition(connection: Connection) -> tuple[str, str]:
    """The type's definition and hash: the bag's own, else those of a standard type of this name, else not known."""
    name, known_hash = connection.msgtype, connection.digest
    if connection.msgdef.data:
        text = connection.msgdef.data
        is_idl = connection.msgdef.format is MessageDefinitionFormat.IDL
        if is_idl and not text.startswith(_IDL_RULE):
            text = f"{_IDL_RULE}IDL: {name}\n{text}"
        return text, known_hash or _hash_of(name, text, is_idl)
    definition, type_hash = _standard_definition(name)
    if definition and known_hash in ("", type_hash):
        return definition, type_hash
    return "", known_hash or HASH_NOT_SET


@cache
def _standard_store() -> Typestore:
    return get_typestore(Stores.ROS2_HUMBLE)


def _standard_definition(name: str) -> tuple[str, str]:
    store = _standard_store()
    if name not in store.fielddefs:
        return "", HASH_NOT_SET
    return store.generate_msgdef(name, ros_version=2)[0], store.hash_rihs01(name)


def _hash_of(name: str, definition: str, is_idl: bool) -> str:
    """The hash of a definition, not set where it cannot be read: a message is copied whatever its definition says."""
    store = get_typestore(Stores.EMPTY)
    try:
        if is_idl:
            for part in definition.split(_IDL_RULE)[1:]:  # each begins with a line that names its type
                store.register(get_types_from_idl(part.partition("\n")[2]))
        else:
            store.register(get_types_from_msg(definition, name))
        return store.hash_rihs01(name)
    except (TypesysError, KeyError):
        return HASH_NOT_SET
