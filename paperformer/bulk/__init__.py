"""Files of any number of lines, worked on in shards: by this process, or by a cluster."""
