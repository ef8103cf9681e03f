"""Limits who reaches the ports that this process and its workers listen on, and ends silent connections.

`binding` ties listening sockets to network interfaces and refuses connections from others; `listen_watch` does so
before a server listens, with a child process, `listen_child`. `keepalive` ends connections through which nothing comes.
"""
