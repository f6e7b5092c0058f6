"""Schemas of payloads: where they are found, and how they convert payloads to JSON and back.

Payloads are framed as Confluent's serializers frame them, for a schema registry to say what they are (`frame`). Schemas
come from the registry's own topic `_schemas`, from files, or from the registry (`sources`); `catalog` looks them up and
keeps what was compiled of them (`codecs`). Neither a payload nor a schema is trusted: each has its bounds, and what is
beyond them is a SchemaError. The libraries are those of the extra `topicfs[schemas]`, and are imported when the first
schema needs one.
"""
