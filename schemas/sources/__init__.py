"""Sources of schemas, one module for each: the topic `_schemas`, a directory of files, and a registry."""
