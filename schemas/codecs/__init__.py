"""Codecs for Avro, Protobuf and JSON Schema, one module each: they decode messages and encode values.

A codec is made from a schema and the schemas that it needs; it is then safe from any thread.
"""
