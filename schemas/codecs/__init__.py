"""Codecs for Avro, Protobuf and JSON Schema, one module for each: they decode messages and encode values.

A codec is made from a schema and the schemas that it needs. Any thread may then use the codec.
"""
