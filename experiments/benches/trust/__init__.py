"""Does a wrapped training do what it would do alone? Loops, reads of variables, step times, and memory."""
