"""Appending: how the bytes of write(2) become records.

`framing` splits bytes into lines; `failed_write` recognizes a repeated write; `flags` decides which open modes may
write; `open_descriptors` checks whether the opener still holds a file; `targets` are partitions or topics that take
lines; `partitioners` choose a partition for each record of a topic; `linger_buffer` collects the lines of many writers
for acks=0; `in_flight` keeps several writes of one file running; and `handle` is the open file, which uses them all.
"""
