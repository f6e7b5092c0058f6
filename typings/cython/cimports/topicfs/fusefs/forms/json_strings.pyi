"""What json_strings.pxd declares: the functions of the module itself."""

from topicfs.fusefs.forms.json_strings import base64_size as base64_size
from topicfs.fusefs.forms.json_strings import field_size as field_size
from topicfs.fusefs.forms.json_strings import integer_size as integer_size
from topicfs.fusefs.forms.json_strings import put_field as put_field
from topicfs.fusefs.forms.json_strings import put_integer as put_integer
from topicfs.fusefs.forms.json_strings import put_string as put_string
from topicfs.fusefs.forms.json_strings import put_text as put_text
