"""Sources of schemas, one module each: the topic `_schemas`, a directory of files, and a registry."""
