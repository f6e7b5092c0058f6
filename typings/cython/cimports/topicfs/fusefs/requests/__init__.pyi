"""The project's own compiled modules, as seen by each other; what wire.pxd declares are the names of the module itself."""

from topicfs.fusefs.requests import device as device
from topicfs.fusefs.requests import wire as wire
