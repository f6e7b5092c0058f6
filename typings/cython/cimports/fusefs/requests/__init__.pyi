"""The project's own compiled modules, as seen by each other; what wire.pxd declares are the names of the module itself."""

from fusefs.requests import device as device
from fusefs.requests import wire as wire
