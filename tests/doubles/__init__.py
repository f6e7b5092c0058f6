"""Replacements for the parts that tests must control, such as disks, clocks, brokers and engines."""
