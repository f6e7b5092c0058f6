"""The transaction coordinator over the topic `__transaction_state`: keeps transactional ids, and ends transactions.

`transaction` has the rules as pure functions of a transactional id's state, `state_records` the state as a record,
`shard` one partition of the topic with the ids that belong to it, and `coordinator` the requests of clients.
`open_transactions` finds hanging transactions, which are open in a partition but in no transactional id's state.
"""
