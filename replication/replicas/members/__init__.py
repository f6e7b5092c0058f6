"""The data directories that replicate: each with its engine (`member.py`), and what they agree on, in a file of each of them.

`agreement.py` changes what is agreed on; `state_file.py` is the file; `reconciliation.py` brings a directory in line that
was away meanwhile.
"""
