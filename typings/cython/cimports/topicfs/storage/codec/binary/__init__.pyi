"""The project's own compiled modules, as seen by each other; what fields.pxd declares are the names of the module itself."""

from topicfs.storage.codec.binary import fields as fields
from topicfs.storage.codec.binary import header_writer as header_writer
from topicfs.storage.codec.binary import memory as memory
