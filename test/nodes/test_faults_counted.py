"""Frames that never came are counted by the gaps in their publishers' numbers."""

from radius_fps_ros.nodes.sequence_gaps import SequenceGaps


def received(*messages):
    gaps = SequenceGaps()
    for publisher, number in messages:
        gid = publisher and {"implementation_identifier": "test", "data": publisher}
        gaps.receive({"publisher_gid": gid, "publication_sequence_number": number})
    return gaps.missing


def test_gaps_are_counted_for_each_publisher():
    assert received() == received((b"a", 7)) == received((b"a", 7), (b"a", 8)) == 0
    assert received((b"a", 7), (b"a", 10)) == 2
    assert received((b"a", 7), (b"b", 1), (b"a", 8), (b"b", 5)) == 3


def test_middlewares_that_give_no_numbers_count_for_nothing():
    assert received((None, 1), (None, 5)) == received((b"a", None), (b"a", None)) == 0
    SequenceGaps().receive({"source_timestamp": 1})
