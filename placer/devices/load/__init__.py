"""Finding out what has become slower: `load_probes` reads devices and links, `load_reading` compares two readings."""
