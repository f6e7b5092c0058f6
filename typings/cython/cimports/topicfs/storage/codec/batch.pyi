"""What batch.pxd declares: the functions of the module itself."""

from topicfs.storage.codec.batch import sound_rows as sound_rows
