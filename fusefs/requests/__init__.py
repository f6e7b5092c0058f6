"""The request loop: reads the kernel's requests, and answers the common ones; `loop` has the picture.

`common_requests` takes a request apart, begins its handler and writes the answer; `device` reads from /dev/fuse and writes to
it (raw memory); `wire` has the kernel's names and numbers; `begun_coroutine` is a handler that waits; `notifications` tell the
kernel to forget.
"""
