"""Sources of schemas: the topic `_schemas`, a directory of files, a registry; a module a source."""
