"""Healing: `healer` repairs damage that reads find, `renewal` copies whole replicas, `resolution` ends forks."""
