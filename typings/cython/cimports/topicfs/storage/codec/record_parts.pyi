"""What record_parts.pxd declares: the functions of the module itself."""

from topicfs.storage.codec.record_parts import decode_records as decode_records
from topicfs.storage.codec.record_parts import header_spans as header_spans
