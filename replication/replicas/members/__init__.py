"""The data directories of a set of replicas: an engine for each (`member.py`), and the state that all agree on.

`agreement.py` changes what is agreed on; `state_file.py` is the file; `reconciliation.py` brings a directory in line that
was away meanwhile.
"""
