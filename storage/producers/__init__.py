"""The state of a log's producers: their last sequence numbers, their open transactions, and snapshot files of both.

`entry` is what is known of one producer, with the arithmetic of sequences, `append` the checks of one append against it
and what its coordinator was asked, `state` the whole map with its open transactions, `snapshot` its file. Rules:
kafka-storage.md#producers, after Kafka's ProducerStateManager, ProducerAppendInfo and VerificationStateEntry.
"""
