"""More than one machine: Ray starts the workers and starts them again when they die, torch.distributed adds gradients up.

Only this folder imports Ray, and only once a cluster is asked for. Needs `pip install "beamtree[ray]"`.
"""
