"""What a copied topic takes along, in every state a bag can be in."""

import pytest
from rosbags.interfaces import Connection, ConnectionExtRosbag2, MessageDefinition, MessageDefinitionFormat
from rosbags.typesys import Stores, get_typestore

from radius_fps_ros.clouds.bags import POINT_CLOUD
from radius_fps_ros.errors import InputError
from radius_fps_ros.offline.definitions import HASH_NOT_SET, plan_output

STRING = "std_msgs/msg/String"
STORE = get_typestore(Stores.ROS2_KILTED)
IDL = "module odd_msgs { module msg { struct Odd { uint8 kind; }; }; };\n"


def connection(number, topic, kind, text="", form=MessageDefinitionFormat.NONE, digest=""):
    definition = MessageDefinition(form, text)
    return Connection(number, topic, kind, definition, digest, 1, ConnectionExtRosbag2("cdr", []), None)


def copied(*connections):
    return plan_output(connections, [], ["all"], False).topics


@pytest.mark.parametrize(
    ("kind", "text", "form", "digest", "definition", "type_hash"),
    [
        (STRING, "", "NONE", "", STORE.generate_msgdef(STRING, ros_version=2)[0], STORE.hash_rihs01(STRING)),
        (STRING, "", "NONE", "RIHS01_" + 64 * "0", "", "RIHS01_" + 64 * "0"),  # another String than the known one
        (STRING, "string data\n", "MSG", "", "string data\n", STORE.hash_rihs01(STRING)),
        ("odd_msgs/msg/Odd", "uint8 kind\n", "MSG", "given", "uint8 kind\n", "given"),
        ("odd_msgs/msg/Odd", "is no definition ( at all", "MSG", "", "is no definition ( at all", HASH_NOT_SET),
        ("odd_msgs/msg/Odd", "other_msgs/Gone lost\n", "MSG", "", "other_msgs/Gone lost\n", HASH_NOT_SET),
        ("odd_msgs/msg/Odd", "", "NONE", "", "", HASH_NOT_SET),
        ("odd_msgs/msg/Odd", "", "NONE", "given", "", "given"),
    ],
)
def test_definition_and_hash(kind, text, form, digest, definition, type_hash):
    (topic,) = copied(connection(1, "/x", kind, text, MessageDefinitionFormat[form], digest))
    assert (topic.definition, topic.type_hash) == (definition, type_hash)


def test_idl_gets_the_head_by_which_it_is_known():
    headed = f"{'=' * 80}\nIDL: odd_msgs/msg/Odd\n{IDL}"
    for text in (IDL, headed):
        (topic,) = copied(connection(1, "/x", "odd_msgs/msg/Odd", text, MessageDefinitionFormat.IDL))
        assert topic.definition == headed
        assert topic.type_hash.startswith("RIHS01_")


def test_channels_of_one_topic_become_one():
    a, b = (connection(number, "/x", STRING) for number in (1, 2))
    plan = plan_output([a, b], [], ["x"], False)
    assert len(plan.topics) == 1
    assert plan.copies == {(1, "/x"): 0, (2, "/x"): 0}
    assert plan.read == [a, b]


def test_places():
    top, side, words = (
        connection(1, "/top", POINT_CLOUD),
        connection(2, "/side", POINT_CLOUD),
        connection(3, "/w", STRING),
    )
    plan = plan_output([top, side, words], [side, top], ["/w", "top"], True)
    names = [topic.name for topic in plan.topics]
    assert names == ["/w", "/top", "/side/sampled", "/side/features", "/top/sampled", "/top/features"]
    assert plan.results == {"/side": (2, 3), "/top": (4, 5)}
    assert plan.read == [side, top, words]
    taken = connection(4, "/top/features", STRING)
    with pytest.raises(InputError, match="the bag has a topic '/top/features' already; leave it out of --copy"):
        plan_output([top, taken], [top], ["all"], True)
    plan_output([top, taken], [top], ["all"], False)
