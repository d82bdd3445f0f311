"""Reads a bag by what is inside of it alone: no type is known beforehand."""

from collections import Counter

from mcap.reader import make_reader
from rosbags.typesys import Stores, get_types_from_msg, get_typestore


def decode_all(file):
    """Return by topic the type and how many messages could be read, and the topics without any."""
    store, counts = get_typestore(Stores.EMPTY), Counter()
    with file.open("rb") as stream:
        reader = make_reader(stream)
        summary = reader.get_summary()
        for schema in summary.schemas.values():
            types = get_types_from_msg(schema.data.decode(), schema.name)
            store.register({name: fields for name, fields in types.items() if name not in store.fielddefs})
        for schema, channel, message in reader.iter_messages():
            decoded = store.deserialize_cdr(message.data, schema.name)
            assert bytes(store.serialize_cdr(decoded, schema.name))[:4] == message.data[:4]
            counts[channel.topic, schema.name] += 1
    silent = {channel.topic for channel in summary.channels.values()} - {topic for topic, _ in counts}
    return counts, silent
