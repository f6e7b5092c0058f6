"""Codecs: what a schema's language makes of a message, and of a value; a module a language.

A codec is made of a schema and those that it needs, and then is used from any thread.
"""
