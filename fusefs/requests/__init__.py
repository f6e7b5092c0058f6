"""The common requests of the kernel, answered by compiled code; all others are pyfuse3's.

`common_requests` takes a request apart, begins its handler and writes the answer; `device` reads from /dev/fuse and writes to it
(raw memory); `wire` has the kernel's names and numbers; `in_front` (C, in `in_front.pxd`) stands in front of the function
of libfuse with which pyfuse3 reads requests; `begun_coroutine` is a handler that waits, with which pyfuse3 goes on.
"""

import os
import sys

_flags = sys.getdlopenflags()
sys.setdlopenflags(_flags | os.RTLD_GLOBAL)  # See `in_front`.
try:
    import topicfs.fusefs.requests.common_requests  # noqa: F401 - importing it is all that is needed, under these flags
finally:
    sys.setdlopenflags(_flags)
