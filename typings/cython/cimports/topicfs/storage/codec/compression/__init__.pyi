"""`storage/codec/compression`."""

from topicfs.storage.codec.compression import unlocked as unlocked
