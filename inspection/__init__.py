"""Inspection of the files on disk: a dump, a check, and the steps of a lookup.

`dump` prints files in the text of Kafka's own tool, `check` finds what is not as it must be, `explain` lists the steps
of a lookup. All three give values (lines, findings, steps); printing, colors and exit statuses are the command's.
"""
