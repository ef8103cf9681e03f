"""Who reaches the ports that this process and its workers listen on, and when a silent connection ends.

`binding` ties listening sockets to network interfaces and refuses what comes from others; `listen_watch` does so before
a server listens, by a child process, `listen_child`. `keepalive` ends connections through which nothing comes any more.
"""
