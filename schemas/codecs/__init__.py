"""Codecs for Avro, Protobuf and JSON Schema, one module each: they decode messages and encode values.

A codec is made of a schema and those that it needs, and then is used from any thread.
"""
