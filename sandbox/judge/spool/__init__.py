"""A judge elsewhere: a run's requests and the answers to them are files in one folder, which may be copied by hand.

`folder.py` is what is in it, `protocol.py` what may be asked and answered, `client.py` the side that asks, `server.py`
the side that answers on the machine of the GPU (`leases.py`: each request once). Whoever may write into the folder may
launch kernels on that GPU, and is believed as a judge: it is for your own machines.
"""
