"""Appending: how the bytes of write(2) become records.

`framing` cuts bytes into lines, `failed_write` knows a write that is repeated after it failed, `flags` says who may open
for writing, `holding` whether the opener still holds a file, `targets` where lines go, `partitioners` which partition a
topic's door picks, `gathering` collects the lines of many writers for acks=0, and `handle` is the open file that ties
them together.
"""
