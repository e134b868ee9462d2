"""The classes of messages, in one place (Jakarta Messaging 3)."""

from legato.client.messages.bytes_message import BytesMessage
from legato.client.messages.map_message import MapMessage
from legato.client.messages.message import PRIORITY_DEFAULT, DeliveryMode, Message, Source
from legato.client.messages.object_message import ObjectMessage
from legato.client.messages.properties import Properties, PropertyValue
from legato.client.messages.stream_message import StreamMessage
from legato.client.messages.text_message import TextMessage

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
