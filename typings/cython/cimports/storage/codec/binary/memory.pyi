"""What memory.pxd declares: the functions of the module itself."""

from storage.codec.binary.memory import checksum_of as checksum_of
from storage.codec.binary.memory import copy as copy
from storage.codec.binary.memory import finished as finished
from storage.codec.binary.memory import flat_view as flat_view
from storage.codec.binary.memory import int64s_of as int64s_of
from storage.codec.binary.memory import new_int64s as new_int64s
from storage.codec.binary.memory import new_octets as new_octets
from storage.codec.binary.memory import new_text as new_text
from storage.codec.binary.memory import octets_of as octets_of
from storage.codec.binary.memory import part_of as part_of
from storage.codec.binary.memory import position_of as position_of
from storage.codec.binary.memory import resize as resize
from storage.codec.binary.memory import text_octets as text_octets
from storage.codec.binary.memory import writable as writable
