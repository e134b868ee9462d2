"""The classes of messages, in one place (Jakarta Messaging 3)."""

from legato.client.bytes_message import BytesMessage
from legato.client.map_message import MapMessage
from legato.client.message import PRIORITY_DEFAULT, DeliveryMode, Message, Source
from legato.client.object_message import ObjectMessage
from legato.client.properties import Properties, PropertyValue
from legato.client.stream_message import StreamMessage
from legato.client.text_message import TextMessage

__all__ = [
    "PRIORITY_DEFAULT",
    "BytesMessage",
    "DeliveryMode",
    "MapMessage",
    "Message",
    "ObjectMessage",
    "Properties",
    "PropertyValue",
    "Source",
    "StreamMessage",
    "TextMessage",
]
