"""`storage/codec/compression`."""

from storage.codec.compression import unlocked as unlocked
