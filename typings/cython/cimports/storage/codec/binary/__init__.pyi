"""The project's own compiled modules, as seen by each other; what fields.pxd declares are the names of the module itself."""

from storage.codec.binary import fields as fields
from storage.codec.binary import header_writer as header_writer
from storage.codec.binary import memory as memory
