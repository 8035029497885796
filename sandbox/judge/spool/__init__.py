"""A judge on another machine: requests and answers are files in one folder, which may be copied by hand.

`folder.py` is the folder, `protocol.py` the form of requests and answers, `client.py` the side that asks, `server.py`
the side that answers on the machine of the GPU, `leases.py` keeps two servers off one request. Whoever can write into
the folder can launch kernels on that GPU and forge answers: use it between your own machines.
"""
