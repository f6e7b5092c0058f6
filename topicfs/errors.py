"""The errors that `import topicfs` raises, in addition to OSError. `StorageError` is their base."""

# ruff: noqa: PLC0414 - an import under its own name is public
from topicfs.cluster.place import AddressError as AddressError
from topicfs.data_directory import PlaceError as PlaceError
from topicfs.formats.arrow_batches import ArrowMissingError as ArrowMissingError
from topicfs.listener.errors import ListenerError as ListenerError
from topicfs.storage.errors import *  # noqa: F403 - each of them is public, by its own name
