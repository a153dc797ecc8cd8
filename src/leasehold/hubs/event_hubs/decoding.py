"""What an event is, of the bytes in which the service sends it, whatever its producer has put into them.

Owns what becomes of sections that cannot be decoded (`azure.sections`): they are set aside. Of a body the bytes are
given as they came, and the annotation `UNREADABLE` names each such section, in base64 where it is no body.
Bodies that are values of AMQP are read as JSON text (`azure.amqp_json`), not as the client would.

Refuses, with `ValueError`, what has no annotations of the service: where such an event belongs nobody can tell.
Pure.
"""

from __future__ import annotations

import json
from base64 import b64encode

from azure.eventhub._pyamqp._decode import _DECODE_BY_CONSTRUCTOR
from azure.eventhub._pyamqp.message import Header, Properties

from leasehold.azure import amqp_json, sections
from leasehold.hubs.event_hubs.events import Message

UNREADABLE = "amqp-unreadable"
"""The annotation of an event of which a section cannot be read: a JSON object of sections, with their bytes."""

_READER = sections.SectionReader(
    _DECODE_BY_CONSTRUCTOR,
    header=Header,
    properties=Properties,
    unused=(sections.HEADER, sections.DELIVERY, sections.FOOTER),
    value=amqp_json.body_of,
    sequence=amqp_json.items_of,
)


def decode(payload: bytes | bytearray | memoryview) -> Message:
    """The message in these bytes."""
    found, unreadable = _READER.read(payload)
    named = {sections.NAMES[code]: _shown(code, content) for code, content in unreadable}
    if sections.ANNOTATIONS not in found:
        raise ValueError("the service has sent an event without annotations: its place is not known")
    if named:
        found[sections.ANNOTATIONS][UNREADABLE.encode()] = json.dumps(named).encode()
    return Message(
        message_annotations=found[sections.ANNOTATIONS],
        properties=found.get(sections.PROPERTIES),
        application_properties=found.get(sections.STATED),
        data=found.get(sections.DATA),
        sequence=found.get(sections.SEQUENCE),
        value=found.get(sections.VALUE),
    )


def _shown(code: int, content: memoryview) -> str:
    is_body = code == sections.NONE or code in sections.BODIES
    return "see the body" if is_body else b64encode(content).decode()
