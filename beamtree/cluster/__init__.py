"""More than one machine: Ray starts the workers, again when they die, and torch.distributed adds their gradients up.

Only this folder imports Ray, and only once a cluster is asked for. Needs `pip install "beamtree[ray]"`.
"""
