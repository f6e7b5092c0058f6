"""The table of the requests that are answered; the answer to ApiVersions is made from it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import NamedTuple, TypeAlias

from topicfs.listener.broker import Broker, Request
from topicfs.listener.errors import RefusedError
from topicfs.listener.requests.cluster import check_software
from topicfs.protocol import group_messages, messages, transaction_messages
from topicfs.protocol.error_codes import ErrorCode
from topicfs.protocol.notation import Api
from topicfs.storage.wire import Values

TRANSACTION_VERSION, NEWEST_TRANSACTIONS = "transaction.version", 2
"""The feature by which newer clients learn that each transaction gets an epoch of its own."""
SINCE_MINIMUM_0 = 4
"""Since this version of ApiVersions, an answer may contain features whose smallest version is 0. Older clients cannot
read such features.
"""

Handler: TypeAlias = Callable[[Broker, Request], Values | None]
"""Answers a request; returns None if the client wants no answer. Fields that are left out get their defaults: no
request is throttled.
"""


class Served(NamedTuple):
    """A kind of request, and where its handler is: the module in this package, a colon, and the function."""

    api: Api
    place: str

    @property
    def handle(self) -> Handler:
        """The handler. Its module is imported with the first request, so that a server starts faster."""
        return _imported(self.place)


@cache
def _imported(place: str) -> Handler:
    module, _, name = place.partition(":")
    handler: Handler = getattr(import_module(f"{__package__}.{module}"), name)
    return handler


def api_versions(broker: Broker, request: Request) -> Values:
    """Answer ApiVersions."""
    del broker
    try:
        check_software(request.values)
    except RefusedError as error:
        return {"errorCode": error.code, "apiKeys": []}
    features = [{"name": TRANSACTION_VERSION, "minVersion": 0, "maxVersion": NEWEST_TRANSACTIONS}]
    finalized = {
        "name": TRANSACTION_VERSION,
        "minVersionLevel": NEWEST_TRANSACTIONS,
        "maxVersionLevel": NEWEST_TRANSACTIONS,
    }
    return {
        **_versions(ErrorCode.NONE),
        "supportedFeatures": features if request.version >= SINCE_MINIMUM_0 else [],
        "finalizedFeaturesEpoch": 0,
        "finalizedFeatures": [finalized],
    }


def sasl_handshake(broker: Broker, request: Request) -> Values:
    """Refuse SaslHandshake: the client is authenticated already, or cannot authenticate here."""
    del broker, request
    return {"errorCode": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": []}


def sasl_authenticate(broker: Broker, request: Request) -> Values:
    """Refuse SaslAuthenticate, as `sasl_handshake` does. `authentication` answers clients that authenticate."""
    del broker, request
    message = "SaslAuthenticate request received after successful authentication"
    return {"errorCode": ErrorCode.ILLEGAL_SASL_STATE, "errorMessage": message, "authBytes": b""}


def unsupported_version() -> Values:
    """Return the answer to ApiVersions in an unknown version. The client reads it as version 0 and asks again."""
    return _versions(ErrorCode.UNSUPPORTED_VERSION)


def _versions(code: ErrorCode) -> Values:
    return {
        "errorCode": code,
        "apiKeys": [
            {
                "apiKey": key,
                "minVersion": _OLDEST.get(key, api.request.versions[0]),
                "maxVersion": api.request.versions[-1],
            }
            for key, (api, _) in sorted(REQUESTS.items())
        ],
    }


_OLDEST = {messages.PRODUCE.key: 0}
"""ApiVersions announces version 0 of Produce, as a broker does, although it is not supported: librdkafka takes the
announcement as support of compression.
"""

COORDINATOR = "topicfs.coordination.transactions.coordinator"
"""The module that `Broker.transactions` imports."""


def import_handlers() -> None:
    """Import all code that requests may need, before an upgrade of the package replaces its files."""
    for served in REQUESTS.values():
        _imported(served.place)
    import_module(COORDINATOR)


REQUESTS = {
    api.key: Served(api, place)
    for api, place in (
        (messages.API_VERSIONS, "table:api_versions"),
        (messages.SASL_HANDSHAKE, "table:sasl_handshake"),
        (messages.SASL_AUTHENTICATE, "table:sasl_authenticate"),
        (messages.METADATA, "cluster:metadata"),
        (messages.DESCRIBE_CLUSTER, "cluster:describe_cluster"),
        (messages.DESCRIBE_TOPIC_PARTITIONS, "cluster:describe_topic_partitions"),
        (messages.PRODUCE, "produce:produce"),
        (messages.INIT_PRODUCER_ID, "transactions:init_producer_id"),
        (messages.FETCH, "fetch:fetch"),
        (messages.LIST_OFFSETS, "offsets:list_offsets"),
        (messages.OFFSET_FOR_LEADER_EPOCH, "offsets:offset_for_leader_epoch"),
        (messages.DELETE_RECORDS, "offsets:delete_records"),
        (messages.CREATE_TOPICS, "topics:create_topics"),
        (messages.CREATE_PARTITIONS, "topics:create_partitions"),
        (messages.DELETE_TOPICS, "topics:delete_topics"),
        (messages.DESCRIBE_CONFIGS, "configs:describe_configs"),
        (messages.ALTER_CONFIGS, "configs:alter_configs"),
        (messages.INCREMENTAL_ALTER_CONFIGS, "configs:incremental_alter_configs"),
        (messages.DESCRIBE_LOG_DIRS, "log_dirs:describe_log_dirs"),
        (group_messages.FIND_COORDINATOR, "groups:find_coordinator"),
        (group_messages.JOIN_GROUP, "groups:join_group"),
        (group_messages.SYNC_GROUP, "groups:sync_group"),
        (group_messages.HEARTBEAT, "groups:heartbeat"),
        (group_messages.LEAVE_GROUP, "groups:leave_group"),
        (group_messages.OFFSET_COMMIT, "groups:offset_commit"),
        (group_messages.OFFSET_FETCH, "groups:offset_fetch"),
        (group_messages.OFFSET_DELETE, "groups:offset_delete"),
        (group_messages.LIST_GROUPS, "groups:list_groups"),
        (group_messages.DESCRIBE_GROUPS, "groups:describe_groups"),
        (group_messages.DELETE_GROUPS, "groups:delete_groups"),
        (transaction_messages.ADD_PARTITIONS_TO_TXN, "transactions:add_partitions_to_txn"),
        (transaction_messages.ADD_OFFSETS_TO_TXN, "transactions:add_offsets_to_txn"),
        (transaction_messages.TXN_OFFSET_COMMIT, "transactions:txn_offset_commit"),
        (transaction_messages.END_TXN, "transactions:end_txn"),
        (transaction_messages.WRITE_TXN_MARKERS, "transactions:write_txn_markers"),
        (transaction_messages.LIST_TRANSACTIONS, "transactions:list_transactions"),
        (transaction_messages.DESCRIBE_TRANSACTIONS, "transactions:describe_transactions"),
        (transaction_messages.DESCRIBE_PRODUCERS, "transactions:describe_producers"),
    )
}
"""The requests that are answered, by API key."""
