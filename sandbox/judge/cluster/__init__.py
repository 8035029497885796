"""A judge on the GPUs of a Ray cluster: `--judge ray:ADDRESS`.

`ray_cluster.py` connects and finds hosts, `gpu_host.py` runs beside a GPU in an actor, `remote_gpu.py` is the driver's
end of it, and `cluster_pool.py` makes one judge of them. Ray is imported where it is needed alone.
"""
