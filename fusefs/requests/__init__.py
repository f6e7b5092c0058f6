"""The request loop: reads the kernel's requests, and answers the common ones; `loop` has the picture.

`common_requests` parses a request, starts its handler and writes the answer; `device` reads and writes /dev/fuse (raw
memory); `wire` has the kernel's names and numbers; `begun_coroutine` is a handler that waits; `notifications`
invalidate names and attributes in the kernel.
"""
