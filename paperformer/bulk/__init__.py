"""Files of any number of lines, worked on in shards: by this process, or by a cluster."""

PREPARATION_SHARD_LINES = 50_000
"""Lines of a shard where a corpus is prepared, by default: seconds of work, so that little is lost with a machine."""
