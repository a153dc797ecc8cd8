"""What a message is, of the bytes in which the service sends it, whatever its sender has put into them.

Owns what becomes of a message of which a section cannot be decoded (`azure.sections`): it has no bytes any more but an
AMQP value, which is what could not be read. So nobody takes it for a message without properties, or with other bytes:
it goes where messages without bytes go. Pure.
"""

from __future__ import annotations

from typing import Any

from azure.servicebus._pyamqp._decode import _DECODE_BY_CONSTRUCTOR
from azure.servicebus._pyamqp.message import Header, Message, Properties

from leasehold.azure import sections

_READER = sections.SectionReader(_DECODE_BY_CONSTRUCTOR, header=Header, properties=Properties)


def decode(payload: bytes | bytearray | memoryview) -> Any:
    """The message in these bytes, as the client has it: text is UTF-8, and what is not there is None."""
    found, unreadable = _READER.read(payload)
    if unreadable:
        for code in sections.BODIES:
            found.pop(code, None)
        found[sections.VALUE] = b"".join(content for _, content in unreadable)
    return Message(
        header=found.get(sections.HEADER),
        delivery_annotations=found.get(sections.DELIVERY),
        message_annotations=found.get(sections.ANNOTATIONS),
        properties=found.get(sections.PROPERTIES),
        application_properties=found.get(sections.STATED),
        data=found.get(sections.DATA),
        sequence=found.get(sections.SEQUENCE),
        value=found.get(sections.VALUE),
        footer=found.get(sections.FOOTER),
    )
