"""Appending: how the bytes of write(2) become records.

`framing` cuts bytes into lines, `failed_write` knows a write that is repeated after it failed, `flags` says who may
open for writing, `open_descriptors` whether the opener still holds a file, `targets` where lines go, `partitioners`
which partition a topic's own log picks, `linger_buffer` collects the lines of many writers for acks=0, `in_flight` has
several writes of one file under way, and `handle` is the open file that ties them together.
"""
