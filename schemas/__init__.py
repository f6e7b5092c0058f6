"""Schemas of payloads: where they are found, and how they convert payloads to JSON and back.

Payloads have the frames of Confluent's serializers, which name a schema by its id in a registry (`frame`). Schemas
come from the registry's own topic `_schemas`, from files, or from the registry (`sources`). `catalog` looks up
schemas and keeps the compiled schemas (`codecs`). Neither payloads nor schemas are trusted: both have limits, and a
payload or schema that exceeds a limit raises SchemaError. The libraries are in the extra `topicfs[schemas]`, and are
imported when the first schema needs them.
"""
