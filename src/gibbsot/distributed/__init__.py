"""Data in shards, in this process or on a Dask cluster."""
