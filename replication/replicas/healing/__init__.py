"""Healing: `healer` has the scrub repair damage that reads find, `renewal` copies whole replicas, `resolution` ends forks."""
