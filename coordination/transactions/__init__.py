"""The transaction coordinator over the topic `__transaction_state`: transactional ids, their producers and their ends.

`transaction` has the rules as pure functions of a transactional id's state, and `state_records` the state as a record.
"""
