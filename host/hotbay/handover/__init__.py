"""How a host hands its place to a successor on the same machine, with no moment at which nobody accepts requests.

Two ends of one connection over a socket file in the state directory, open to the host's own user alone:

====================  ====================================================================================
successor             host
====================  ====================================================================================
connects              sends its listening sockets, which both have from here on
`freeze`              starts no rollout any more, closes its world, gives the lock of the state directory back
\\                     `frozen`; goes on answering with what is live
opens the state,
brings everything up,
begins to accept
`serving`             stops accepting, ends what it has begun, exits with 0
serves them           sends its clients' connections, each as soon as it is idle
====================  ====================================================================================

Invariants: a connection that ends before `serving` leaves the host as it was: it takes the lock again, as soon as the
successor's process lets go of it, and thaws. A host that dies on the way leaves its place to its successor, which has the
sockets from the first moment on. Nothing that a successor does or leaves undone ends the host. What waits in
the accept queue belongs to the socket and is answered by whoever still has it: nothing is reset. A connection that a
client keeps for its next request changes hosts; it is never closed while that request may be on its way.

Import rule: `server` is the host's end and `successor` the other one; neither imports the other, and both may import `ends`.
"""
